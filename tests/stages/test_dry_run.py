"""A dry run finds the finished tasks of a stage by the stage's own generator, and makes nothing."""

import os
from pathlib import Path

from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.stages.dry_run import Looked, look_at_count, look_at_encode, project_now


def names(found: list[Looked]) -> dict[str, bool]:
    """Whether each task is finished, by its name."""
    return {one.task.name: one.done is not None for one in found}


def files_below(folder: Path) -> dict[str, int]:
    """Each file with its mtime."""
    paths = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    return {str(path): path.stat().st_mtime_ns for path in paths}


def test_a_dry_run_finds_what_is_finished_and_writes_nothing(project: Project) -> None:
    project.set(source__unit_bytes_min=0)
    project.build()
    project.write("c.jsonl", ["a new one"])
    now = project_now(project.root, load_params(project.root / "params.yaml"))
    before = files_below(project.root)
    expected = {"data/raw/a.jsonl": True, "data/raw/b.jsonl": True, "data/raw/c.jsonl": False}
    assert names(look_at_count(now)) == expected
    assert names(look_at_encode(now)) == expected
    assert files_below(project.root) == before
    assert {path.name for path in (project.root / ".tokenmill").glob("count-*")} == set()


def test_units_that_no_build_compared_with_source_drop_have_no_key_and_the_others_are_found(project: Project) -> None:
    project.set(source__unit_bytes_min=0)
    project.set_drop("drop.csv")
    (project.root / "drop.csv").write_text("id,reason\na.jsonl-1,takedown\n")
    project.build()
    project.write("c.jsonl", ["a new one"])
    now = project_now(project.root, load_params(project.root / "params.yaml"))
    expected = {"data/raw/a.jsonl": True, "data/raw/b.jsonl": True}
    assert names(look_at_count(now)) == expected
    assert names(look_at_encode(now)) == expected


def test_files_beyond_the_bytes_to_read_are_unread(project: Project) -> None:
    params = load_params(project.root / "params.yaml")
    assert look_at_count(project_now(project.root, params, read_bytes_max=0)) == []
    assert names(look_at_count(project_now(project.root, params))) == {
        "data/raw/a.jsonl": False,
        "data/raw/b.jsonl": False,
    }
