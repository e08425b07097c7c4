"""Shows the progress of a running flow on Prefect's server, and obeys a cancellation there.

A thread of its own does all communication with the server, because a call of Prefect's in the main thread swallowed a Ctrl-C
that arrived meanwhile. Only a finished build waits for that thread.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect import State
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed

from tokenmill import console
from tokenmill.console import Progress, say
from tokenmill.errors import Terminated, TokenmillError
from tokenmill.orchestration.server import FAILURES, Server

T = TypeVar("T")

_LOOK_EVERY_S = 1.0
_AGAIN_S = 3.0
_LAST_WORD_S_MAX = 5.0


def watched(work: Callable[[], T]) -> T | State[None]:
    """The result of `work` in the current flow run, or the state Cancelled if the run was cancelled on the server.

    Meanwhile the artifacts tokenmill-STAGE show the progress of each stage. An unreachable server stops nothing.
    """
    server = Server.current()
    server.flow_run = UUID(flow_run.id)
    ended, cancelled, deciding = threading.Event(), threading.Event(), threading.Lock()
    watch = threading.Thread(target=_watch, args=(server, server.flow_run, ended, cancelled, deciding), daemon=True)
    watch.start()
    try:
        done = work()
        with deciding:  # afterwards the watcher sends no signal, so finished work is not interrupted
            ended.set()
        if cancelled.is_set():
            server.keep(Terminated())
            return _cancelled()
        server.keep(done)
    except (TokenmillError, OSError) as error:
        server.keep(error)
        raise
    except (KeyboardInterrupt, TerminationSignal, Terminated) as stopped:  # SIGINT, SIGTERM, SIGHUP
        ended.set()  # keeps the watcher from sending the signal again during the next call
        server.keep(stopped if isinstance(stopped, KeyboardInterrupt) else Terminated())
        if cancelled.is_set():
            return _cancelled()
        raise
    finally:
        ended.set()
    if not server.is_gone:
        watch.join(_LAST_WORD_S_MAX)
    return done


def end_what_was_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """Ends a run that the server holds as Cancelling. Prefect calls this if the server answers the start or end of a run with
    Cancelling: the run was cancelled before its work began or after it was done, and would stay Cancelling forever."""
    server = Server.current()
    final = Completed(message="cancelled when all was done") if server.is_well else _cancelled()
    try:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, final, force=True)
    except ObjectNotFound:
        server.say_deleted()
    except FAILURES as error:
        say(f"Prefect's server {_does(error)}, so it goes on showing the run as Cancelling")


def _cancelled() -> State[None]:
    return Cancelled(message="stopped as asked; what is finished is kept for the next build")


def _watch(
    server: Server, run: UUID, ended: threading.Event, cancelled: threading.Event, deciding: threading.Lock
) -> None:
    told: dict[int, tuple[UUID, float, bool]] = {}
    first = len(console.shown)
    is_last = False
    with suppress(*FAILURES), get_client(sync_client=True) as client:  # entering it already sends a request
        while not is_last:
            is_last = ended.wait(_LOOK_EVERY_S)
            try:
                state = client.read_flow_run(run).state
            except ObjectNotFound:
                server.say_deleted()
                return
            except FAILURES as error:
                if not is_last:
                    server.say_once(f"Prefect's server {_does(error)}, so it does not show this build")
                continue
            if not is_last and state is not None and (state.is_cancelling() or state.is_cancelled()):
                break
            with suppress(*FAILURES):  # for example, a user deleted the artifact
                server.send(client)
                _tell(client, run, console.shown[first:], told)
    while not ended.is_set():
        with deciding:
            if not ended.is_set():
                cancelled.set()
                server.say_once("cancelled on Prefect's server: stopping")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        ended.wait(_AGAIN_S)  # sent again, because Prefect ignores a signal in some places


def _does(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers with {error.response.status_code}"
    return f"does not answer ({type(error).__name__})"


def _tell(
    client: SyncPrefectClient, run: UUID, shown: Sequence[Progress], told: dict[int, tuple[UUID, float, bool]]
) -> None:
    """Creates or updates the artifact of each stage that has progressed since the last call."""
    for i, stage in enumerate(shown):
        has_ended = stage.end_s is not None
        percent = round(100 * stage.done / stage.total, 1) if stage.total else 100.0
        if i not in told:
            artifact = ArtifactCreate(
                key=f"tokenmill-{stage.stage}", type="progress", description=str(stage), data=percent, flow_run_id=run
            )
            told[i] = (client.create_artifact(artifact).id, percent, has_ended)
        elif told[i][1:] != (percent, has_ended):
            told[i] = (told[i][0], percent, has_ended)
            client.update_artifact(told[i][0], ArtifactUpdate(data=percent, description=str(stage)))
