"""Serves the page on this machine, to whoever has the address with its secret."""

import hmac
import json
import secrets
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tokenmill.errors import ParamsError, TokenmillError
from tokenmill.view.dataset_view import Asked, DatasetView
from tokenmill_reader.terminal import as_shown

_HOST = "127.0.0.1"
_HOSTS = (_HOST, "localhost")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
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
    get nothing. `port`: 0 for a free one. Raises ParamsError for a port that is taken."""

    def __init__(self, view: DatasetView, port: int) -> None:
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ParamsError(
                f"--port {port}", f"cannot be used: {error}.", "Name another port, or leave --port out."
            ) from None
        self._secret = secrets.token_urlsafe(24)
        self._lock = Lock()  # files and caches are read by one request at a time
        self._answers: dict[str, Callable[[Asked], Any]] = {
            f"api/{name}": getattr(view, name) for name in ("info", "items", "item", "search", "vocabulary", "encode")
        }
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
        if name not in self._answers:
            return _NOTHING
        try:
            asked = Asked(parse_qsl(address.query, keep_blank_values=True))
            with self._lock:
                status, answer = 200, self._answers[name](asked)
        except (TokenmillError, OSError, ValueError) as error:
            status, answer = 400, {"error": as_shown(str(error).split("\n"))}
        return Reply(status, "application/json", json.dumps(answer).encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that goes away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version, sys_version = "tokenmill", ""
    timeout = 30  # seconds for the next bytes of a request

    def do_GET(self) -> None:
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
