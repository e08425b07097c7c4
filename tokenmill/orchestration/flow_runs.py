"""Wraps the stages of every flow run: takes the project lock, watches the run, and publishes its results."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from typing import Any

from prefect import State
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run

from tokenmill.features import PARTS, load
from tokenmill.layout import PAGE_FILE, PARAMS_FILE
from tokenmill.orchestration.engines import running, threads
from tokenmill.orchestration.server import FAILURES, Server
from tokenmill.orchestration.watch import end_what_was_cancelled, watched
from tokenmill.pipeline.alone import alone
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.memory import n_workers
from tokenmill.pipeline.start import start
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
        work.result = run_stages(stages, build)
    done: list[StageSummary] | State[None] = work.result
    if not isinstance(done, State) and not server.is_gone:
        with suppress(*FAILURES):  # they do not fail the finished build
            create_table_artifact(rows(done), "tokenmill-build", f"What each stage of {root.resolve()} did")
            if (page := (root / PAGE_FILE).resolve()).exists():
                create_link_artifact(
                    page.as_uri(), "the report", key="tokenmill-report", description=f"A file of {gethostname()}"
                )
    return done


def run_stages(stages: Stages, build: Build) -> list[StageSummary]:
    """Runs the stages of a build in the current flow run. Returns what each did."""
    with running(build):
        stages(build)
        return build.finished()


def __getattr__(name: str) -> Any:
    """Gives the functions of features that the flows of projects of 0.1 to 0.3 import from here."""
    if name in PARTS["imported"]:
        return load(PARTS["imported"][name])
    raise AttributeError(f"module 'tokenmill.orchestration.flow_runs' has no attribute {name!r}")
