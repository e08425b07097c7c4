"""Wraps the stages of every flow run: takes the project lock, watches the run, and publishes its results."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from prefect import State
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run
from prefect.states import Completed

from tokenmill.config.load_params import load_params
from tokenmill.console import say
from tokenmill.errors import BusyError, Terminated, TokenmillError
from tokenmill.layout import PAGE_FILE, PARAMS_FILE
from tokenmill.orchestration.engines import running, threads
from tokenmill.orchestration.notify import notify
from tokenmill.orchestration.server import FAILURES, Server
from tokenmill.orchestration.watch import end_what_was_cancelled, watched
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.memory import n_workers
from tokenmill.pipeline.start import start
from tokenmill.stages.notices import Notice
from tokenmill.stages.refresh import refresh, skipped
from tokenmill.summary import StageSummary, rows

Stages = Callable[[Build], None]
"""Runs a project's stages in order, each of which brings its outputs up to date."""


def build_name() -> str:
    """The name of a build's flow run, which contains the name of the project's folder. Its options are its parameters."""
    return f"build {Path(flow_run.parameters.get('project', '.')).resolve().name}"


FLOW: dict[str, Any] = {
    "task_runner": threads(n_workers(None)),
    "persist_result": False,
    "on_cancellation": [end_what_was_cancelled],
}
"""Options of every flow of a project."""


def tell_of_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Notifies refresh.notify. Prefect calls this when a refresh failed or crashed."""
    root = Path(flow_run.parameters.get("project", "."))
    error, how, reason = state.result(raise_on_failure=False), state.name.lower(), None
    if state.is_crashed() and not isinstance(error, TokenmillError | OSError):
        error, reason = Terminated(), state.message
    notify(root, load_params(root / PARAMS_FILE).refresh.notify, Notice.of_failure(root, error, how, reason))


def run_build(
    stages: Stages, project: str, only: str | None, force: bool, rehash: bool
) -> list[StageSummary] | State[None]:
    """Builds the project in the folder `project` and returns the result of each stage.

    The artifact tokenmill-build shows the results as a table, and tokenmill-report links to the report. The state is Cancelled if
    the run was cancelled on the server. Raises TokenmillError.
    """
    root, server = Path(project), Server.current()
    with watched() as work, alone(root, wait=False, force=force, rehash=rehash):
        build = server.prepared or start(root / PARAMS_FILE, only, force, rehash)
        with running(build):
            stages(build)
            work.result = build.finished()
    done: list[StageSummary] | State[None] = work.result
    if not isinstance(done, State) and not server.is_gone:
        with suppress(*FAILURES):  # they do not fail the finished build
            create_table_artifact(rows(done), "tokenmill-build", f"What each stage of {root.resolve()} did")
            if (page := (root / PAGE_FILE).resolve()).exists():
                create_link_artifact(
                    page.as_uri(), "the report", key="tokenmill-report", description=f"A file of {gethostname()}"
                )
    return done


def run_refresh(stages: Stages, project: str) -> State[Any]:
    """Refreshes the project in the folder `project` (see tokenmill.stages.refresh). The state's message says what was done, and
    its data are what `tokenmill refresh --json` prints.

    If a build or refresh is already running, nothing is done and the state is Skipped.
    """
    root = Path(project).absolute()
    with watched() as work:
        try:
            with alone(root, wait=False):
                build = start(root / PARAMS_FILE, None, False, False)
                done = refresh(build, partial(_run, stages))
            notify(root, build.params.refresh.notify, Notice.of_end(root, done.past, str(done)))
            say(f"refresh: {done}")
            work.result = Completed(message=str(done), data=done.as_json())
        except BusyError as busy:
            say(f"refresh: skipped: {busy.holder}")
            work.result = Completed(name="Skipped", message=busy.holder, data=skipped(busy.holder))
    state: State[Any] = work.result
    return state


def _run(stages: Stages, build: Build) -> list[StageSummary]:
    with running(build):
        stages(build)
        return build.finished()
