"""Shows the progress of a running flow on Prefect's server, and obeys a cancellation there.

A thread of its own does all communication with the server, because a call of Prefect's in the main thread swallowed a Ctrl-C
that arrived meanwhile.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast
from uuid import UUID

from prefect import State
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from prefect.utilities import engine

from tokenmill.calls import OutsideImports
from tokenmill.console import Progress, console, say
from tokenmill.errors import Terminated
from tokenmill.orchestration.server import FAILURES, Server

_LOOK_EVERY_S = 1.0
_AGAIN_S = 3.0
_LAST_WORD_S_MAX = 5.0


class FlowWork:
    """The work of a flow run. `result`: what it made; the state Cancelled if the run was cancelled on the server."""

    result: Any = None


@contextmanager
def watched() -> Iterator[FlowWork]:
    """Watches the current flow run while the block works, which sets the yielded `result`. A cancellation on the server ends the
    block.

    Meanwhile the artifacts tokenmill-STAGE show the progress of each stage. An unreachable server does not stop the work.
    """
    server = Server.current()
    _let_signals_wait_for_imports()
    ended, cancelled = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(server, UUID(flow_run.id), ended, cancelled), daemon=True)
    watch.start()
    work, outcome = FlowWork(), cast(object, None)
    try:
        yield work
        outcome = work.result
    except BaseException as error:
        outcome = Terminated() if isinstance(error, TerminationSignal) else error
        if not (cancelled.is_set() and isinstance(outcome, (KeyboardInterrupt, Terminated))):
            raise
        work.result = _cancelled()
    finally:
        ended.set()  # keeps the watcher from sending the signal again
        server.keep(outcome)
        if not server.is_gone:
            watch.join(_LAST_WORD_S_MAX)


def _let_signals_wait_for_imports() -> None:
    """Puts OutsideImports around Prefect's handler, also where Prefect compares it with the one that is installed."""
    theirs = getattr(engine, "_prefect_sigterm_handler", None)
    if theirs is None or isinstance(theirs, OutsideImports):
        return
    ours = OutsideImports(theirs)
    is_installed = signal.getsignal(signal.SIGTERM) is theirs
    engine._prefect_sigterm_handler = ours  # type: ignore[assignment]
    if is_installed and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ours)


def end_what_was_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """Ends a run that the server holds as Cancelling. Prefect calls this if the server answers the start or end of a run with
    Cancelling: the run was cancelled before its work began or after it was done, and would stay Cancelling forever."""
    is_well = not isinstance(Server.current().outcome, BaseException)
    final = Completed(message="cancelled when all was done") if is_well else _cancelled()
    with suppress(*FAILURES), get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run.id, final, force=True)


def _cancelled() -> State[None]:
    return Cancelled(message="stopped as asked; what is finished is kept for the next build")


def _watch(server: Server, run: UUID, ended: threading.Event, cancelled: threading.Event) -> None:
    told: dict[int, tuple[UUID, object]] = {}
    first = len(console.shown)
    is_last = False
    with suppress(*FAILURES), get_client(sync_client=True) as client:  # entering it already sends a request
        while not is_last:
            is_last = ended.wait(_LOOK_EVERY_S)
            try:
                state = client.read_flow_run(run).state
                if not is_last and state is not None and (state.is_cancelling() or state.is_cancelled()):
                    cancelled.set()
                    break
                server.send(client)
                _tell(client, run, console.shown[first:], told)
            except FAILURES:
                server.say_failure()
    if cancelled.is_set():
        say("cancelled on Prefect's server: stopping")
        while not ended.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            ended.wait(_AGAIN_S)  # sent again, because Prefect ignores a signal in some places


def _tell(
    client: SyncPrefectClient, run: UUID, shown: Sequence[Progress], told: dict[int, tuple[UUID, object]]
) -> None:
    """Creates or updates the artifact of each stage that has progressed since the last call."""
    for i, stage in enumerate(shown):
        now = stage.done, stage.total, stage.end_s
        percent = round(100 * stage.share, 1)
        if i not in told:
            artifact = ArtifactCreate(
                key=f"tokenmill-{stage.stage}", type="progress", description=str(stage), data=percent, flow_run_id=run
            )
            told[i] = client.create_artifact(artifact).id, now
        elif told[i][1] != now:
            client.update_artifact(told[i][0], ArtifactUpdate(data=percent, description=str(stage)))
            told[i] = told[i][0], now
