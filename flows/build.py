"""The build as a Prefect flow: every stage maps a task over its units, in threads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows import server
from flows.recipe import run_stages
from tokenmill import _core
from tokenmill.build import EXIT_INTERRUPTED, EXIT_TERMINATED, alone, start
from tokenmill.console import StageSummary, rows, say
from tokenmill.cutting import Unit
from tokenmill.errors import PassingError
from tokenmill.layout import PARAMS_FILE
from tokenmill.retries import DELAYS_S
from tokenmill.units import n_workers, results

T = TypeVar("T")


def threads(workers: int) -> TaskRunner[PrefectFuture[Any]]:
    """Prefect's thread pool, bounded: without a number it starts a thread a task."""
    return cast(TaskRunner[PrefectFuture[Any]], ThreadPoolTaskRunner(max_workers=workers))


def _name() -> str:
    asked = flow_run.parameters
    what = [f"only {asked['only']}"] if asked.get("only") else []
    what += [word for word in ("force", "rehash") if asked.get(word)]
    return f"build {Path(asked.get('project', '.')).resolve().name}" + (f" ({', '.join(what)})" if what else "")


@flow(
    name="tokenmill-build",
    flow_run_name=_name,
    task_runner=threads(n_workers(None)),
    persist_result=False,
    validate_parameters=True,
)
def build(project: str = ".", only: str | None = None, force: bool = False, rehash: bool = False) -> list[StageSummary]:
    """count → train-vocab → encode → validate of the project in the folder `project`; the result is what each stage did, and
    the artifact tokenmill-build shows it as a table.

    `only`: one stage; `force`: also what is up to date or finished; `rehash`: trust no file's times. Raises TokenmillError.
    """
    root = Path(project)
    server.remember_embedded(root)
    try:
        with alone(root, wait=False):
            summaries = run_stages(start(root / PARAMS_FILE, only, force, rehash, map_tasks))
        _show(summaries, root)
        return summaries
    except KeyboardInterrupt:
        server.leave_in_time(EXIT_INTERRUPTED)
        raise
    except TerminationSignal:
        server.leave_in_time(EXIT_TERMINATED)
        raise


def map_tasks(stage: str, do: Callable[[Unit], T], units: Sequence[Unit]) -> list[T]:
    """Runs `do` as one task a unit of the current flow run (see tokenmill.units.RunUnits).

    Prefect's cache stays off: it does not notice files that are gone.
    """

    @task(
        name=stage,
        task_run_name=f"{stage} {{unit.name}}",
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(DELAYS_S),
        retry_delay_seconds=list(DELAYS_S),
        retry_condition_fn=may_pass,
    )
    def one(unit: Unit) -> T:
        return do(unit)

    all_done = False
    try:
        futures = one.map(units)
        wait(futures)
        all_done = True
    finally:
        if not all_done:  # Ctrl-C or a termination signal: the threads are in the core
            _core.interrupt(True)
    return results(stage, units, futures)


def may_pass(_task: object, _run: object, state: State[Any]) -> bool:
    """Whether a task that failed is to be tried again."""
    return isinstance(state.result(raise_on_failure=False), PassingError)


def _show(summaries: Sequence[StageSummary], root: Path) -> None:
    """The table as an artifact; a server that cannot take it does not fail a build that is done."""
    try:
        create_table_artifact(rows(summaries), "tokenmill-build", f"What each stage of {root.resolve()} did")
    except httpx.HTTPError as error:
        say(f"Prefect's server did not take the table of the build: {error}")
