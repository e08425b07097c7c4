"""Runs the units of a stage as Prefect tasks: the project's own task is mapped over batches of them in the flow's task runner."""

import inspect
import time
from collections.abc import Sequence
from typing import Any

from prefect import State, Task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.futures import wait
from prefect.states import Completed, Failed

from tokenmill import _core
from tokenmill.corpus.units import Unit
from tokenmill.errors import TokenmillError
from tokenmill.orchestration.engines import Engine
from tokenmill.pipeline.batches import Batch, batches_of
from tokenmill.pipeline.executor import RunUnits, results
from tokenmill.pipeline.unit_work import F, Outcome, UnitWork
from tokenmill.storage.unit_store import Done

Do = UnitWork[Any]
"""Runs the units of a batch and gives the outcome of each."""

# Prefect's own cache stays off, because it does not notice missing files.
STAGE_TASK: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}
"""Options of a stage's task. Prefect need not retry, because UnitWork retries units."""


def finished(stage: str, batch: Batch, do: Do) -> State[list[Outcome[Any]]]:
    """Runs the units of a batch; a failing unit does not stop the others. Gives the state Completed, Quarantined if something was
    left out, or Failed if a unit failed, with a message."""
    start_s = time.monotonic()
    outcomes = do.outcomes(batch.units)
    failed = [one for one in outcomes if isinstance(one, TokenmillError)]
    if failed:
        more = f" ({len(failed)} of {len(outcomes)} units failed)" if len(outcomes) > 1 else ""
        return Failed(message=f"{failed[0]}{more}", data=outcomes)
    done = [one for one in outcomes if not isinstance(one, TokenmillError)]
    n_left_out = sum(one.facts.n_left_out for one in done)
    left = f", {n_left_out:,} left out" if n_left_out else ""
    what = str(done[0].facts) if len(done) == 1 else f"{len(done):,} units"
    words = f"{stage} {batch.name}: {what}{left}, {time.monotonic() - start_s:.1f} s"
    return Completed(name="Quarantined" if left else None, message=words, data=outcomes)


def map_units(unit_task: Task[..., Any]) -> RunUnits:
    """Runs units as task runs of `unit_task(batch, do)` in the current flow run (see tokenmill.pipeline.executor.RunUnits).

    Task runs are named after stage and batch: a batch is one unit, if the stage has no more than `tasks_max` (batches.py).
    """

    def run(stage: str, work: UnitWork[F], units: Sequence[Unit]) -> list[Done[F]]:
        engine = Engine.current()
        batches = batches_of(units, engine.n_batches(len(units)))
        batch = next(iter(inspect.signature(unit_task.fn).parameters))  # the project's own task names it
        named = unit_task.with_options(name=stage, task_run_name=f"{stage} {{{batch}.name}}")
        all_done = False
        try:
            with engine.errors():
                if engine.is_cluster:
                    works = [work.for_worker(one.units, engine.threads, engine.sign) for one in batches]
                    futures = named.map(batches, do=works)
                    engine.show(futures, batches, work.advance)
                else:
                    futures = named.map(batches, do=unmapped(work))
                wait(futures)
                all_done = True
                outcomes = []
                for future, one in zip(futures, batches, strict=True):
                    with engine.errors(f"{stage} {one.name}"):
                        outcomes += _outcomes(future)
        finally:
            if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                _core.interrupt(True)
        in_order = [unit for one in batches for unit in one.units]
        assert in_order == list(units)
        return results(stage, units, outcomes)

    return run


def _outcomes(future: Any) -> list[Outcome[Any]]:
    """The outcomes of a task's units. Raises the error that ended the task, if it gave none."""
    found = future.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    outcomes: list[Outcome[Any]] = found
    return outcomes
