"""Runs the tasks of a round as Prefect's task runs: the project's own `@task` is mapped over batches of them."""

import inspect
import time
from collections.abc import Sequence
from typing import Any

from prefect import State
from prefect import Task as PrefectTask
from prefect.cache_policies import NO_CACHE
from prefect.futures import wait
from prefect.states import Completed, Failed

from tokenmill import _core
from tokenmill.errors import TokenmillError
from tokenmill.orchestration.engines import TaskEngine
from tokenmill.pipeline.run_task import TaskRunner
from tokenmill.pipeline.task_batches import TaskBatch, groups_of
from tokenmill.rounds import F, Outcome, Task

# Prefect's own cache stays off, because it does not notice missing files.
STAGE_TASK: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}
"""Options of a stage's task. Prefect need not retry, because TaskRunner does."""


def run_batch(batch: TaskBatch) -> State[list[Outcome[Any]]]:
    """Runs the tasks of a batch; a failing one does not stop the others. Gives the state Completed, Quarantined if something was
    left out, or Failed if a task failed, with a message."""
    start_s = time.monotonic()
    outcomes = batch.runner.outcomes(batch.tasks)
    failed = [outcome for outcome in outcomes if isinstance(outcome, TokenmillError)]
    if failed:
        more = f" ({len(failed)} of {len(outcomes)} units failed)" if len(outcomes) > 1 else ""
        return Failed(message=f"{failed[0]}{more}", data=outcomes)
    done = [outcome for outcome in outcomes if not isinstance(outcome, TokenmillError)]
    n_left_out = sum(result.facts.n_left_out for result in done)
    left = f", {n_left_out:,} left out" if n_left_out else ""
    what = str(done[0].facts) if len(done) == 1 else f"{len(done):,} units"
    words = f"{batch.runner.round} {batch.name}: {what}{left}, {time.monotonic() - start_s:.1f} s"
    return Completed(name="Quarantined" if left else None, message=words, data=outcomes)


class OneTask:
    """A pool that runs its tasks in one task run of `task(batch)`, in this process and thread. Training has all of its threads."""

    def __init__(self, task: PrefectTask[[TaskBatch], Any]) -> None:
        self._task = task

    def map(self, tasks: Sequence[Task[F]], runner: TaskRunner[F]) -> list[Outcome[F]]:
        """Runs all tasks (see Pool)."""
        batch = TaskBatch(tasks, runner)
        return _outcomes(_named(self._task, runner.round)(batch, return_state=True))


class PrefectTasks:
    """A pool (see tokenmill.pipeline.pools) that runs tasks as task runs of `task(batch)` in the current flow run.

    Task runs are named after round and batch. A batch is one task, if the round has no more than `tasks_max` (batches.py).
    """

    def __init__(self, task: PrefectTask[[TaskBatch], Any]) -> None:
        self._task = task

    def map(self, tasks: Sequence[Task[F]], runner: TaskRunner[F]) -> list[Outcome[F]]:
        """Runs all tasks (see Pool)."""
        engine = TaskEngine.current()
        advance = runner.advance
        if engine.is_cluster:
            runner = runner.for_worker(engine.threads, engine.sign)
        batches = [TaskBatch(group, runner) for group in groups_of(tasks, engine.n_batches(len(tasks)))]
        all_done = False
        try:
            with engine.errors():
                futures = _named(self._task, runner.round).map(batches)
                if engine.is_cluster:
                    engine.show(futures, batches, advance)
                wait(futures)
                all_done = True
                outcomes: list[Outcome[F]] = []
                for future, batch in zip(futures, batches, strict=True):
                    with engine.errors(f"{runner.round} {batch.name}"):
                        outcomes += _outcomes(future)
        finally:
            if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                _core.interrupt(True)
        return outcomes


def _named(task: PrefectTask[[TaskBatch], Any], round: str) -> PrefectTask[[TaskBatch], Any]:
    """The task with task runs that are named after the round and the batch."""
    parameter = next(iter(inspect.signature(task.fn).parameters))  # the project's own task names it
    return task.with_options(name=round, task_run_name=f"{round} {{{parameter}.name}}")


def _outcomes(future: Any) -> list[Outcome[Any]]:
    """The outcomes of a batch, from its future or state. Raises the error that ended its task run, if it gave none."""
    found = future.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    outcomes: list[Outcome[Any]] = found
    return outcomes
