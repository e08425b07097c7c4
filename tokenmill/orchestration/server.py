"""The server that Prefect talks to: the one that is set, or an embedded one, which is started when none is.

At its end an embedded server loses what it has not written yet (of 202 task runs, 24 to 57 were kept), so a build waits
until its task runs are settled.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

from tokenmill.console import say
from tokenmill.errors import Terminated, TokenmillError
from tokenmill.orchestration.address import check_standing, may_be_set, place, told_if_long
from tokenmill.orchestration.embedded import Embedded
from tokenmill.orchestration.settings import quiet_environment

T = TypeVar("T")

_SETTLE_S_MAX = 15.0
_SETTLE_EVERY_S = 0.1
_LEAVE_S = 1.0
_LAST_ANSWER_S_MAX = 5.0
_GONE_S_MAX = 1.0

_embedded: Embedded | None = None
_n_task_runs = 0
_outcomes: list[Any] = []
_ending: contextlib.ExitStack | None = None  # of `run`, until it has been told what is waited for
_is_gone = False
_to_the_end = contextlib.ExitStack()  # of the process


def expect(n_task_runs: int) -> None:
    """So many task runs more are on their way to the server."""
    global _n_task_runs
    _n_task_runs += n_task_runs


def keep(outcome: object) -> None:
    """What the flow's work gave or raised: `run` hands it on when no server is there to be told of the end."""
    _outcomes.append(outcome)


def forget() -> None:
    """What an earlier flow in this process kept and found is not of the one that begins."""
    global _is_gone
    _outcomes.clear()
    _is_gone = False
    tell_deleted.cache_clear()


def is_well() -> bool:
    """Whether the flow's work has ended, and raised nothing."""
    return bool(_outcomes) and not isinstance(_outcomes[-1], BaseException)


def begin() -> bool:
    """Sees to it that Prefect has a server: the one that is set, or else an embedded one, which takes some seconds to start
    (`run` waits for it) and ends with this process; whether it is such a one. Raises TokenmillError when the one that is set
    does not answer."""
    global _embedded
    quiet_environment()
    if may_be_set() and (url := check_standing()):
        say(f"{place(url)}: the build appears there in some seconds")
        return False
    say("starting Prefect with a server of its own: some seconds (none with run.engine: inline)")
    _embedded = Embedded()
    os.environ["PREFECT_API_URL"] = _embedded.url
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()  # it has read its settings before
    return True


def import_late() -> None:
    """Imports what Prefect imports at a flow's first run; a name that another Prefect does not have costs time alone."""
    for name in ("prefect.flow_engine", "prefect.utilities.visualization", "fastapi.encoders"):
        with contextlib.suppress(ImportError):
            import_module(name)


def give_up_if_gone(answer_s_max: float = _LAST_ANSWER_S_MAX) -> bool:
    """To be asked when a flow's work has ended: whether the server no longer answers.

    Prefect then tries each call of the flow only once, for a second: with a minute for each and five tries more, as by default,
    a server that hangs would hold a build that is done for minutes.
    """
    global _ending, _is_gone
    from prefect.context import FlowRunContext
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    if _is_gone:
        return True
    try:
        check_standing(answer_s_max)
    except TokenmillError:
        _is_gone = True
        _to_the_end.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
        with contextlib.suppress(AttributeError):  # another Prefect keeps its client elsewhere, and waits for a minute
            FlowRunContext.get().client._client.timeout = _GONE_S_MAX  # type: ignore[union-attr]
    if _ending is not None:
        whom = "Prefect to end without its server" if _is_gone else "Prefect's server to record how the build ended"
        _ending.enter_context(told_if_long(f"waiting for {whom}"))
        _ending = None
    return _is_gone


def run(flow: Callable[[], T]) -> T:
    """What a flow gives, when the server has recorded it. Raises TokenmillError as the flow does, and Terminated when the flow
    was cancelled on the server. A server that goes away meanwhile changes neither."""
    global _ending, _is_gone
    import httpx
    from prefect.exceptions import CancelledRun, ObjectNotFound, UnfinishedRun

    if _embedded is not None:
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        # Nobody watches this server for them, and to end the thread that sends them takes up to a second.
        _to_the_end.enter_context(temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}))
        _embedded.wait()
    forget()
    with contextlib.ExitStack() as _ending:
        try:
            try:
                done = flow()
            finally:
                _is_gone = False  # if it still is, Prefect has raised what is caught below
        except (CancelledRun, UnfinishedRun):  # the latter: before the work began
            raise Terminated from None
        except (httpx.HTTPError, ObjectNotFound) as error:  # gone, or another one that does not know the flow run
            return cast("T", _without_server(error))
        except TokenmillError:
            _settle()
            raise
        _settle()
        return done


@cache
def tell_deleted() -> None:
    """Says, once in a build, that the flow run is not there any more."""
    say("the flow run was deleted on Prefect's server, which does not show how this build ended")


def _without_server(error: Exception) -> object:
    """What the work gave, or raises what it raised; Prefect only says that it could not tell the server of the end."""
    global _is_gone
    import httpx

    _is_gone = True
    if not _outcomes:
        raise TokenmillError(
            f"Prefect's server went away before the build began ({type(error).__name__}). Start it and build again, or set "
            "run.engine: inline in params.yaml."
        ) from None
    if isinstance(error, httpx.HTTPError):
        say("Prefect's server does not answer, so it may not show how this build ended")
    else:
        tell_deleted()
    outcome = _outcomes[-1]
    if isinstance(outcome, BaseException):
        raise outcome from None
    return outcome


def _settle() -> None:
    """Waits until the embedded server has written the end of all task runs of its latest flow run."""
    if _embedded is None or not _embedded.runs:
        return
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import TERMINAL_STATES
    from prefect.client.schemas.sorting import FlowRunSort

    end_s = time.monotonic() + _SETTLE_S_MAX
    # A server that has gone away has nothing left to wait for.
    with contextlib.suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        latest = client.read_flow_runs(limit=1, sort=FlowRunSort.START_TIME_DESC)
        while latest and time.monotonic() < end_s:
            filters = {
                "flow_runs": {"id": {"any_": [str(latest[0].id)]}},
                "task_runs": {"state": {"type": {"any_": [state.value for state in TERMINAL_STATES]}}},
            }
            if client.request("POST", "/task_runs/count", json=filters).raise_for_status().json() >= _n_task_runs:
                return
            time.sleep(_SETTLE_EVERY_S)


def leave_in_time(code: int) -> None:
    """To be called with the exit code when all else is done: without a server, Prefect goes on trying for minutes, and this
    process ends a second from now all the same."""
    if not _is_gone:
        return

    def leave() -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more; it is closed
            sys.stdout.flush()
            sys.stderr.flush()
        if _embedded is not None:
            _embedded.kill()
        os._exit(code)

    timer = threading.Timer(_LEAVE_S, leave)
    timer.daemon = True
    timer.start()
