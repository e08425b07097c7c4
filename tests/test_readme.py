"""The README is true: its Python runs, and what it names is there."""

import re
import sys

import pytest

from tests.conftest import REPOSITORY, Project

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(?!# (?:tasks|flows)/)(.*?)```", README, flags=re.DOTALL)  # without files of a project


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_runs_in_a_project_that_was_built(project: Project, block: str) -> None:
    project.build()
    done = project.run(sys.executable, "-c", block)
    assert done.returncode == 0, done.stderr


def test_every_params_key_is_explained() -> None:
    keys = re.findall(r"^  (\w+):", (REPOSITORY / "params.yaml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert keys
    assert [key for key in keys if f"`{key}`" not in README] == []


def test_every_folder_that_is_named_is_there() -> None:
    rooms = re.findall(r"^    (\w+/) ", README, flags=re.MULTILINE)
    assert len(rooms) == 6
    assert [room for room in rooms if not (REPOSITORY / room).is_dir()] == []
