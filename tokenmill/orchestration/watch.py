"""The operator's window while a flow is at work: how far it is, shown on Prefect's server, and cancelling from there.

All talk with the server is in a thread of its own: a call of Prefect's in the main thread swallowed a Ctrl-C that came
meanwhile. Nothing waits for that thread but a build that is done.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect import State
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import ObjectNotFound, PrefectException, TerminationSignal
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed

from tokenmill import console
from tokenmill.console import Progress, say
from tokenmill.errors import Terminated, TokenmillError
from tokenmill.orchestration import server

T = TypeVar("T")

_LOOK_EVERY_S = 1.0
_AGAIN_S = 3.0
_LAST_WORD_S_MAX = 5.0
_ANSWER_S_MAX = 10.0
_ANSWER_TO_SIGNAL_S_MAX = 2.0
_TRY_S_MAX = 5.0
_TRY_EVERY_S = 0.5


def watched(work: Callable[[], T]) -> T | State[None]:
    """What `work` gives, in the current flow run; or the state Cancelled, when the run was cancelled on the server.

    Meanwhile the artifacts tokenmill-STAGE show how far each stage is. A server that cannot be reached stops nothing.
    """
    server.forget()
    ended, cancelled, deciding = threading.Event(), threading.Event(), threading.Lock()
    watch = threading.Thread(target=_watch, args=(UUID(flow_run.id), ended, cancelled, deciding), daemon=True)
    watch.start()
    try:
        done = work()
        with deciding:  # from here on no signal comes that would stop what is done
            ended.set()
        if cancelled.is_set():
            return _end_as_cancelled()
        server.keep(done)
        is_gone = server.give_up_if_gone()
    except (TokenmillError, OSError) as error:
        server.keep(error)
        server.give_up_if_gone()
        raise
    except (KeyboardInterrupt, TerminationSignal, Terminated) as stopped:  # SIGINT, SIGTERM, SIGHUP
        if cancelled.is_set():
            ended.set()  # else the signal would come again while the server is asked
            return _end_as_cancelled()
        server.keep(stopped if isinstance(stopped, KeyboardInterrupt) else Terminated())
        server.give_up_if_gone(_ANSWER_TO_SIGNAL_S_MAX)
        raise
    finally:
        ended.set()
    if not is_gone:
        watch.join(_LAST_WORD_S_MAX)
    return done


def end_what_was_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """Prefect calls it when the server answers the beginning or the end of a run with Cancelling: it was cancelled before the work
    began or when it was done, and would be Cancelling for good. A failure that may pass is tried again for some seconds."""
    final = Completed(message="cancelled when all was done") if server.is_well() else _cancelled()
    end_s = time.monotonic() + _TRY_S_MAX
    while True:
        try:
            with _asked_once(max(end_s - time.monotonic(), _TRY_EVERY_S)) as client:
                client.set_flow_run_state(flow_run.id, final, force=True)
            return
        except ObjectNotFound:
            server.tell_deleted()
            return
        except (httpx.HTTPError, PrefectException) as error:
            may_pass = _is_busy(error) or isinstance(error, httpx.TransportError)
            if not may_pass or time.monotonic() >= end_s:
                say(f"Prefect's server {_does(error)}, so it goes on showing the run as Cancelling")
                return
        time.sleep(_TRY_EVERY_S)


def _end_as_cancelled() -> State[None]:
    server.keep(Terminated())
    server.give_up_if_gone(_ANSWER_TO_SIGNAL_S_MAX)
    return _cancelled()


def _cancelled() -> State[None]:
    return Cancelled(message="stopped as asked; what is finished is kept for the next build")


@contextmanager
def _asked_once(answer_s_max: float = _ANSWER_S_MAX) -> Iterator[SyncPrefectClient]:
    """A client that gives up soon: Prefect's own would try again for minutes, and say nothing."""
    once = temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0})
    with once, get_client(httpx_settings={"timeout": answer_s_max}, sync_client=True) as client:
        yield client


def _watch(run: UUID, ended: threading.Event, cancelled: threading.Event, deciding: threading.Lock) -> None:
    told: dict[int, tuple[UUID, float]] = {}
    first, is_lost = len(console.shown), False
    with _asked_once() as client:
        while True:
            is_last = ended.wait(_LOOK_EVERY_S)
            state, is_there = None, True
            try:
                state = client.read_flow_run(run).state
            except ObjectNotFound:
                server.tell_deleted()
                return
            except (httpx.HTTPError, PrefectException) as error:
                is_there = _is_busy(error)
                if not is_there and not is_lost and not is_last:
                    say(f"Prefect's server {_does(error)}, so it does not show this build")
                    is_lost = True
            if not is_last and state is not None and (state.is_cancelling() or state.is_cancelled()):
                break
            if is_there:
                with suppress(httpx.HTTPError, PrefectException):  # an artifact that somebody deleted, say
                    _tell(client, run, console.shown[first:], told)
            if is_last:
                return
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    is_first = True
    while not ended.wait(0 if is_first else _AGAIN_S):  # a signal is lost when it comes where Prefect heeds none
        with deciding:
            if not ended.is_set():
                cancelled.set()
                if is_first:
                    say("cancelled on Prefect's server: stopping")
                signal.pthread_kill(main_thread, signal.SIGTERM)
        is_first = False


def _is_busy(error: Exception) -> bool:
    """Whether the server is there, and will answer later: its database is locked, or it is asked too often."""
    if not isinstance(error, httpx.HTTPStatusError):
        return False
    return error.response.status_code == httpx.codes.TOO_MANY_REQUESTS or error.response.is_server_error


def _does(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers with {error.response.status_code}"
    return f"does not answer ({type(error).__name__})"


def _tell(client: SyncPrefectClient, run: UUID, shown: Sequence[Progress], told: dict[int, tuple[UUID, float]]) -> None:
    """Creates or updates the artifact of each stage that went on since it was told last."""
    for i, stage in enumerate(shown):
        percent = round(100 * stage.done / stage.total, 1) if stage.total else 100.0
        if i not in told:
            artifact = ArtifactCreate(
                key=f"tokenmill-{stage.stage}", type="progress", description=str(stage), data=percent, flow_run_id=run
            )
            told[i] = (client.create_artifact(artifact).id, percent)
        elif told[i][1] != percent:
            told[i] = (told[i][0], percent)
            client.update_artifact(told[i][0], ArtifactUpdate(data=percent, description=str(stage)))
