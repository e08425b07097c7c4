"""How a build on the command line becomes a run of the project's flow."""

from typing import cast

from tokenmill.console import StageSummary
from tokenmill.layout import STAGES
from tokenmill.orchestration.settings import quiet_environment
from tokenmill.pipeline.build import Build


def run_in_flow(build: Build) -> list[StageSummary]:
    """What each stage did. Prefect is imported when a stage has to run: that takes longer than finding nothing to do."""
    if build.stages[0] in STAGES:  # else a stage of the project's own may have to make the documents first
        _ = build.shards  # no server is started for documents that are not there
    if build.settle_first() is None:
        return build.summaries
    quiet_environment()
    from tokenmill.orchestration.server import Server

    server = Server.start()  # which comes up while the rest is imported
    from tokenmill.orchestration.flow_runs import prepared, threads
    from tokenmill.orchestration.project_flows import load_flow

    flow = load_flow(build.root, "build").with_options(task_runner=threads(build.workers))
    token = prepared.set(build)
    try:
        done = server.run(lambda: flow(str(build.root), build.only, build.force, build.rehash))
    finally:
        prepared.reset(token)
    return cast("list[StageSummary]", done)
