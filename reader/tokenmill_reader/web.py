"""Files of web servers, read in ranges.

obstore follows a redirect to any host, so a server could make this machine send requests into its own network.
"""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead, responses
from select import POLLIN, poll
from socket import SHUT_RDWR, socket, timeout
from threading import Timer, local
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from tokenmill_reader.errors import StorageError
from tokenmill_reader.object_clients import bounded, keep_off_proxies
from tokenmill_reader.object_errors import no_ranges, not_trusted, outage, storage_error
from tokenmill_reader.regular_files import READ_BYTES_MAX
from tokenmill_reader.urls import object_place

_HOSTS = "TOKENMILL_REDIRECT_HOSTS"
_REDIRECTS = (301, 302, 303, 307, 308)
_N_REDIRECTS_MAX = 10
_SILENCE_S = 20.0
_ANSWER_S = 120.0
_BLOCK_BYTES = 1 << 20
_PORTS = {"http": 80, "https": 443}
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_IN_ADDRESS = "/%?#[]:@!$&'()*+,;=~"

_local = local()
"""`connections`: those of a thread that can be used again, by process, scheme and host."""


def read_web(url: str, range_: tuple[int, int] | None) -> tuple[int, bytes] | None:
    """The size of a file of a web server, and its bytes in a range, or all of a small one; None if there is none. Raises
    StorageError, also for a redirect to a host that the environment's TOKENMILL_REDIRECT_HOSTS does not name."""
    where = object_place(url)
    try:
        first = address = _address(f"{where.scheme}://{where.bucket}/{quote(where.key)}")
    except ValueError:
        raise StorageError(url, "expected https://HOST/… or https://HOST:PORT/….", "Correct the URL.") from None
    for _ in range(_N_REDIRECTS_MAX + 1):
        connection = _connection(address)
        try:
            with _answered(connection, address, range_) as answer:
                if answer.status not in _REDIRECTS:
                    return _content(url, answer, range_)
                location = answer.headers.get("Location", "")
        except ssl.SSLCertVerificationError:
            raise not_trusted(url) from None
        except timeout:
            raise outage(url, "no answer came in time") from None
        except (HTTPException, ValueError, ConnectionResetError, BrokenPipeError):
            raise outage(url, "the connection was cut") from None
        except OSError:
            raise outage(url, f"no connection could be made to {connection.host}:{connection.port}") from None
        address = _redirected(url, first, address, location)
    raise StorageError(url, f"the server redirects more than {_N_REDIRECTS_MAX} times.", "Check the URL.")


def _address(text: str) -> SplitResult:
    """The parts of an address of a web server. Raises ValueError for another one."""
    address = urlsplit(text)
    if address.scheme not in _PORTS or not address.hostname or address.port == 0:
        raise ValueError(text)
    address.hostname.encode("idna")
    return address


def _connection(address: SplitResult) -> HTTPConnection:
    """A connection for this address, one that was kept if there is one. Raises StorageError for a proxy that cannot be used."""
    kept: HTTPConnection | None = _kept().pop(_key(address), None)
    if kept is not None and kept.sock is not None and not _is_readable(kept.sock):  # else the server has closed it
        return kept
    keep_off_proxies()
    proxies = {} if proxy_bypass(address.netloc) else getproxies()
    name = "https_proxy" if proxies.get("https") else "all_proxy"
    proxy = proxies.get(name.partition("_")[0])
    if address.scheme == "http":  # only of this machine, which no proxy leads to
        return HTTPConnection(address.netloc, timeout=_SILENCE_S)
    context = ssl.create_default_context()
    if not proxy:
        return HTTPSConnection(address.netloc, timeout=_SILENCE_S, context=context)
    try:
        by_proxy = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = by_proxy.hostname or "", by_proxy.port or _PORTS["http"]
    except ValueError:
        raise StorageError(f"the environment's {name}", "expected http://HOST:PORT.", "Correct the variable.") from None
    if by_proxy.scheme != "http":
        raise StorageError(
            f"the environment's {name}",
            f"found a proxy of the scheme {by_proxy.scheme}; web servers are read through those of http alone.",
            "Set https_proxy to one, or name the host in no_proxy.",
        )
    connection = HTTPSConnection(host, port, timeout=_SILENCE_S, context=context)
    user = f"{unquote(by_proxy.username or '')}:{unquote(by_proxy.password or '')}"
    basic = {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"} if by_proxy.username else {}
    connection.set_tunnel(address.hostname or "", address.port or _PORTS["https"], basic)
    return connection


@contextmanager
def _answered(
    connection: HTTPConnection, address: SplitResult, range_: tuple[int, int] | None
) -> Iterator[HTTPResponse]:
    """The answer to a request. The connection is kept for the next one if all of the answer is read."""
    if connection.sock is None:
        connection.connect()
    timer = Timer(_ANSWER_S, _shut, [connection.sock])
    timer.daemon = True
    timer.start()
    headers = {"User-Agent": "tokenmill-reader"}
    if range_ is not None:
        headers["Range"] = f"bytes={range_[0]}-{range_[1] - 1}"
    answer = None
    try:
        connection.request("GET", address.path + (f"?{address.query}" if address.query else ""), headers=headers)
        answer = connection.getresponse()
        yield answer
    finally:
        timer.cancel()
        if answer is not None and answer.isclosed():
            _kept()[_key(address)] = connection
        else:
            connection.close()


def _kept() -> dict[tuple[int, str, str], HTTPConnection]:
    if not hasattr(_local, "connections"):
        _local.connections = {}
    connections: dict[tuple[int, str, str], HTTPConnection] = _local.connections
    return connections


def _key(address: SplitResult) -> tuple[int, str, str]:
    return os.getpid(), address.scheme, address.netloc


def _is_readable(connected: socket) -> bool:
    poller = poll()
    poller.register(connected, POLLIN)
    return bool(poller.poll(0))


def _shut(connected: socket) -> None:
    """Ends a read that goes on in another thread: the socket's own limit is of silence, not of the whole answer."""
    with suppress(OSError):
        connected.shutdown(SHUT_RDWR)


def _redirected(url: str, first: SplitResult, address: SplitResult, location: str) -> SplitResult:
    """The address that a redirect names. `first`: that of the URL."""
    try:
        target = _address(urljoin(address.geturl(), quote(location, safe=_IN_ADDRESS)))
    except ValueError:
        what = "the server redirects to what is no address of a web server."
        raise StorageError(url, what, "Check the URL.") from None
    try:
        object_place(f"{target.scheme}://{target.netloc}/any")
    except StorageError as error:
        raise StorageError(url, f"the server redirects to {target.hostname}: {error.what}", "Check the URL.") from None
    hosts = [(one.hostname, one.port or _PORTS[one.scheme]) for one in (first, address, target)]
    named = os.environ.get(_HOSTS, "").lower().replace(" ", "").split(",")
    if hosts[2] not in hosts[:2] and target.hostname not in named:
        raise StorageError(
            url,
            f"{address.netloc} redirects to another host, {target.netloc}.",
            f"If you trust that one, name {target.hostname} in the environment's {_HOSTS}.",
        )
    return target


def _content(url: str, answer: HTTPResponse, range_: tuple[int, int] | None) -> tuple[int, bytes] | None:
    if answer.status == 404:
        answer.read(_BLOCK_BYTES)
        return None
    if answer.status not in (200, 206):
        raise storage_error(url, OSError(f"status code: {answer.status} {responses.get(answer.status, '')}"))
    if answer.length is None and not answer.chunked:  # its headers may have been cut
        raise IncompleteRead(b"")
    stated_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "")) if answer.status == 206 else None
    if range_ is not None and (stated_range is None or int(stated_range[1]) != range_[0]):
        raise no_ranges(url)
    n_bytes_max = range_[1] - range_[0] if range_ else READ_BYTES_MAX
    content = bounded(url, iter(lambda: answer.read(_BLOCK_BYTES), b""), n_bytes_max)
    if answer.length:
        raise IncompleteRead(content, answer.length)
    return int(stated_range[2]) if stated_range else len(content), content
