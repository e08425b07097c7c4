"""Serves the page on this machine, to whoever has the address with its secret."""

import errno
import hmac
import json
import secrets
import socket
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import psutil

from tokenmill.errors import ParamsError
from tokenmill.features.view.answering import Answering

_HOST = "127.0.0.1"
_HOSTS = (_HOST, "localhost")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_ANSWERS = ("info", "items", "item", "links", "search", "vocabulary", "encode")
_CONNECTIONS_MAX = 64
_IDLE_S_MAX = 10.0  # until all of a request has come
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Reply(NamedTuple):
    """What a request gets: the status, the type of the content, and the content."""

    status: int
    type: str
    content: bytes


_NOTHING = Reply(404, "text/plain", b"Nothing is here.\n")


class ViewServer(ThreadingHTTPServer):
    """A server on 127.0.0.1 with the page of a dataset. `url`: its address, which has a secret, so that other users of the machine
    get nothing. `port`: 0 for a free one. Raises ParamsError for a port that is taken.

    It has a bounded number of connections, and closes one without a request after some seconds, or for a new one."""

    request_queue_size = 2 * _CONNECTIONS_MAX

    def __init__(self, answering: Answering, port: int) -> None:
        self._answering, self._lock = answering, Lock()  # one request at a time is answered
        self._waiting: dict[socket.socket, float] = {}  # connections without a request, with the time when they came
        self._n_connections, self._counting = 0, Lock()
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError):
                why = (
                    f"is in use{_holder(port)}"
                    if error.errno == errno.EADDRINUSE
                    else f"cannot be used: {error.strerror}"
                )
            else:
                why = "is no port; allowed: 0 to 65535"
            raise ParamsError(
                f"--port {port}", f"{why}.", "Name another port, or leave --port out, which takes a free one."
            ) from None
        self._secret = secrets.token_urlsafe(24)
        self.url: str = f"http://{_HOST}:{self.server_port}/{self._secret}/"

    def reply(self, host: str, target: str) -> Reply:
        """The reply to a request for a target. `host`: the header Host, in which a page from elsewhere has another name."""
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            return Reply(403, "text/plain", b"The name of this host is not allowed.\n")
        address = urlsplit(target)
        given, _, name = address.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(given.encode(errors="replace"), self._secret.encode()):
            return _NOTHING
        if name in ("", "page.css", "page.js"):
            file = files(__package__).joinpath(name or "page.html")
            return Reply(200, _TYPES[Path(file.name).suffix], file.read_bytes())
        if name.removeprefix("api/") not in _ANSWERS or not name.startswith("api/"):
            return _NOTHING
        try:
            question = dict(parse_qsl(address.query, keep_blank_values=True))
        except ValueError as error:
            return _json(400, {"error": str(error)})
        if not self._lock.acquire(timeout=self._answering.seconds_max):
            return _json(503, {"error": "earlier questions are still being answered. Try again."})
        try:
            return _json(*self._answering.ask(name.removeprefix("api/"), question))
        finally:
            self._lock.release()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for a connection. The one that is idle for the longest time makes room."""
        with self._counting:
            if self._n_connections >= _CONNECTIONS_MAX and self._waiting:
                self._shut(next(iter(self._waiting)))
            return self._n_connections < 2 * _CONNECTIONS_MAX  # those that are shut take a moment to end

    def process_request(self, request: Any, client_address: Any) -> None:
        """Counts a connection, and starts the thread that serves it."""
        with self._counting:
            self._waiting[request] = time.monotonic()
            self._n_connections += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_come(request)
            with self._counting:
                self._n_connections -= 1

    def has_come(self, request: socket.socket) -> None:
        """All of the request of a connection has come."""
        with self._counting:
            self._waiting.pop(request, None)

    def service_actions(self) -> None:
        """Closes what is idle for too long. `serve_forever` calls it about twice a second."""
        with self._counting:
            for request, since_s in list(self._waiting.items()):
                if time.monotonic() - since_s > _IDLE_S_MAX:
                    self._shut(request)

    def _shut(self, request: socket.socket) -> None:
        """Ends a connection, whose thread then ends."""
        del self._waiting[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def server_close(self) -> None:
        """Ends the process that answers, too."""
        self._answering.close()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that goes away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _holder(port: int) -> str:
    """The process that listens at a port, in words; empty where the system does not say, as of other users."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""


def _json(status: int, answer: Any) -> Reply:
    return Reply(status, "application/json", json.dumps(answer).encode())


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version, sys_version = "tokenmill", ""
    timeout = 30  # seconds for the next bytes of a request, and to take the reply

    def do_GET(self) -> None:
        self.server.has_come(self.connection)
        reply = self.server.reply(self.headers.get("Host", ""), self.path)
        self.send_response(reply.status)
        headers = {"Content-Type": f"{reply.type}; charset=utf-8", "Content-Length": str(len(reply.content))}
        for name, value in (headers | _HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.content)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Logs nothing: addresses have the secret."""
