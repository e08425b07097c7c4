"""Runs a build from the command line as a run of the project's flow."""

from typing import Any

from tokenmill.layout import STAGES
from tokenmill.orchestration.settings import quiet_environment
from tokenmill.pipeline.build import Build
from tokenmill.summary import StageSummary


def run_in_flow(build: Build) -> list[StageSummary]:
    """The result of each stage. Prefect is imported only if a stage has to run: the import takes longer than an idle build."""
    if build.stages[0] in STAGES:  # otherwise a project's own stage may have to make the documents first
        _ = build.shards  # missing documents are reported before a server is started
    first = build.settle_first()
    if first is None:
        return build.summaries
    if first in STAGES:
        from tokenmill.stages.mistakes import refuse_mistakes

        refuse_mistakes(build)  # before a server is started
    quiet_environment()
    from tokenmill.orchestration.server import Server

    server = Server.start(build)  # it starts up while the other modules are imported
    from tokenmill.orchestration.project_flows import load_flow

    arguments = (str(build.root), build.only, build.force, build.rehash)
    flow = load_flow(build.root, "build", *arguments)
    done: Any = None
    with server.serving():
        done = flow(*arguments)
    summaries: list[StageSummary] = (
        server.outcome if done is None else done
    )  # None: the server went away before the end
    return summaries
