"""Drives the generator of a stage without running its tasks, to find which of them the unit store has already."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.config.params import Params
from tokenmill.corpus.source_shards import find_documents, reads_objects
from tokenmill.corpus.units import UNREAD, Unit, cut
from tokenmill.layout import COUNTS_FILE
from tokenmill.pipeline.memory import divide
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.run_task import stored
from tokenmill.rounds import Stage, Task
from tokenmill.stages.count import count
from tokenmill.stages.encode import encode
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import Done, UnitStore


class Looked(NamedTuple):
    """A task of a stage, and its result in the unit store; None if a build would run it."""

    task: Task[Any]
    done: Done[Any] | None


def project_now(root: Path, params: Params, read_bytes_max: int | None = None) -> Project:
    """The project at `root` as a build would find it. Reads files without a stored digest, the smallest first and at most
    `read_bytes_max` bytes; the digests of further files are UNREAD. Raises CorpusError and ParamsError."""
    memory, digests, source = divide(params.run, reads_objects(params)), Digests(root), params.source
    shards = find_documents(root, params)
    corpus = cut(shards, digests, source.unit_bytes_min, source.unit_bytes_max, memory.own_threads, read_bytes_max)
    return Project(root, params, corpus, memory, digests, UnitStore(root), force=False, recorded=lambda _: {})


def look_at_count(project: Project) -> list[Looked]:
    """The tasks that count units (see `_look`)."""
    return _look("count", lambda some: count(some, (some.root / COUNTS_FILE).parent), project)


def look_at_encode(project: Project) -> list[Looked]:
    """The tasks that encode units with the tokenizer in data/tokenizer (see `_look`)."""
    return _look("encode", encode, project)


def _look(name: str, stage: Callable[[Project], Stage], project: Project) -> list[Looked]:
    """The tasks of the first round that has the stage's name, each with its stored result.

    Left out are units whose key is unknown: those with a file that was not read, and those for which a task of an earlier round
    would have to run. Raises what the stage raises.
    """
    units: Sequence[Unit] = [unit for unit in project.units if all(piece.digest != UNREAD for piece in unit.pieces)]
    while True:
        rounds = stage(replace(project, corpus=replace(project.corpus, units=list(units))))
        round, looked = _run_until(name, rounds, project.store)
        if round == name:
            return looked
        finished = {unit.task.name for unit in looked if unit.done is not None}
        units = [unit for unit in units if unit.name in finished]


def _run_until(name: str, rounds: Stage, store: UnitStore) -> tuple[str, list[Looked]]:
    """Sends stored results to a stage until the round of this name, or until an earlier round that has to run tasks. Gives the
    name and the tasks of that round. A stage has no effects before then."""
    try:
        round = next(rounds)
        while True:
            found = [Looked(task, stored(store, task.key, round.facts, round.is_acceptable)) for task in round.tasks]
            results = [one.done for one in found if one.done is not None]
            if round.name == name or len(results) < len(found):
                return round.name, found
            round = rounds.send(results)
    finally:
        rounds.close()
