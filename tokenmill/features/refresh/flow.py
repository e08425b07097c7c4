"""What a project's flow of a refresh calls."""

from functools import partial
from pathlib import Path
from typing import Any

from prefect import State
from prefect.states import Completed

from tokenmill.config.load_params import load_params
from tokenmill.console import say
from tokenmill.errors import BusyError, Terminated, TokenmillError
from tokenmill.features.refresh.notices import Notice
from tokenmill.features.refresh.notify import notify
from tokenmill.features.refresh.refresh import refresh, skipped
from tokenmill.layout import PARAMS_FILE
from tokenmill.orchestration.flow_runs import Stages, run_stages
from tokenmill.orchestration.watch import watched
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.start import start


def run_refresh(stages: Stages, project: str) -> State[Any]:
    """Refreshes the project in the folder `project`. The state's message says what was done, and its data are what
    `tokenmill refresh --json` prints.

    If a build or refresh is already running, nothing is done and the state is Skipped.
    """
    root = Path(project).absolute()
    with watched() as work:
        try:
            with alone(root, wait=False):
                build = start(root / PARAMS_FILE, None, False, False)
                done = refresh(build, partial(run_stages, stages))
            notify(root, build.params.refresh.notify, Notice.of_end(root, done.past, str(done)))
            say(f"refresh: {done}")
            work.result = Completed(message=str(done), data=done.as_json())
        except BusyError as busy:
            say(f"refresh: skipped: {busy.holder}")
            work.result = Completed(name="Skipped", message=busy.holder, data=skipped(busy.holder))
    state: State[Any] = work.result
    return state


def tell_of_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Notifies refresh.notify. Prefect calls this when a refresh failed or crashed."""
    root = Path(flow_run.parameters.get("project", "."))
    error, how, reason = state.result(raise_on_failure=False), state.name.lower(), None
    if state.is_crashed() and not isinstance(error, TokenmillError | OSError):
        error, reason = Terminated(), state.message
    notify(root, load_params(root / PARAMS_FILE).refresh.notify, Notice.of_failure(root, error, how, reason))
