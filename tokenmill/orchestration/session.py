"""Runs a build from the command line as a run of the project's flow."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.layout import DVC_LOCK_FILE, STAGES
from tokenmill.orchestration.settings import load_settings
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.input_changes import earlier_inputs
from tokenmill.summary import StageSummary

if TYPE_CHECKING:
    from tokenmill.orchestration.server import Server


def run_in_flow(build: Build) -> list[StageSummary]:
    """The result of each stage. Prefect is imported only if a stage has to run: the import takes longer than an idle build."""
    server = None
    if build.stages[0] in STAGES:  # otherwise a project's own stage may have to make the documents first
        _ = build.shards  # missing documents are reported before a server is started
        if _has_to_run(build):
            server = start_server(build.root, build)  # it starts up while DVC looks at the files
    first = build.settle_first()
    if first is None:
        return build.summaries
    if first in STAGES:
        from tokenmill.stages.mistakes import refuse_mistakes

        refuse_mistakes(build)
    server = server or start_server(build.root, build)
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


def _has_to_run(build: Build) -> bool:
    """Whether a quick look shows that a stage has to run: nothing was built yet, or the dataset was made from files of other names
    or lengths. No file is read for it."""
    if build.force or not (build.root / DVC_LOCK_FILE).exists():
        return True
    earlier = {earlier_input.name: earlier_input.n_bytes for earlier_input in earlier_inputs(build.root, "encode")}
    return build.only is None and earlier != {shard.name: shard.n_bytes for shard in build.shards}


def start_server(root: Path, prepared: Build | None = None) -> "Server":
    """The server of the project at `root`, and of the build that the command line started, as `Server.start` makes it."""
    from tokenmill.orchestration.embedded_process import EmbeddedProcess

    begun = None
    if not os.environ.get("PREFECT_API_URL"):  # a profile may still name a server; then this one is ended
        begun = EmbeddedProcess()  # it starts up while Prefect is imported here
    try:
        load_settings()
        from tokenmill.orchestration.server import Server

        return Server.start(prepared, root, begun)
    except BaseException:
        if begun is not None:
            begun.kill()
        raise
