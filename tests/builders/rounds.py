"""Tasks and rounds, and a driver for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenmill.console import Advance
from tokenmill.pipeline.pools import Threads
from tokenmill.pipeline.run import Driver
from tokenmill.rounds import Rounds, T, Task
from tokenmill.stages.count_sums import SumFacts
from tokenmill.storage.unit_store import UnitStore


class CallTask(Task[SumFacts], frozen=True, kw_only=True):
    """A task that calls a function with itself, which does anything."""

    call: Callable[["CallTask"], Any] = lambda task: None

    def run(self, folder: Path, advance: Advance) -> SumFacts:
        self.call(self)
        return SumFacts(1)


def driven(rounds: Rounds[T], root: Path) -> T:
    """What rounds return, with the results of their tasks in a unit store below `root`."""
    return Driver(root, UnitStore(root)).run(rounds, Threads(1))
