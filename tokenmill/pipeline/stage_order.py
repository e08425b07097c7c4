"""Orders the stages of a project's dvc.yaml so that each comes after those whose outputs it reads."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from tokenmill.layout import STAGES
from tokenmill_reader.regular_files import read


def stages_of(root: Path) -> dict[str, list[str]]:
    """For each stage, the stages that must run before it: those whose outputs it reads, directly or through others. The stages
    come in an order in which they can run, and otherwise as in dvc.yaml.

    Without a readable dvc.yaml, tokenmill's four stages: DVC reports better what is wrong with the file.
    """
    from ruamel.yaml.error import YAMLError

    try:
        stages = _stages(root)
        made = {name: [*_paths(stage, "outs", "metrics", "plots")] for name, stage in stages.items()}
        read = {name: [*_paths(stage, "deps")] for name, stage in stages.items()}
        reads = {
            name: [other for other in stages if other != name and _meet(read[name], made[other])] for name in stages
        }
        sorter = TopologicalSorter(reads)
        sorter.prepare()
    except (OSError, UnicodeDecodeError, YAMLError, KeyError, TypeError, AttributeError, ValueError, CycleError):
        return {name: list(STAGES[:i]) for i, name in enumerate(STAGES)}
    before: dict[str, list[str]] = {}
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=list(stages).index)
        name = ready.pop(0)
        above = {name for other in reads[name] for name in (other, *before[other])}
        before[name] = [other for other in before if other in above]
        sorter.done(name)
    return before


def inputs_of(root: Path) -> list[Path]:
    """The files and folders that stages read and no stage makes. Without a readable dvc.yaml there are none."""
    from ruamel.yaml.error import YAMLError

    try:
        stages = _stages(root).values()
        outputs = [path for stage in stages for path in _paths(stage, "outs", "metrics", "plots")]
        read = {path for stage in stages for path in _paths(stage, "deps")}
    except (OSError, UnicodeDecodeError, YAMLError, KeyError, TypeError, AttributeError):
        return []
    return sorted(root / path for path in read if not _meet([path], outputs))


def _stages(root: Path) -> dict[str, Any]:
    from tokenmill.config import bounded_yaml

    return dict(bounded_yaml.load_of_dvc(read(root / "dvc.yaml").decode())["stages"])


def _paths(stage: Any, *fields: str) -> Iterator[PurePosixPath]:
    """The paths in these fields of a stage. A path with settings is a mapping with the path as its key."""
    for field in fields:
        for one in stage.get(field) or ():
            yield PurePosixPath(one if isinstance(one, str) else next(iter(one)))


def _meet(some: list[PurePosixPath], others: list[PurePosixPath]) -> bool:
    """Whether a path of one list equals, contains, or lies inside a path of the other list."""
    return any(one.is_relative_to(other) or other.is_relative_to(one) for one in some for other in others)
