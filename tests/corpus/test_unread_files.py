"""Files below data/raw that no source matches are named."""

import json
from pathlib import Path

import pytest

from tests.builders.teams import findings
from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.corpus.source_shards import find_documents, hidden_files, unread_files

OTHERS = ["data/raw/notes.md", "data/raw/old/c.jsonl"]


@pytest.fixture
def narrow(project: Project) -> Project:
    """A project whose one source leaves two files in data/raw, hidden ones and an unfinished one."""
    project.set(sources={"web": {"glob": "data/raw/*.jsonl"}})
    project.write("old/c.jsonl", ["an old text"])
    (project.root / "data/raw/old/.cache/huggingface").mkdir(parents=True)
    for name in (
        "notes.md",
        ".hidden",
        "old/.cache/huggingface/c.lock",
        ".DS_Store",
        "._a.jsonl",
        ".gitkeep",
        "d.jsonl.tmp",
    ):
        (project.root / "data/raw" / name).write_text("no document")
    return project


def test_every_command_names_the_files_that_no_source_reads(narrow: Project) -> None:
    words = (
        f"2 files in data/raw are read by no source: {', '.join(OTHERS)}. 2 hidden files or folders in data/raw are not read, such "
        "as data/raw/.hidden: rename it if it is a document."
    )
    assert words in narrow.build().stderr
    assert words in narrow.cli("status").stdout
    assert words in " ".join(narrow.cli("plan").stdout.split())
    for command in ("status", "plan"):
        assert json.loads(narrow.cli(command, "--json").stdout)["result"]["unread_files"] == OTHERS
    assert findings(narrow, 0)["other files"]["found"] == words.removesuffix(".")


@pytest.mark.parametrize(
    ("globs", "hidden"),
    [
        (["data/raw/**/*"], ["data/raw/.hidden", "data/raw/old/.cache/"]),
        (["data/raw/*.jsonl", "data/raw/old/.cache/**/*"], ["data/raw/.hidden"]),
        (["elsewhere/*"], ["data/raw/.hidden", "data/raw/old/.cache/"]),
    ],
)
def test_hidden_files_are_known_unless_a_glob_reads_them(narrow: Project, globs: list[str], hidden: list[str]) -> None:
    narrow.set(sources={"web": {"glob": globs}})
    assert hidden_files(narrow.root, load_params(narrow.root / "params.yaml")) == hidden


def test_a_change_to_such_a_file_is_told_as_one(narrow: Project) -> None:
    narrow.build()
    (narrow.root / "data/raw/notes.md").write_text("still no document, but longer")
    said = narrow.cli("status", "-v").stdout
    assert "count" in said and "to do: other files in data/raw alone: no file of documents changed" in said


def test_strict_sources_make_an_error_of_them(narrow: Project) -> None:
    narrow.set(source__sources_strict=True)
    for command in ("build", "plan"):
        done = narrow.cli(command)
        assert done.returncode == 2
        assert "error[TM215]" in done.stderr and all(name in done.stderr for name in OTHERS)
    assert "sources_strict" in findings(narrow, 1)["documents"]["found"]
    narrow.set(sources={"web": {"glob": "data/raw/*.jsonl"}, "old": {"glob": "data/raw/old/*"}})
    (narrow.root / "data/raw/notes.md").unlink()
    narrow.build()


@pytest.mark.parametrize("drop", ["data/raw/drop.csv", "./data/raw/../raw/drop.csv", "{root}/data/raw/drop.csv"])
def test_the_list_of_documents_to_leave_out_is_known_by_any_path(narrow: Project, drop: str) -> None:
    (narrow.root / "data/raw/drop.csv").write_text("id,reason\n", encoding="utf-8")
    narrow.set(source__drop=drop.format(root=narrow.root))
    assert unread_files(narrow.root, load_params(narrow.root / "params.yaml")) == OTHERS
    narrow.set(sources={"web": {"glob": ["data/raw/*.jsonl", "data/raw/*.csv"]}})
    shards = find_documents(narrow.root, load_params(narrow.root / "params.yaml"))
    assert {Path(shard.name).suffix for shard in shards} == {".jsonl"}


def test_nothing_is_said_where_all_files_are_read(project: Project) -> None:
    (project.root / "data/raw/.DS_Store").touch()
    assert "in data/raw" not in project.build().stderr
    project.set(source__glob=["data/raw/a.*", "data/raw/*"], source__sources_strict=True)
    assert "in data/raw" not in project.build().stderr
