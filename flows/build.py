"""The build as a Prefect flow: every stage maps a task over its units, in threads."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
from prefect import State, flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import PrefectException
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from tokenmill import _core
from tokenmill.build import Build, alone, start
from tokenmill.console import StageSummary, rows, say
from tokenmill.cutting import Unit
from tokenmill.errors import PassingError
from tokenmill.flows import server
from tokenmill.flows.address import without_password
from tokenmill.flows.recipe import Run, run_stages
from tokenmill.flows.watch import end_what_was_cancelled, watched
from tokenmill.layout import PARAMS_FILE
from tokenmill.retries import DELAYS_S
from tokenmill.unit_store import Done
from tokenmill.units import F, n_workers, results

_CACHED_SHOWN_MAX = 100  # a task run costs some 4 ms


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
    on_cancellation=[end_what_was_cancelled],
)
def build(
    project: str = ".", only: str | None = None, force: bool = False, rehash: bool = False
) -> list[StageSummary] | State[None]:
    """count → train-vocab → encode → validate of the project in the folder `project`; the result is what each stage did, and
    the artifact tokenmill-build shows it as a table.

    `only`: one stage; `force`: also what is up to date or finished; `rehash`: trust no file's times. Raises TokenmillError.
    """
    root = Path(project)

    def work() -> list[StageSummary]:
        with alone(root, wait=False, force=force, rehash=rehash):
            summaries = run_and_note(start(root / PARAMS_FILE, only, force, rehash, map_tasks))
        _show(summaries, root)
        return summaries

    return watched(work)


def run_and_note(build: Build) -> list[StageSummary]:
    """The stages of a build, with a task run in the state Skipped for each that did not need to run."""
    summaries = run_stages(build, _as_task)
    skipped = [one for one in summaries if one.action != "run"]
    server.expect(len(skipped))
    wait(_skipped.map([one.stage for one in skipped], [one.action for one in skipped]))
    return summaries


def _as_task(run: Run, build: Build) -> StageSummary:
    """Trains as a task in this thread, named after the size of the vocabulary; to take a tokenizer is no task."""
    if build.params.tokenizer is not None:
        return run(build)
    name = f"train-vocab {build.params.train_vocab.vocab_size:,} tokens"

    @task(name="train-vocab", task_run_name=name, cache_policy=NO_CACHE, persist_result=False)
    def train() -> State[StageSummary]:
        done = run(build)
        n_tokens, text_mb, seconds = done.n_tokens or 0, done.text_mb or 0, done.seconds or 0
        return Completed(message=f"train-vocab: {n_tokens:,} tokens of {text_mb:,.1f} MB, {seconds:.1f} s", data=done)

    server.expect(1)
    return train().result()  # a task that is called gives its state back


@task(name="skipped", task_run_name="{stage}", cache_policy=NO_CACHE, persist_result=False)
def _skipped(stage: str, action: str) -> State[None]:
    return Completed(name="Skipped", message=f"{stage}: {action}")


def map_tasks(
    stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit], finished: Sequence[Unit]
) -> list[Done[F]]:
    """Runs `do` as one task a unit of the current flow run (see tokenmill.units.RunUnits).

    Its state is Completed, Quarantined (with something left out) or Failed; that of a finished unit is Cached.
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
    def one(unit: Unit) -> State[Done[F]]:
        start_s = time.monotonic()
        done = do(unit)
        left = f", {done.facts.n_left_out:,} left out" if done.facts.n_left_out else ""
        words = f"{stage} {unit.name}: {done.facts}{left}, {time.monotonic() - start_s:.1f} s"
        return Completed(name="Quarantined" if left else None, message=words, data=done)

    @task(name=stage, task_run_name=f"{stage} {{unit}}", cache_policy=NO_CACHE, persist_result=False)
    def cached(unit: str) -> State[None]:
        return Completed(name="Cached", message=f"{stage} {unit}: finished before, nothing to do")

    names = [unit.name for unit in finished]
    if len(names) > _CACHED_SHOWN_MAX:
        names = [f"{len(names):,} units"]
    server.expect(len(units) + len(names))
    all_done = False
    try:
        wait(cached.map(names))
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
    if server.give_up_if_gone():
        return
    try:
        create_table_artifact(rows(summaries), "tokenmill-build", f"What each stage of {root.resolve()} did")
    except (httpx.HTTPError, PrefectException) as error:
        say(f"Prefect's server did not take the table of the build: {without_password(str(error))}")
