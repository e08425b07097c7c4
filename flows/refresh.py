"""The refresh as a Prefect flow, which deployments run on a schedule."""

from pathlib import Path
from typing import Any

from prefect import State, flow
from prefect.states import Completed

from tokenmill.build import alone, start
from tokenmill.console import say
from tokenmill.errors import BusyError
from tokenmill.flows.build import map_tasks, run_and_note, threads
from tokenmill.flows.notify import notify
from tokenmill.flows.watch import end_what_was_cancelled, watched
from tokenmill.layout import PARAMS_FILE
from tokenmill.params import load_params
from tokenmill.tasks.refresh import refresh as refresh_data
from tokenmill.units import n_workers


def tell_of_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Prefect calls it when a run failed or crashed."""
    root = Path(flow_run.parameters.get("project", "."))
    notify(
        load_params(root / PARAMS_FILE).refresh.notify, f"tokenmill refresh {state.name.lower()}", str(state.message)
    )


@flow(
    name="tokenmill-refresh",
    flow_run_name="refresh",
    task_runner=threads(n_workers(None)),
    persist_result=False,
    on_failure=[tell_of_failure],
    on_crashed=[tell_of_failure],
    on_cancellation=[end_what_was_cancelled],
)
def refresh(project: str = ".") -> State[None]:
    """Refreshes the project in the folder `project` (see tasks.refresh); the state's message says what was done.

    A build or refresh at work is not disturbed: the state is Skipped then.
    """
    root = Path(project).absolute()
    return watched(lambda: _refresh(root))


def _refresh(root: Path) -> State[None]:
    try:
        with alone(root, wait=False):
            build = start(root / PARAMS_FILE, None, False, False, map_tasks)
            done = refresh_data(build, run_and_note)
    except BusyError as busy:
        say(f"refresh: skipped: {busy.holder}")
        return Completed(name="Skipped", message=busy.holder)
    if done.past:
        notify(build.params.refresh.notify, "tokenmill refresh: drift", "; ".join(done.past))
    say(f"refresh: {done}")
    return Completed(message=str(done))
