"""Prefect's embedded server: kept quiet, waited for, and ended when a killed build left it behind.

It is started by Prefect, as a process of its own, when no PREFECT_API_URL is set. At its end it loses what it has not
written yet (of 202 task runs, 24 to 57 were kept), so a build waits until its task runs are settled.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil

from tokenmill.console import say
from tokenmill.errors import Terminated, TokenmillError
from tokenmill.files import write_atomic
from tokenmill.layout import SCRATCH_DIRECTORY

T = TypeVar("T")

_RECORD = Path(SCRATCH_DIRECTORY) / "prefect-server.json"
_SETTLE_S_MAX = 15.0
_LEAVE_S = 5.0
_EXIT_FAILED = 2
_ANSWER_S_MAX = 10.0
_PAGE_RUNS = 200  # what a server gives at once

_n_task_runs = 0
_outcomes: list[Any] = []
_to_the_end = contextlib.ExitStack()  # of the process


def expect(n_task_runs: int) -> None:
    """So many task runs more are on their way to the server."""
    global _n_task_runs
    _n_task_runs += n_task_runs


def keep(outcome: object) -> None:
    """What the flow's work gave or raised: `run` hands it on when no server is there to be told of the end."""
    _outcomes.append(outcome)


def quiet_environment() -> None:
    """Settings of Prefect that only count before it is imported: its log goes to its server, not to the terminal, and its own
    server keeps up with a build."""
    os.environ.setdefault("PREFECT_LOGGING_SETTINGS_PATH", str(Path(__file__).with_name("logging.yml")))
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.setdefault("PREFECT_CLI_COLORS", "false")
    # Its embedded server writes each event of a task run by itself; in batches, 300 units are settled 13 s sooner.
    for name, value in (("BATCH_SIZE", "500"), ("READ_BATCH_SIZE", "500"), ("FLUSH_INTERVAL", "0.5")):
        os.environ.setdefault(f"PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_{name}", value)
    logging.raiseExceptions = False  # no traceback when a signal comes while a record is being sent


def check_standing(answer_s_max: float = _ANSWER_S_MAX) -> str | None:
    """The URL of the server that stands by itself, if Prefect is set to use one.

    Raises TokenmillError when that server does not answer: Prefect itself would try for a minute, and end in a traceback.
    """
    import httpx

    url = os.environ.get("PREFECT_API_URL") or _url_of_settings()  # the environment counts before all other settings
    if not url:
        return None
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=answer_s_max).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TokenmillError(
            f"PREFECT_API_URL: no Prefect server answers at {url} ({type(error).__name__}). Start it (`prefect server start`), "
            "unset PREFECT_API_URL, or set run.engine: inline in params.yaml."
        ) from None
    return url


def _url_of_settings() -> str | None:
    """What Prefect's own settings say, which takes seconds to import."""
    quiet_environment()
    from prefect.settings import PREFECT_API_URL

    url: str | None = PREFECT_API_URL.value()
    return url


def give_up_if_gone() -> bool:
    """Has Prefect try each call only once when the server that stands by itself no longer answers, and says whether it does
    not: with five tries more, as by default, a call takes more than a minute."""
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    try:
        check_standing(_LEAVE_S)
    except TokenmillError:
        _to_the_end.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
        return True
    return False


def remember_embedded(root: Path) -> None:
    """Notes which embedded server this process started, if it did."""
    me = psutil.Process()
    for child in me.children():
        if _is_server(child):
            record = {
                "pid": child.pid,
                "started": child.create_time(),
                "owner": me.pid,
                "owner_started": me.create_time(),
            }
            with write_atomic(root / _RECORD) as path:
                path.write_text(json.dumps(record), encoding="utf-8")


def end_orphan(root: Path) -> None:
    """Ends the embedded server of a build that was killed; one whose build still runs is left alone."""
    try:
        record = json.loads((root / _RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return
    if _process(record["owner"], record["owner_started"]):
        return
    left = _process(record["pid"], record["started"])
    if left and _is_server(left):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
            left.terminate()
            _gone, alive = psutil.wait_procs([left], timeout=5)
            for process in alive:
                process.kill()
    (root / _RECORD).unlink(missing_ok=True)


def run(flow: Callable[[], T]) -> T:
    """What a flow gives, when the server has recorded it. Raises TokenmillError as the flow does, and Terminated when the flow
    was cancelled on the server. A server that goes away meanwhile changes neither."""
    import httpx
    from prefect.exceptions import CancelledRun

    _outcomes.clear()
    try:
        done = flow()
    except CancelledRun:
        raise Terminated from None
    except httpx.HTTPError as error:
        return cast("T", _without_server(error))
    except TokenmillError:
        _settle()
        raise
    _settle()
    return done


def _without_server(error: Exception) -> object:
    """What the work gave, or raises what it raised; Prefect only says that it could not tell the server of the end."""
    if not _outcomes:
        raise TokenmillError(
            f"Prefect's server went away before the build began ({type(error).__name__}). Start it and build again, or set "
            "run.engine: inline in params.yaml."
        ) from None
    say("Prefect's server went away, so it does not show how this build ended")
    outcome = _outcomes[-1]
    failed = isinstance(outcome, Exception)
    _leave_in_time(_EXIT_FAILED if failed else 0)
    if failed:
        raise outcome from None
    return outcome


def _settle() -> None:
    """Waits until the embedded server has written the end of all task runs of its latest flow run."""
    if not any(_is_server(child) for child in psutil.Process().children()):
        return
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import TaskRun
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import FlowRunSort

    end_s = time.monotonic() + _SETTLE_S_MAX
    # A server that has gone away, as after Ctrl-C in its terminal, has nothing left to wait for.
    with contextlib.suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        latest = client.read_flow_runs(limit=1, sort=FlowRunSort.START_TIME_DESC)
        while latest and time.monotonic() < end_s:
            its_runs = FlowRunFilter(id=FlowRunFilterId(any_=[latest[0].id]))
            runs: list[TaskRun] = []
            while page := client.read_task_runs(flow_run_filter=its_runs, limit=_PAGE_RUNS, offset=len(runs)):
                runs += page
            if len(runs) >= _n_task_runs and all(run.state is not None and run.state.is_final() for run in runs):
                return
            time.sleep(0.5)


def leave_in_time(code: int) -> None:
    """Ends this process with `code` in a few seconds, if Prefect has not let it end by then.

    Ctrl-C in a terminal also ends the embedded server, and Prefect would try for minutes to tell it of the interruption.
    The build has cleaned up behind itself by now. Without an embedded server Prefect is left to end as it does.
    """
    if not os.environ.get("PREFECT_API_URL"):
        _leave_in_time(code, "tokenmill: interrupted. Run `tokenmill build` to go on.")


def _leave_in_time(code: int, words: str | None = None) -> None:
    children = [child for child in psutil.Process().children() if _is_server(child)]

    def leave() -> None:
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.terminate()
        if words is not None:
            say(words)
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(_LEAVE_S, leave)
    timer.daemon = True
    timer.start()


def _is_server(process: psutil.Process) -> bool:
    try:
        return any("prefect.server" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _process(pid: int, started: float) -> psutil.Process | None:
    """The process with this id, if it is the one that started then: ids are used again."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - started) < 1 else None
    except psutil.Error:
        return None
