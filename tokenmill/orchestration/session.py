"""How a build on the command line becomes a run of the project's flow, and what is done while Prefect's server starts."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tokenmill.console import StageSummary
from tokenmill.corpus.units import Stopped
from tokenmill.errors import TokenmillError
from tokenmill.layout import DVC_LOCK_FILE, DVC_RUNS_DIRECTORY, STAGES
from tokenmill.orchestration import server
from tokenmill.orchestration.address import may_be_set
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.unit_runner import UnitRunner
from tokenmill.stages.recipe import import_stages


def run_in_flow(build: Build) -> list[StageSummary]:
    """What each stage did. Prefect is imported, which takes longer than finding nothing to do, when a stage has to run.

    Where that is likely before DVC was asked, its own server starts, digests are taken and Prefect is imported before DVC looks.
    """
    is_first = not any((build.root / trace).exists() for trace in (DVC_LOCK_FILE, DVC_RUNS_DIRECTORY))
    reads_documents = build.stages[0] in STAGES  # else a stage of the project's own may have to make them first
    if reads_documents:
        _ = build.shards  # no server is started for documents that are not there
    early = reads_documents and (build.force or (is_first and not may_be_set()))
    with contextlib.ExitStack() as meanwhile:
        if early:
            meanwhile.enter_context(_beside(build))
            _import_all(build.root)  # beside the digests, which take longer than DVC where there is much to read
        first = build.settle_first()
        if first is None:
            if early:
                build.runner.leave_off.set()
            return build.summaries
        if not early:
            meanwhile.enter_context(_beside(build) if first in STAGES else contextlib.nullcontext(server.begin()))
            _import_all(build.root)
    from tokenmill.orchestration.flow_runs import prepared, threads
    from tokenmill.orchestration.project_flows import load_flow

    flow = load_flow(build.root, "build").with_options(task_runner=threads(build.workers))
    token = prepared.set(build)
    try:
        done = server.run(lambda: flow(str(build.root), build.only, build.force, build.rehash))
    finally:
        prepared.reset(token)
    return cast("list[StageSummary]", done)


def _import_all(root: Path) -> None:
    from tokenmill.orchestration.project_flows import load_flow

    load_flow(root, "build")
    server.import_late()
    import_stages()


@contextmanager
def _beside(build: Build) -> Iterator[None]:
    """Sees to a server for Prefect; if it is one of its own, digests are taken beside what the block does."""
    if not server.begin() or build.rehash:
        yield
        return
    runner = build.runner
    with ThreadPoolExecutor(1, thread_name_prefix="digests") as pool:
        taken = pool.submit(_take_digests, runner)
        try:
            yield
            taken.result()
        except BaseException:
            runner.leave_off.set()
            raise


def _take_digests(runner: UnitRunner) -> None:
    with contextlib.suppress(TokenmillError, OSError, Stopped):  # errors that the flow meets again
        _ = runner.corpus
