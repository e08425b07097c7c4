"""Variables of the environment that lead git to another repository are named."""

from pathlib import Path

import pytest

from tests.builders.teams import run
from tokenmill.errors import VersionsError
from tokenmill.versioning.git import git


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("own", "other"):
        (tmp_path / name / "below").mkdir(parents=True)
        run(tmp_path / name, "git", "init", "-q")
    return tmp_path / "own", tmp_path / "other"


@pytest.mark.parametrize("below", ["", "below"])
@pytest.mark.parametrize(
    ("name", "value"), [("GIT_DIR", "{other}/.git"), ("GIT_WORK_TREE", "{other}"), ("GIT_DIR", "/nowhere")]
)
def test_a_variable_that_names_another_repository_is_refused(
    repositories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, value: str, below: str
) -> None:
    own, other = repositories
    git(own / below, "status")
    monkeypatch.setenv(name, value.format(other=other))
    with pytest.raises(VersionsError) as raised:
        git(own / below, "status")
    words = str(raised.value)
    assert words.startswith(f"the environment's {name}: ") and str(own) in words and f"`unset {name}`" in words


def test_variables_that_name_the_own_repository_are_taken(
    repositories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = repositories
    for value in (".git", str(own / ".git")):
        monkeypatch.setenv("GIT_DIR", value)
        git(own, "status")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    (own.parent / "none").mkdir()
    monkeypatch.setenv("GIT_WORK_TREE", str(own.parent / "none"))
    git(own.parent / "none", "status")  # as those have it who keep the repository of a folder elsewhere
