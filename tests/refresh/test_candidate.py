"""The candidate of a refresh is the tokenizer that a build would train on the same documents with the same params.yaml."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.teams import cli
from tests.conftest import Project, new_project
from tokenmill import Tokenizer
from tokenmill.features.refresh.refresh import CANDIDATE_DIRECTORY, train_candidate
from tokenmill.pipeline.start import start


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose tokenizer was trained with none of the options."""
    project: Project = new_project.__wrapped__(tmp_path_factory.mktemp("candidate"))("project")  # type: ignore[attr-defined]
    project.write("c.jsonl", [" ".join(f"{i:x}" for i in range(60_000))])
    train(project)
    return project


def train(project: Project) -> dict[str, bytes]:
    """What a build trains, by name."""
    for stage in ("count", "train-vocab"):
        done = cli(project, "build", "--only", stage)
        assert done.returncode == 0, done.stderr
    return files(project.root / "data/tokenizer")


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def extend(project: Project) -> dict[str, Any]:
    """Adds tokens to the project's own tokenizer."""
    shutil.copytree(project.root / "data/tokenizer", project.root / "old")
    old = {"path": "old", "digest": Tokenizer.load(project.root / "old").digest, "old_glob": "data/raw/a.jsonl"}
    return {"train_vocab__extend": old, "train_vocab__vocab_size": 276}


@pytest.mark.parametrize(
    "options",
    [
        extend,
        lambda _: {"count__weights": {"data/raw/b.jsonl": "7/2"}},
        lambda _: {"train_vocab__score": "bytes_saved"},
        lambda _: {"train_vocab__vocab_sizes": [260]},
    ],
    ids=["extend", "weights", "score", "vocab_sizes"],
)
def test_a_candidate_is_what_a_build_with_these_options_trains(
    plain: Project, tmp_path: Path, options: Callable[[Project], dict[str, Any]]
) -> None:
    project = Project(tmp_path / "project")
    shutil.copytree(plain.root, project.root, symlinks=True)
    before = files(project.root / "data/tokenizer")
    project.set(**options(project))
    train_candidate(start(project.root / "params.yaml", None, False, False))
    assert files(project.root / "data/tokenizer") == before
    candidate = files(project.root / CANDIDATE_DIRECTORY)
    del candidate["comparison.json"]
    assert candidate == train(project) != before
