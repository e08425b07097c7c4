"""Runs the units of a stage as Prefect tasks: the project's own task is mapped over them in the flow's task runner."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from prefect import State, Task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.futures import wait
from prefect.states import Completed

from tokenmill import _core
from tokenmill.corpus.units import Unit
from tokenmill.pipeline.executor import F, RunUnits, results
from tokenmill.storage.unit_store import Done

Do = Callable[[Unit], Done[Any]]
"""Runs one unit and returns it as it is in the unit store."""

# Prefect's own cache stays off, because it does not notice missing files.
STAGE_TASK: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}
"""Options of a task of a stage. Units need no retries of Prefect's, because UnitRunner tries them again."""


def finished(stage: str, unit: Unit, do: Do) -> State[Done[Any]]:
    """Runs the unit. The state is Completed, or Quarantined if something was left out. Its message says what was done."""
    start_s = time.monotonic()
    done = do(unit)
    left = f", {done.facts.n_left_out:,} left out" if done.facts.n_left_out else ""
    words = f"{stage} {unit.name}: {done.facts}{left}, {time.monotonic() - start_s:.1f} s"
    return Completed(name="Quarantined" if left else None, message=words, data=done)


def map_units(unit_task: Task[..., Any]) -> RunUnits:
    """Runs units as task runs of `unit_task(unit, do)` in the current flow run (see tokenmill.pipeline.executor.RunUnits).

    Task runs are named after stage and unit.
    """

    def run(stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit]) -> list[Done[F]]:
        all_done = False
        try:
            named = unit_task.with_options(name=stage, task_run_name=f"{stage} {{unit.name}}")
            futures = named.map(list(units), do=unmapped(do))
            wait(futures)
            all_done = True
        finally:
            if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                _core.interrupt(True)
        return results(stage, units, futures)

    return run
