"""How a build on the command line becomes a Prefect flow, and what is done while Prefect's server starts."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import cast

from tokenmill.build import Build, settle_first
from tokenmill.console import StageSummary
from tokenmill.cutting import Stopped
from tokenmill.errors import TokenmillError
from tokenmill.flows import server
from tokenmill.flows.address import may_be_set
from tokenmill.flows.recipe import import_stages
from tokenmill.layout import DVC_LOCK_FILE, DVC_RUNS_DIRECTORY
from tokenmill.workshop import Workshop


def run_in_flow(build: Build) -> list[StageSummary]:
    """What each stage did. Prefect is imported, which takes longer than finding nothing to do, when a stage has to run.

    Where that is likely before DVC was asked, its own server starts, digests are taken and Prefect is imported before DVC looks.
    """
    _ = build.shards  # no server is started for documents that are not there
    is_first = not any((build.root / trace).exists() for trace in (DVC_LOCK_FILE, DVC_RUNS_DIRECTORY))
    early = build.force or (is_first and not may_be_set())
    with contextlib.ExitStack() as meanwhile:
        if early:
            meanwhile.enter_context(_beside(build))
            _import_all()  # beside the digests, which take longer than DVC where there is much to read
        settled = settle_first(build)
        if len(settled) == len(build.stages):
            if early:
                build.workshop.leave_off.set()
            return settled
        if not early:
            meanwhile.enter_context(_beside(build))
            _import_all()
    from tokenmill.flows.build import build as build_flow
    from tokenmill.flows.build import threads

    flow = build_flow.with_options(task_runner=threads(build.workers))
    done = server.run(lambda: flow(str(build.root), build.only, build.force, build.rehash))
    summaries = cast("list[StageSummary]", done)
    return settled + summaries[len(settled) :]


def _import_all() -> None:
    import_module("tokenmill.flows.build")
    server.import_late()
    import_stages()


@contextmanager
def _beside(build: Build) -> Iterator[None]:
    """Sees to a server for Prefect; if it is one of its own, digests are taken beside what the block does."""
    if not server.begin() or build.rehash:
        yield
        return
    workshop = build.workshop
    with ThreadPoolExecutor(1, thread_name_prefix="digests") as pool:
        taken = pool.submit(_take_digests, workshop)
        try:
            yield
            taken.result()
        except BaseException:
            workshop.leave_off.set()
            raise


def _take_digests(workshop: Workshop) -> None:
    with contextlib.suppress(TokenmillError, OSError, Stopped):  # errors that the flow meets again
        _ = workshop.corpus
