"""Documents of a dataset on a Hugging Face hub, of which a small server has the calls that are needed."""

import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.builders.corpora import read_corpus, write_corpus
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import read_manifest

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef" * 2 + "01234567"
TOKEN = "hf_aWordForTests"
DATASET = "/datasets/org/name"


class Answers(BaseHTTPRequestHandler):
    """The calls of a hub that `tokenmill` makes, for one private dataset that lies in a folder."""

    def __init__(self, folder: Path, asked: list[str], *arguments: object) -> None:
        self.folder, self.asked = folder, asked
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.asked.append(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path in (f"/api{DATASET}", f"/api{DATASET}/revision/v1"):
            self.answer(200, json.dumps({"id": "org/name", "sha": COMMIT, "private": True}).encode())
        elif path.startswith(f"/api{DATASET}/revision/"):
            self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith(f"/api{DATASET}/tree/{COMMIT}/"):
            self.tree(path.removeprefix(f"/api{DATASET}/tree/{COMMIT}/"))
        elif path.startswith(f"{DATASET}/resolve/{COMMIT}/"):
            self.file(self.folder / path.removeprefix(f"{DATASET}/resolve/{COMMIT}/"))
        else:
            self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def tree(self, below: str) -> None:
        files = sorted(one for one in (self.folder / below).rglob("*") if one.is_file())
        entries = [
            {
                "type": "file",
                "path": one.relative_to(self.folder).as_posix(),
                "size": one.stat().st_size,
                "oid": f"{i:040}",
            }
            for i, one in enumerate(files)
        ]
        self.answer(200, json.dumps(entries).encode())

    def file(self, path: Path) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        self.answer(206, path.read_bytes()[int(first) : int(last) + 1])

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """The folder of the dataset, the address of its hub, and the paths that were asked for."""
    folder, asked = tmp_path / "hub", list[str]()
    write_corpus(folder / "data/raw")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Answers, folder, asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def with_glob(tmp_path: Path, name: str, glob: str, dependency: str) -> Project:
    project = make_project(tmp_path / name)
    shutil.rmtree(project.root / "data/raw")
    read_corpus(project, glob, [dependency])
    return project


def test_a_build_from_a_hub_has_the_bytes_of_one_from_files(hub: tuple[Path, str, list[str]], tmp_path: Path) -> None:
    folder, address, asked = hub
    environment = {"HF_ENDPOINT": address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    local = with_glob(tmp_path, "local", "data/raw/**/*", "data/raw")
    shutil.copytree(folder / "data/raw", local.root / "data/raw")
    local.build()
    project = with_glob(tmp_path, "remote", "hf://datasets/org/name/data/raw/**/*", "data/objects.json")
    done = project.run("tokenmill", "build", **environment)
    assert done.returncode == 0, done.stderr
    sums = [
        {one.name: one.sha256 for one in read_manifest(one.root / "data/tokens").shards} for one in (local, project)
    ]
    assert sums[0] == sums[1]
    n_read = sum("/resolve/" in one for one in asked)
    done = project.run("tokenmill", "build", **environment)
    assert set(project.actions(done).values()) == {"up to date"}
    assert sum("/resolve/" in one for one in asked) == n_read
    for path in project.root.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("changes", "revision", "words"),
    [
        ({"HF_TOKEN": "hf_another"}, "", "there is no such dataset, or the token may not read it"),
        ({}, "@v2", "the dataset has no such revision"),
        ({"HF_HUB_OFFLINE": "1"}, "", "HF_HUB_OFFLINE is set"),
        ({}, "@v1", "found none: there is nothing below hf://datasets/org/name@v1/none/"),
    ],
)
def test_what_a_hub_refuses_is_one_error(
    hub: tuple[Path, str, list[str]], tmp_path: Path, changes: dict[str, str], revision: str, words: str
) -> None:
    environment = {
        "HF_ENDPOINT": hub[1],
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
        **changes,
    }
    folder = "none" if revision == "@v1" else "data/raw"
    project = with_glob(tmp_path, "remote", f"hf://datasets/org/name{revision}/{folder}/*", "data/objects.json")
    done = project.run("tokenmill", "status", **environment)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr
