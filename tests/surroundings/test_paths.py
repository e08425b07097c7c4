"""Projects, homes of Prefect and datasets in folders of any name, and the few names that are refused before anything is made."""

import os
import sys
import unicodedata
from pathlib import Path

import pytest

import tokenmill
from tests.builders import in_process
from tests.builders.document_sets import documents_dataset
from tests.builders.teams import identify, run
from tests.conftest import DOCUMENTS, REPOSITORY, Project, make_project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.versioning.dvc_settings import set_in
from tokenmill.view.answering import Answering

NAMES = {
    "umlaut": "Müller",
    "decomposed umlaut": unicodedata.normalize("NFD", "Müller"),
    "space and quotes": "a 'b' \"c\"",
    "percent": "a%b%20c",
    "parts of a URL": "a?b=c#d&e;f@g:1",
    "a glob": "a*[b]?",
    "for a shell": "$HOME `x` ~ \\",
    "for YAML and jinja": "{{x}}: - [y], z",
    "beyond the first plane": "😀 东京",
}
REFUSED = {
    "newline": "a\nb",
    "carriage return": "a\rb",
    "line separator": "a\u2028b",
    "not UTF-8": os.fsdecode(b"a\xffb"),
    "a variable of DVC's configuration": "%(x)s",
    "three quotes": "a'''b",
}


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("command", [["init", "."], ["build"], ["status"]], ids=lambda command: command[0])
def test_a_path_that_dvc_cannot_write_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, command: list[str]
) -> None:
    folder = tmp_path / name / "p"
    folder.mkdir(parents=True)
    if command != ["init", "."]:
        (folder / "params.yaml").write_bytes((REPOSITORY / "params.yaml").read_bytes())
    before = list(folder.iterdir())
    done = in_process.tokenmill(folder, *command)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("tokenmill: error[TM100]: ") and line.endswith("Rename the folder.")
    assert list(folder.iterdir()) == before


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_dvc_reads_the_settings_that_are_set_for_it(tmp_path: Path, name: str) -> None:
    from dvc.config import Config

    path = tmp_path / name / "config.local"
    path.parent.mkdir()
    path.write_text("['remote \"r\"']\n    url = /Müller # ours\n    password = %(x)\n", encoding="utf-8")
    set_in(path, "core", {"site_cache_dir": str(path)})
    set_in(path, "core", {"analytics": False})
    assert "# ours" in path.read_text(encoding="utf-8")
    found = Config.load_file(str(path))
    assert found["core"] == {"site_cache_dir": str(path), "analytics": "False"}
    assert found["remote"]["r"] == {"url": "/Müller", "password": "%(x)"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_project_is_made_built_published_shown_and_read_in_a_folder_of_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = tmp_path / name
    done = in_process.tokenmill(tmp_path, "init", "-q", str(folder / name))
    assert done.returncode == 0, done.stderr
    project = Project(folder / name)
    for shard, documents in DOCUMENTS.items():
        project.write(shard, documents)
    project.set(train_vocab__vocab_size=272, run__engine="inline")
    identify(project.root)
    project.build()
    for command in (("add", "-d", "store", "../store"), ("modify", "--local", "store", "verify", "true")):
        done = project.run("dvc", "remote", *command)
        assert done.returncode == 0, done.stderr
    run(project.root, "git", "add", "-A")
    run(project.root, "git", "commit", "-q", "-m", "First")
    out = str(folder / f"out {name}")
    for arguments in (
        ("status",),
        ("verify",),
        ("doctor",),
        ("publish", "tokenizer@v1.0.0"),
        ("fetch", "tokenizer@v1.0.0", out),
        ("upload", str(folder / f"place {name}")),
    ):
        said = project.cli(*arguments)
        assert said.returncode == 0, (arguments, said.stderr)
    [stored] = (folder / f"place {name}").iterdir()
    for place in (str(stored), stored.as_uri()):
        said = project.cli("download", place, f"{out} {place.count('%')}")
        assert said.returncode == 0, said.stderr
    shown = Answering(project.root / "data/tokens")
    try:
        status, _info = shown.ask("info", {})
    finally:
        shown.close()
    assert status == 200
    here = tokenmill.open(project.root / "data/tokens")
    there = tokenmill.open(stored.as_uri(), cache=folder / "cache")
    assert [ids.tolist() for ids in here] == [ids.tolist() for ids in there]


def test_a_url_of_a_file_names_a_folder_of_any_name(tmp_path: Path) -> None:
    local = documents_dataset(tmp_path / "local", [[[1, 2], [3]]], ["arrow"])
    place = tmp_path / NAMES["percent"] / NAMES["umlaut"] / read_manifest(local).digest[:16]
    place.parent.mkdir(parents=True)
    (place / "tokens").parent.mkdir()
    local.rename(place / "tokens")
    for url in (place.as_uri(), f"file://{place}".replace("%", "%25")):
        dataset = tokenmill.open(url, cache=tmp_path / "cache")
        assert [ids.tolist() for ids in dataset] == [[1, 2], [3]]


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["PREFECT_HOME", "HOME", "TMPDIR"])
def test_folders_of_others_may_have_any_name(tmp_path: Path, variable: str) -> None:
    folder = tmp_path / f"{NAMES['parts of a URL']} {NAMES['percent']} {NAMES['umlaut']}"
    folder.mkdir()
    project = make_project(tmp_path / NAMES["parts of a URL"])
    project.set(run__engine="threads", run__report_page=True)
    done = project.run(sys.executable, "-m", "tokenmill", "build", **{variable: str(folder)})
    assert done.returncode == 0, done.stderr
    home = folder if variable == "PREFECT_HOME" else project.root / ".tokenmill/prefect"
    assert (home / "prefect.db").is_file()
    assert project.cli("verify").returncode == 0
