"""A small Hugging Face hub with one private dataset, which lies in a folder: the calls that reading and committing make."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_aWordForTests"
DATASET = "/datasets/org/name"
_LARGE_BYTES = 1000


class Hub:
    """`folder`: the files of the last commit. `asked`: the paths that were asked for. `kept`: the large files that were sent, by
    their digests. `n_commits`: also of others. `failing`, `failing_lists`: the status of the next answers to commits, and to
    lists of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.asked: list[str] = []
        self.kept: dict[str, bytes] = {}
        self.n_commits = 1
        self.failing: list[int] = []
        self.failing_lists: list[int] = []

    @property
    def commit(self) -> str:
        """The name of the last commit."""
        return f"{self.n_commits:040x}"

    def environment(self, home: Path) -> dict[str, str]:
        """What makes huggingface_hub use it."""
        names = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": TOKEN, "HF_HOME": str(home), **names}


class _Answers(BaseHTTPRequestHandler):
    def __init__(self, hub: Hub, *arguments: object) -> None:
        self.hub = hub
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, commit = unquote(urlsplit(self.path).path), self.hub.commit
        self.hub.asked.append(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {}, "RepoNotFound")
        elif path in (f"/api{DATASET}", f"/api{DATASET}/revision/v1"):
            self.answer(200, {"id": "org/name", "sha": commit, "private": True})
        elif path.startswith(f"/api{DATASET}/revision/"):
            self.answer(404, {}, "RevisionNotFound")
        elif path.startswith(below := f"/api{DATASET}/tree/{commit}/"):
            if self.hub.failing_lists:
                return self.answer(self.hub.failing_lists.pop(), {})
            self.answer(200, self.tree(path.removeprefix(below)))
        elif path.startswith(below := f"{DATASET}/resolve/{commit}/"):
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            content = (self.hub.folder / path.removeprefix(below)).read_bytes()
            self.answer(206, content[int(first) : int(last) + 1])
        else:
            self.answer(404, {}, "EntryNotFound")
        return None

    def tree(self, below: str) -> list[dict[str, Any]]:
        found = []
        for one in sorted(path for path in (self.hub.folder / below).rglob("*") if path.is_file()):
            content = one.read_bytes()
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry = {
                "type": "file",
                "path": one.relative_to(self.hub.folder).as_posix(),
                "size": len(content),
                "oid": git,
            }
            if len(content) > _LARGE_BYTES:
                entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            found.append(entry)
        return found

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append(path)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {}, "RepoNotFound")
        elif path == f"/api{DATASET}/preupload/main":
            asked = json.loads(content)
            is_ignored = "gitIgnore" not in asked  # a .gitignore in the dataset names all files
            self.answer(200, {"files": [self.mode(one) | {"shouldIgnore": is_ignored} for one in asked["files"]]})
        elif path == f"/api{DATASET}/paths-info/{self.hub.commit}":
            [name] = parse_qs(content.decode())["paths"]
            self.answer(200, [one for one in self.tree("") if one["path"] == name])
        elif path == f"{DATASET}.git/info/lfs/objects/batch":
            self.answer(200, {"objects": [self.place(one) for one in json.loads(content)["objects"]]})
        else:
            assert path == f"/api{DATASET}/commit/main"
            self.take([json.loads(line) for line in content.splitlines()])

    def mode(self, file: dict[str, Any]) -> dict[str, Any]:
        mode = "lfs" if file["size"] > _LARGE_BYTES else "regular"
        return {"path": file["path"], "uploadMode": mode}

    def place(self, asked: dict[str, Any]) -> dict[str, Any]:
        action = {"upload": {"href": f"{self.hub.url}/kept/{asked['oid']}"}}
        return asked if asked["oid"] in self.hub.kept else {**asked, "actions": action}

    def take(self, lines: list[dict[str, Any]]) -> None:
        hub = self.hub
        if hub.failing:
            return self.answer(hub.failing.pop(0), {})
        if lines[0]["value"]["parentCommit"] != hub.commit:
            return self.answer(412, {})
        for line in lines[1:]:
            value = line["value"]
            path = hub.folder / value["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            is_large = line["key"] == "lfsFile"
            path.write_bytes(hub.kept[value["oid"]] if is_large else base64.b64decode(value["content"]))
        hub.n_commits += 1
        url = f"{hub.url}{DATASET}/commit/{hub.commit}"
        return self.answer(200, {"commitUrl": url, "commitOid": hub.commit, "pullRequestUrl": None})

    def do_PUT(self) -> None:
        self.hub.asked.append(self.path)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        digest = self.path.rpartition("/")[2]
        assert hashlib.sha256(content).hexdigest() == digest
        self.hub.kept[digest] = content
        self.answer(200, b"")

    def answer(self, status: int, content: Any, error: str | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hub_of(folder: Path) -> Iterator[Hub]:
    """A hub at 127.0.0.1 while the block runs."""
    hub = Hub(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answers, hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield hub
    server.shutdown()
    server.server_close()
