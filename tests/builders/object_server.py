"""A server of a folder's files on 127.0.0.1, by HTTP and as S3 gives objects, that counts what it sends and can fail on purpose."""

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

_SLOW_BYTES = 1 << 14


@dataclass
class Faults:
    """What goes wrong. `shares`: of all answers for files, the shares of 503, of a cut connection, and of a slow answer.
    `damaged`: how often a file with this name is sent with a wrong byte. `is_out`: every answer is 503. `wait_s`: before each
    answer. `n_more`: bytes that are sent beyond those that were asked for. `redirects`: where a file with this name is said to
    be."""

    shares: tuple[float, float, float] = (0, 0, 0)
    damaged: dict[str, int] = field(default_factory=dict)
    is_out: bool = False
    wait_s: float = 0
    n_more: int = 0
    redirects: dict[str, str] = field(default_factory=dict)


class ObjectServer(ThreadingHTTPServer):
    """Serves `folder`, whose folders are the buckets. `sent`: bytes of each file that were sent. `begun`: how many answers for a
    file began at its first byte. `n_connections`: how many were made."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.faults = folder, Faults()
        self.sent: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.n_connections = 0
        self.lock, self.random = threading.Lock(), random.Random(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def verify_request(self, request: object, client_address: object) -> bool:
        self.n_connections += 1
        return True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        server = cast(ObjectServer, self.server)
        faults, name = server.faults, unquote(urlsplit(self.path).path).lstrip("/")
        path = server.folder / name
        time.sleep(faults.wait_s)
        with server.lock:
            chance = server.random.random()
        if faults.is_out or chance < faults.shares[0]:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        if name in faults.redirects:
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", faults.redirects[name])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if not path.is_file():
            self._say(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        content = path.read_bytes()
        start, stop = 0, len(content)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1, stop)
        body = bytearray(content[start:stop] + bytes(faults.n_more))
        with server.lock:
            server.begun[name] += start == 0
            if faults.damaged.get(name, 0) and body and start == 0:
                faults.damaged[name] -= 1
                body[0] ^= 1
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.end_headers()
        self._send(bytes(body), name, chance - faults.shares[0])

    def _send(self, body: bytes, name: str, chance: float) -> None:
        server = cast(ObjectServer, self.server)
        _, cut, slow = server.faults.shares
        if chance < cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        step = _SLOW_BYTES if chance < cut + slow else max(len(body), 1)
        for at in range(0, len(body), step):
            self.wfile.write(body[at : at + step])
            with server.lock:
                server.sent[name] += len(body[at : at + step])
            if step == _SLOW_BYTES:
                time.sleep(0.01)

    def _say(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(folder: Path) -> Iterator[ObjectServer]:
    """A server that runs in threads of this process."""
    with ObjectServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
