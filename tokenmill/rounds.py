"""What a stage is made of: a generator that yields rounds of tasks and is sent their results."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tokenmill.console import Advance
from tokenmill.corpus.units import Unit
from tokenmill.errors import TokenmillError
from tokenmill.storage.file_facts import Signature, check_unchanged
from tokenmill.storage.unit_store import Done
from tokenmill.storage.urls import StoredObject
from tokenmill.summary import StageSummary


class Facts(msgspec.Struct, frozen=True):
    """What a task reports of the files that it made. As a string, it is a short summary."""

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the task's quarantine."""
        return 0


F = TypeVar("F", bound=Facts)
T = TypeVar("T")

Outcome = Done[F] | TokenmillError
"""The result of a task in the unit store, or the error that stopped it."""

Seen = Mapping[Path | StoredObject, Signature]
"""The signatures of files when the build began."""


class Task(msgspec.Struct, Generic[F], frozen=True, kw_only=True):
    """One piece of a stage's work. It can be pickled, so any thread, process or machine that sees the project's folder can run it.

    `name`: as people see it. `key`: the digest of everything that decides its files, under which the unit store keeps them. `unit`:
    the documents that it reads; None if it reads other tasks' files alone. `seen`: the signatures of the unit's files.
    """

    name: str
    key: str
    unit: Unit | None = None
    seen: Seen = {}

    @property
    def n_bytes(self) -> int:
        """The size of the documents that it reads, in file bytes."""
        return 0 if self.unit is None else self.unit.n_bytes

    def run(self, folder: Path, advance: Advance) -> F:
        """Makes the task's files in an empty folder, and returns its facts. `advance`: takes the file bytes and tokens that are
        done. Raises TokenmillError."""
        raise NotImplementedError

    def check_unchanged(self) -> None:
        """Raises CorpusError if a file of documents changed since the build began, because its bytes do not belong to the key."""
        for piece in () if self.unit is None else self.unit.pieces:
            check_unchanged(piece.shard.path, self.seen[piece.shard.path])


def is_always_acceptable(_facts: Any) -> bool:
    """Accepts every stored result."""
    return True


Prepare = Callable[[Collection[str]], Generator[Any, Any, Sequence[str]]]
"""From the keys of tasks to `Rounds` (see Round.prepare)."""


class Round(NamedTuple, Generic[F]):
    """Tasks that can run at the same time. Tasks with the same key run once.

    `facts`: the type of their facts. `is_acceptable`: whether a stored result may be used; otherwise the task runs again.
    `prepare`: is given the keys of the tasks that have to run, and runs what they need; it returns the keys of the results that
    are deleted after the round. None: they need nothing.
    """

    name: str
    tasks: Sequence[Task[F]]
    facts: type[F]
    is_acceptable: Callable[[F], bool] = is_always_acceptable
    prepare: Prepare | None = None


Stage = Generator[Round[Any], list[Done[Any]], StageSummary]
"""A stage of the build. It knows neither threads nor Prefect nor the unit store: whoever drives it runs the tasks."""

Rounds = Generator[Round[Any], list[Done[Any]], T]
"""A part of a stage that yields rounds and returns a value: a stage calls it by `yield from`."""


def do(round: Round[F]) -> Rounds[list[Done[F]]]:
    """Yields the round, and returns the results of its tasks in order. `done = yield from do(Round(...))` knows their type."""
    return (yield round)
