"""The files that `tokenmill init` writes exist once: the template has links to those of this repository, a project itself."""

import pytest

from tests.conftest import REPOSITORY

TEMPLATE = REPOSITORY / "tokenmill/project/template"
SHARED = ["params.yaml", "prefect.yaml", "data/README.md"] + [
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("flows", "tasks")
    for path in (REPOSITORY / folder).glob("*.py")
]


@pytest.mark.parametrize("name", SHARED)
def test_a_file_of_the_template_is_that_of_this_repository(name: str) -> None:
    assert (TEMPLATE / name).is_symlink()
    assert (TEMPLATE / name).samefile(REPOSITORY / name)


def test_the_template_has_no_flow_or_task_that_this_repository_lacks() -> None:
    found = {path.relative_to(TEMPLATE).as_posix() for path in TEMPLATE.rglob("*.py")}
    assert found == {name for name in SHARED if name.endswith(".py")}


def test_no_file_of_this_repository_is_a_link_outside_the_template() -> None:
    folders = ("flows", "tasks", "tokenmill", "tests", "core/src", "benchmarks", "data")
    links = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.is_symlink()]
    assert [path for path in links if not path.is_relative_to(TEMPLATE)] == []
