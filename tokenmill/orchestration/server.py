"""The Prefect server of a build: the configured one, or an embedded one that lives as long as the build."""

import atexit
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import refresh_global_settings_context
from prefect.events import Event
from prefect.events.worker import EventsWorker, ProcessPoolForwardingEventsClient
from prefect.exceptions import CancelledRun, ObjectNotFound, PrefectException, UnfinishedRun
from prefect.logging.handlers import set_api_log_sink

from tokenmill.console import say
from tokenmill.errors import Terminated, TokenmillError, room
from tokenmill.orchestration.address import check_standing, shown
from tokenmill.orchestration.embedded_process import EmbeddedProcess
from tokenmill.orchestration.home import Home
from tokenmill.pipeline.build import Build

_START_S_MAX = 120.0
_END_S_MAX = 10.0  # longer than an embedded server takes to write its records and end
_ANSWER_S_MAX = 5.0
_TAKE_S_MAX = 15.0
_SIZE_KEY = "__payload_size__"  # attributes that Prefect adds to log records
_REASON = re.compile(r"^[\w.]*(?:Error|Exception)\b.*", re.MULTILINE)  # the last line of a traceback
_OTHER_REVISION = re.compile(r"Can't locate revision identified by '([^']*)'")
FAILURES = (httpx.HTTPError, PrefectException, RuntimeError, AssertionError)
"""What Prefect's client raises if a server refuses or does not answer. RuntimeError comes when the client is entered;
AssertionError comes if PREFECT_CLIENT_MAX_RETRIES becomes 0 between two tries."""


async def _nothing(_event: Any) -> None:
    """Leaves an event as it is."""


class Server:
    """The server of one build, and the state that the build shares with it.

    `prepared`: the build that the command line started; None if a server started the flow, which makes its own. `home`: an embedded
    server's; None for a configured one. `outcome`: the result or exception of the flow's work. `is_gone`: whether the server
    stopped answering.
    """

    _current: ClassVar["Server | None"] = None

    def __init__(self, prepared: Build | None = None) -> None:
        self.prepared = prepared
        self.home: Home | None = None
        self.outcome: Any = TokenmillError(
            "",
            "Prefect's server went away before the build began.",
            "Start it and build again, or set run.engine: inline in params.yaml.",
            code="TM703",
        )
        self.is_gone: bool = False
        self._is_failure_told = False
        self._makes_database = False
        self._process: EmbeddedProcess | None = None
        self._events: list[dict[str, Any]] = []
        self._logs: list[dict[str, Any]] = []

    @classmethod
    def start(cls, prepared: Build | None, root: Path, begun: EmbeddedProcess | None) -> Self:
        """The server that Prefect is configured to use, or else an embedded one, which takes some seconds (`serving` waits for it).

        `root`: the project's folder. `begun`: the process of an embedded one; None: PREFECT_API_URL names a server. Raises
        TokenmillError if the configured server does not answer.
        """
        server = cls(prepared)
        if url := check_standing():
            if begun is not None:
                begun.kill()
            page = shown(url).rstrip("/").removesuffix("/api")
            say(f"Prefect at {page}: the build appears there in some seconds")
        else:
            say("starting Prefect with a server of its own: some seconds (none with run.engine: inline)")
            assert begun is not None
            url = server._start_embedded(root, begun)
        # Prefect's own clients send log records and events (which report the task runs) from threads. On exit, the process waits
        # for unsent ones: minutes if the server hangs.
        set_api_log_sink(server._logs.append)
        if "prefect.cloud" not in url:  # Prefect Cloud's own events client has an API key
            EventsWorker.set_client_override(ProcessPoolForwardingEventsClient, event_queue=server)
        return server

    @classmethod
    def current(cls) -> "Server":
        """The server of the current flow, or the server that started it."""
        Server._current = Server._current or cls()
        return Server._current

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serves the flow that the block runs; after the block, the server has recorded it. Raises TokenmillError as the flow does,
        and Terminated if the flow was cancelled on the server. If the server disappears meanwhile, the block may end early, and
        `outcome` has the result of the flow's work."""
        self._wait()
        Server._current = self
        try:
            yield
        except (CancelledRun, UnfinishedRun):  # UnfinishedRun: cancelled before the work began
            raise Terminated from None
        except (httpx.HTTPError, ObjectNotFound):  # the server is gone, or it does not know the flow run
            self.say_failure()
            if isinstance(self.outcome, BaseException):
                raise self.outcome from None
        finally:
            self._send_rest()

    def keep(self, outcome: object) -> None:
        """Stores the result or exception of the flow's work. It is what counts if the server cannot be informed of the end.

        If the server does not answer now, Prefect retries none of its further calls.
        """
        self.outcome = outcome
        try:
            check_standing(_ANSWER_S_MAX)
        except TokenmillError:
            self.is_gone = True
            self.say_failure()
            os.environ["PREFECT_CLIENT_MAX_RETRIES"] = "0"
            refresh_global_settings_context()
            # Prefect asks the server what belongs to each event that waits, and waits for that on exit, one after another.
            EventsWorker.instance().attach_related_resources_from_context = _nothing  # type: ignore[assignment,method-assign]

    def say_failure(self) -> None:
        """Reports once that the server fails."""
        if not self._is_failure_told:
            say("Prefect's server does not answer or does not know this build, so it may not show how this build ended")
        self._is_failure_told = True

    def put(self, item: tuple[str, Event]) -> None:
        """Queues an event. Prefect calls this for each one."""
        self._events.append(item[1].model_dump(mode="json"))

    def send(self, client: SyncPrefectClient) -> None:
        """Sends the events and log records so far to the server. Raises FAILURES."""
        if events := self._events[:]:
            client.request("POST", "/events", json=events)
            del self._events[: len(events)]
        if logs := self._logs[:]:
            client.create_logs({key: log[key] for key in log if key != _SIZE_KEY} for log in logs)
            del self._logs[: len(logs)]

    def _start_embedded(self, root: Path, begun: EmbeddedProcess) -> str:
        """Starts a server without web page and schedules, and returns its URL.

        The server asks for a random password, because every user of this machine can connect to its port.
        """
        self.home = Home.of(root)
        settings = self.home.made()
        self._makes_database = self.home.has_to_make_database()
        os.environ["PREFECT_API_AUTH_STRING"] = password = f"build:{secrets.token_urlsafe()}"
        os.environ["PREFECT_API_URL"] = begun.url
        own = {"PREFECT_UI_ENABLED": "0", "PREFECT_SERVER_API_AUTH_STRING": password, **settings}
        begun.serve(str(self.home.path) if settings else ".", {**os.environ, **own})
        self._process = begun
        atexit.register(self._stop)
        refresh_global_settings_context()
        return begun.url

    def _wait(self) -> None:
        """Waits until an embedded server answers. Raises TokenmillError if it has ended."""
        if self._process is None:
            return
        try:
            httpx.get(f"{os.environ['PREFECT_API_URL']}/health", timeout=_START_S_MAX)
        except httpx.HTTPError as error:
            self._stop()
            output = self._process.said()
            assert self.home is not None
            if other := _OTHER_REVISION.search(output):
                raise self.home.other_revision(other[1]) from None
            reason = [str(error), *_REASON.findall(output)][-1]
            raise TokenmillError(
                "",
                f"Prefect's own server did not start: {reason}; {self.home.path}: {room(str(self.home.path))}.",
                "Make that folder writable, name another folder in PREFECT_HOME or a running "
                "server in PREFECT_API_URL, or set run.engine: inline in params.yaml.",
                code="TM703",
            ) from None
        if self._makes_database and self.home is not None:
            self.home.keep_database()

    def _send_rest(self) -> None:
        if not self.is_gone:
            with ThreadPoolExecutor(
                1
            ) as pool:  # in a notebook's own thread, it would give a coroutine instead of waiting
                pool.submit(EventsWorker.drain_all, timeout=_TAKE_S_MAX).result()
            with suppress(*FAILURES), get_client(sync_client=True) as client:
                self.send(client)

    def _stop(self) -> None:
        """Ends an embedded server, which first records what it was sent. A signal meanwhile kills it at once."""
        assert self._process is not None
        try:
            self._process.end(_END_S_MAX)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, Terminated):
            self._process.kill()
