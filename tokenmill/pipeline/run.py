"""Drives a stage: runs the tasks of each round that it yields, and sends their results back until it returns."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.console import progress, say, say_more
from tokenmill.corpus.units import Unit
from tokenmill.pipeline.failures import all_done
from tokenmill.pipeline.pools import Pool
from tokenmill.pipeline.run_task import TaskRunner, advance_nothing
from tokenmill.rounds import F, Round, Rounds, Stage, T, Task
from tokenmill.storage.unit_store import Done, UnitStore
from tokenmill.summary import StageSummary

CauseOf = Callable[[str, Unit], str]
"""Says why a unit is worked on again, by stage and unit."""


@dataclass(frozen=True)
class Driver:
    """How a build runs its stages. `force`: whether to run tasks whose results are stored. `unit_timeout_s`: the time limit of a
    task that reads documents. `cause_of`: None if nobody asks for causes."""

    root: Path
    store: UnitStore
    force: bool = False
    unit_timeout_s: float | None = None
    cause_of: CauseOf | None = None
    done_bytes: Counter[str] = field(default_factory=Counter, init=False)
    """The file bytes of the tasks that ran, by the name of their round."""

    def run(self, stage: Stage, pool: Pool) -> StageSummary:
        """Runs a stage to its end, and gives its summary. Raises what the stage raises and the errors of tasks (see `all_done`)."""
        start_s = time.monotonic()
        summary = self.drive(stage, pool)
        done_mb = None if summary.file_mb is None else self.done_bytes[summary.stage] / 1e6
        return replace(summary, done_mb=done_mb, seconds=time.monotonic() - start_s)

    def drive(self, rounds: Rounds[T], pool: Pool) -> T:
        """Runs the tasks of all rounds, and gives what the generator returns. Raises as `run` does."""
        results: Any = None
        try:
            while True:
                try:
                    round = rounds.send(results)
                except StopIteration as end:
                    returned: T = end.value
                    return returned
                results = self._finish(round, pool)
        finally:
            rounds.close()  # an error of a task ends the `with` blocks of the stage, too

    def _finish(self, round: Round[F], pool: Pool) -> list[Done[F]]:
        """The results of all tasks of a round, from the unit store as far as it has them."""
        name, tasks = round.name, round.tasks
        force = self.force and round.is_forced
        runner = TaskRunner(
            name,
            round.facts,
            round.is_acceptable,
            self.root,
            self.store,
            force,
            self.unit_timeout_s,
            advance_nothing,
        )
        done: dict[str, Done[F]] = {}
        todo: dict[str, Task[F]] = {}
        for task in tasks:
            if task.key not in done and task.key not in todo:
                if found := runner.stored(task):
                    done[task.key] = found
                else:
                    todo[task.key] = task
        n_bytes, n_bytes_todo = (sum(task.n_bytes for task in some) for some in (tasks, todo.values()))
        with progress(name, n_bytes, "bytes") if n_bytes else nullcontext() as shown:
            if shown is not None:
                shown.skip(n_bytes - n_bytes_todo)
                runner = msgspec.structs.replace(runner, advance=shown.add)
            if done:
                say(f"{name}: {len(todo):,} of {len(tasks):,} units to do; the others are finished already")
            self._say_causes(name, list(todo.values()))
            try:
                outcomes = pool.map(list(todo.values()), runner) if todo else []
            finally:
                self.store.flush()
            done |= zip(todo, all_done(name, list(todo.values()), outcomes), strict=True)
        self.done_bytes[name] += n_bytes_todo
        return [done[task.key] for task in tasks]

    def _say_causes(self, round: str, tasks: Sequence[Task[Any]]) -> None:
        for task in tasks if self.cause_of is not None and not self.force else ():
            if task.unit is not None:
                assert self.cause_of is not None
                say_more(f"{round} {task.name}: to do: {self.cause_of(round, task.unit)}")
