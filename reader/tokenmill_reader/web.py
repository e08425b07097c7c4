"""Files of web servers, read in ranges, through one connection a thread.

The client of object storage would follow a redirect to any host, by which a server could have this machine ask others.
"""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from select import POLLIN, poll
from socket import SHUT_RDWR, socket, timeout
from threading import Timer, local
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from tokenmill_reader.errors import StorageError
from tokenmill_reader.object_clients import bounded, keep_off_proxies
from tokenmill_reader.object_errors import storage_error
from tokenmill_reader.regular_files import READ_BYTES_MAX
from tokenmill_reader.urls import object_place

_HOSTS = "TOKENMILL_REDIRECT_HOSTS"
_REDIRECTS = (301, 302, 303, 307, 308)
_N_REDIRECTS_MAX = 10
_SILENCE_S = 20.0
_ANSWER_S = 120.0
_BLOCK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_IN_TARGET = "/%?#[]:@!$&'()*+,;=~"

_own = local()  # has the connections of a thread


def read_web(url: str, range_: tuple[int, int] | None) -> tuple[int, bytes] | None:
    """The size of a file of a web server, and its bytes in a range, or all of a small one; None if there is none. Raises
    StorageError, also for a redirect to a host that the environment's TOKENMILL_REDIRECT_HOSTS does not name."""
    where = object_place(url)
    address = urlsplit(f"{where.scheme}://{where.bucket}/{quote(where.key)}")
    try:
        for _ in range(_N_REDIRECTS_MAX + 1):
            with _answered(address, range_) as answer:
                if answer.status not in _REDIRECTS:
                    return _content(url, answer, range_)
                address = _redirected(url, address, answer.headers.get("Location", ""))
    except ssl.SSLCertVerificationError:
        raise storage_error(url, OSError("InvalidCertificate")) from None
    except timeout:
        raise storage_error(url, OSError("kind: Timeout")) from None
    except (HTTPException, ValueError, ConnectionResetError, BrokenPipeError):
        raise storage_error(url, OSError("kind: Interrupted")) from None
    except OSError:
        raise storage_error(url, OSError("kind: Connect")) from None
    raise StorageError(url, f"the server redirects more than {_N_REDIRECTS_MAX} times.", "Check the URL.")


@contextmanager
def _answered(address: SplitResult, range_: tuple[int, int] | None) -> Iterator[HTTPResponse]:
    """The answer to a request. The connection is kept for the next one if all of the answer is read."""
    key = f"{os.getpid()} {address.scheme}://{address.netloc}"
    connection: HTTPConnection = vars(_own).pop(key, None) or _connection(address)
    if connection.sock is not None and _is_readable(connection.sock):  # closed by the server
        connection.close()
    if connection.sock is None:
        connection.connect()
    timer = Timer(_ANSWER_S, _shut, [connection.sock])
    timer.daemon = True
    timer.start()
    headers = {"Range": f"bytes={range_[0]}-{range_[1] - 1}"} if range_ else {}
    answer = None
    try:
        target = address.path + (f"?{address.query}" if address.query else "")
        connection.request("GET", target, headers={"Accept-Encoding": "identity"} | headers)
        answer = connection.getresponse()
        yield answer
    finally:
        timer.cancel()
        if answer is not None and answer.isclosed():
            vars(_own)[key] = connection
        else:
            connection.close()


def _is_readable(connected: socket) -> bool:
    asked = poll()
    asked.register(connected, POLLIN)
    return bool(asked.poll(0))


def _shut(connected: socket) -> None:
    """Ends the reading of another thread."""
    with suppress(OSError):
        connected.shutdown(SHUT_RDWR)


def _connection(address: SplitResult) -> HTTPConnection:
    keep_off_proxies()
    if address.scheme == "http":  # of this machine
        return HTTPConnection(address.netloc, timeout=_SILENCE_S)
    context = ssl.create_default_context()
    given = {} if proxy_bypass(address.netloc) else getproxies()
    if not (proxy := given.get("https") or given.get("all")):
        return HTTPSConnection(address.netloc, timeout=_SILENCE_S, context=context)
    by = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if by.scheme != "http":
        raise StorageError(
            f"the environment's {'https_proxy' if given.get('https') else 'all_proxy'}",
            f"found a proxy of the scheme {by.scheme}; web servers are read through those of http alone.",
            "Set https_proxy to one, or name the host in no_proxy.",
        )
    connection = HTTPSConnection(by.hostname or "", by.port or 80, timeout=_SILENCE_S, context=context)
    user = f"{unquote(by.username or '')}:{unquote(by.password or '')}"
    basic = {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"} if by.username else {}
    connection.set_tunnel(address.hostname or "", address.port or 443, basic)
    return connection


def _redirected(url: str, address: SplitResult, location: str) -> SplitResult:
    """The address that a redirect names."""
    try:
        there = urlsplit(urljoin(address.geturl(), quote(location, safe=_IN_TARGET)))
        is_web = there.scheme in ("http", "https")
    except ValueError:
        is_web = False
    if not is_web:
        raise StorageError(url, "the server redirects to what is no address of a web server.", "Check the URL.")
    object_place(f"{there.scheme}://{there.netloc}/any")  # raises StorageError for one without TLS, or with a password
    named = os.environ.get(_HOSTS, "").replace(" ", "").split(",")
    if there.netloc != address.netloc and there.hostname not in named:
        raise StorageError(
            url,
            f"{address.netloc} redirects to another host, {there.netloc}.",
            f"If you trust that one, name it in the environment's {_HOSTS}.",
        )
    return there


def _content(url: str, answer: HTTPResponse, range_: tuple[int, int] | None) -> tuple[int, bytes] | None:
    if answer.status == 404:
        answer.read(READ_BYTES_MAX)
        return None
    if answer.status not in (200, 206):
        raise storage_error(url, OSError(f"status code: {answer.status} {answer.reason}"))
    said = _RANGE.fullmatch(answer.headers.get("Content-Range", "")) if answer.status == 206 else None
    if range_ is not None and (said is None or int(said[1]) != range_[0]):
        raise storage_error(url, OSError("no range"))
    n_bytes_max = range_[1] - range_[0] if range_ else READ_BYTES_MAX
    content = bounded(url, iter(lambda: answer.read(_BLOCK_BYTES), b""), n_bytes_max)
    if answer.length:
        raise IncompleteRead(content, answer.length)
    return int(said[2]) if said else len(content), content
