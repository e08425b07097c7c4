"""The files that `tokenmill init` writes are the same as in this repository, which is itself a project."""

import pytest

from tests.conftest import REPOSITORY

TEMPLATE = REPOSITORY / "tokenmill/project/template"
COPIES = ["params.yaml", "prefect.yaml", "data/README.md"] + [
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("flows", "tasks")
    for path in (REPOSITORY / folder).glob("*.py")
]


@pytest.mark.parametrize("name", COPIES)
def test_a_file_of_the_template_is_that_of_this_repository(name: str) -> None:
    assert (TEMPLATE / name).read_bytes() == (REPOSITORY / name).read_bytes()


def test_the_template_has_no_flow_or_task_that_this_repository_lacks() -> None:
    found = {path.relative_to(TEMPLATE).as_posix() for path in TEMPLATE.rglob("*.py")}
    assert found == {name for name in COPIES if name.endswith(".py")}


def test_no_file_of_this_repository_is_a_link() -> None:
    folders = ("flows", "tasks", "tokenmill", "tests", "core/src", "benchmarks", "data")
    assert [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.is_symlink()] == []
