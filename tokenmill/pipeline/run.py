"""Drives a stage: runs the tasks of each round that it yields, and sends their results back until it returns."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic

import msgspec

from tokenmill.console import progress, say, say_more
from tokenmill.corpus.units import Unit
from tokenmill.pipeline.failures import all_done
from tokenmill.pipeline.pools import Pool
from tokenmill.pipeline.run_task import TaskRunner, advance_nothing
from tokenmill.rounds import F, Outcome, Round, Rounds, T, Task
from tokenmill.storage.unit_store import Done, UnitStore

CauseOf = Callable[[str, Unit], str | None]
"""Says why a unit is worked on again, by stage and unit; None if the cause is unknown."""


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

    def run(self, rounds: Rounds[T], pool: Pool) -> T:
        """Runs the tasks of all rounds of a stage, or of a part of one, and gives what the generator returns. Raises what it raises
        and the errors of tasks (see `all_done`)."""
        step: Callable[[], Round[Any]] = partial(next, rounds)
        try:
            while True:
                try:
                    round = step()
                except StopIteration as end:
                    returned: T = end.value
                    return returned
                try:
                    with self._looked_up(round) as found:
                        temporary = self.run(found.prepared(), pool)
                        outcomes = pool.map(found.todo, found.runner) if found.todo else []
                        step = partial(rounds.send, found.results(outcomes))
                        self.store.remove(temporary)
                except Exception as error:  # noqa: BLE001 — the stage raises it again, or knows what to do about it
                    step = partial(rounds.throw, error)
        finally:
            rounds.close()  # Ctrl-C ends the `with` blocks of the stage, too

    @contextmanager
    def _looked_up(self, round: Round[F]) -> Iterator["_LookedUp[F]"]:
        """Yields what the unit store has of a round, and shows the progress of the others while the block runs them."""
        name = round.name
        runner = TaskRunner(
            name,
            round.facts,
            round.is_acceptable,
            self.root,
            self.store,
            self.force,
            self.unit_timeout_s,
            advance_nothing,
        )
        looked_up = _LookedUp(round, runner)
        n_bytes, n_bytes_todo = (sum(task.n_bytes for task in tasks) for tasks in (round.tasks, looked_up.todo))
        with progress(name, n_bytes, "bytes") if n_bytes else nullcontext() as shown:
            if shown is not None:
                shown.skip(n_bytes - n_bytes_todo)
                looked_up.runner = msgspec.structs.replace(runner, advance=shown.add)
            if looked_up.done:
                say(
                    f"{name}: {len(looked_up.todo):,} of {len(round.tasks):,} units to do; the others are finished already"
                )
            if self.cause_of is not None and not self.force:
                for task in looked_up.todo:
                    if task.unit is not None and (cause := self.cause_of(name, task.unit)):
                        say_more(f"{name} {task.name}: to do: {cause}")
            try:
                yield looked_up
            finally:
                self.store.flush()
        self.done_bytes[name] += n_bytes_todo


class _LookedUp(Generic[F]):
    """A round, with the stored results of its tasks and the tasks that have to run. Of tasks with one key, the first runs."""

    def __init__(self, round: Round[F], runner: TaskRunner[F]) -> None:
        self.runner, self._round = runner, round
        self.done: dict[str, Done[F]] = {}
        todo: dict[str, Task[F]] = {}
        for task in round.tasks:
            if task.key not in self.done and task.key not in todo:
                if found := runner.stored(task):
                    self.done[task.key] = found
                else:
                    todo[task.key] = task
        self.todo = list(todo.values())

    def prepared(self) -> Rounds[Sequence[str]]:
        """Runs what the tasks of `todo` need (see Round)."""
        if self.todo and self._round.prepare is not None:
            return (yield from self._round.prepare({task.key for task in self.todo}))
        return []

    def results(self, outcomes: Sequence[Outcome[F]]) -> list[Done[F]]:
        """The results of all tasks of the round. `outcomes`: those of `todo`. Raises the errors among them."""
        made = all_done(self._round.name, self.todo, outcomes)
        self.done |= {task.key: one for task, one in zip(self.todo, made, strict=True)}
        return [self.done[task.key] for task in self._round.tasks]
