"""Each example of `tokenmill init` builds as it is, and holds what its name says."""

from pathlib import Path

import pytest

import tokenmill
from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill.project.examples import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_builds_as_it_is(tmp_path: Path, name: str) -> None:
    made = cli(Project(tmp_path), "init", "mine", "--example", name)
    assert made.returncode == 0, made.stderr
    assert "cp FILES" not in made.stdout
    project = Project(tmp_path / "mine")
    assert cli(project, "doctor").returncode == 0
    project.set(run__engine="inline")
    project.build()
    dataset = tokenmill.open(project.root / "data/tokens", "train" if name == "english" else None)
    assert len(dataset) > 10
    if name == "chat":
        learned = {int(label) for label in dataset.labels(0)}
        assert -100 in learned
        assert len(learned) > 10


def test_an_example_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    said = cli(Project(tmp_path), "init", "mine", "--example", "chats")
    assert said.returncode == 2
    assert "--example: found 'chats'; allowed: english, code, chat. Did you mean chat?" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_documents_that_are_there_are_kept(tmp_path: Path) -> None:
    mine = tmp_path / "mine/data/raw/chat.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own")
    said = cli(Project(tmp_path), "init", "mine", "--example", "chat")
    assert said.returncode == 2
    assert "already has data/raw/chat.jsonl; nothing was written" in said.stderr
    assert mine.read_text() == "my own"
