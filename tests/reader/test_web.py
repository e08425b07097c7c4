"""Files of web servers: in ranges, and without redirects to hosts that nobody named."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders.object_server import ObjectServer, serving
from tokenmill_reader.errors import OutageError, StorageError
from tokenmill_reader.web import read_web

CONTENT = bytes(range(256)) * 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    (tmp_path / "a b?#").write_bytes(CONTENT)
    with serving(tmp_path) as server:
        yield server


def test_a_file_is_read_in_ranges_over_one_connection(server: ObjectServer) -> None:
    url = f"{server.url}/a b?#"
    assert read_web(url, None) == (len(CONTENT), CONTENT)
    assert read_web(url, (5, 300)) == (len(CONTENT), CONTENT[5:300])
    assert read_web(f"{server.url}/other", (5, 300)) is None
    assert server.n_connections == 1


def test_a_connection_that_the_server_cut_is_made_anew(server: ObjectServer) -> None:
    url = f"{server.url}/a b?#"
    server.faults.shares = (0, 1, 0)
    with pytest.raises(OutageError, match="the connection was cut"):
        read_web(url, (0, 100))
    server.faults.shares = (0, 0, 0)
    assert read_web(url, (0, 100)) == (len(CONTENT), CONTENT[:100])


def test_a_redirect_on_the_same_host_is_followed(server: ObjectServer) -> None:
    server.faults.redirects = {"old": "/older?key=secret", "older": f"{server.url}/a%20b%3F%23"}
    assert read_web(f"{server.url}/old", (0, 9)) == (len(CONTENT), CONTENT[:9])


def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that gives one answer, and then cuts the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1 << 12)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/any"
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Le",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-8/20\r\n",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-8/20\r\nContent-Length: 9\r\n\r\n1234",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-8/20\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n12",
        b"HTTP/1.1 500 /latest/meta-data\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 no range\r\nContent-Length: 0\r\n\r\n",
        b"no HTTP\r\n\r\n",
    ],
)
@pytest.mark.parametrize("range_", [None, (0, 9)])
def test_an_answer_that_is_cut_or_damaged_is_an_outage(answer: bytes, range_: tuple[int, int] | None) -> None:
    if range_ is None and b"bytes 0-8/20" in answer:
        return
    with contextmanager(answering)(answer) as url, pytest.raises(OutageError):
        read_web(url, range_)


@pytest.mark.parametrize("url", ["https://host:abc/a", f"https://{'a' * 70}:70000/a", "https://[::1/a"])
def test_what_is_no_host_is_named(url: str) -> None:
    with pytest.raises(StorageError, match="expected https://HOST/") as raised:
        read_web(url, None)
    assert not isinstance(raised.value, OutageError)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://localhost:PORT/a%20b%3F%23", "redirects to another host, localhost:"),
        ("//localhost:PORT/a%20b%3F%23", "redirects to another host, localhost:"),
        ("https://example.org/any", "redirects to another host, example.org"),
        ("http://169.254.169.254/latest/meta-data", "redirects to 169.254.169.254: has no TLS"),
        ("https://user:word@example.org/any", "the URL holds a password"),
        ("file:///etc/passwd", "redirects to what is no address"),
        ("http://[", "redirects to what is no address"),
        ("https:///any", "redirects to what is no address"),
        ("/old", "redirects more than 10 times"),
        ("", "redirects more than 10 times"),
    ],
)
def test_a_redirect_elsewhere_is_refused(server: ObjectServer, location: str, words: str) -> None:
    server.faults.redirects = {"old": location.replace("PORT", str(server.server_port))}
    with pytest.raises(StorageError, match=words) as raised:
        read_web(f"{server.url}/old", (0, 9))
    assert "word@" not in str(raised.value)
    assert server.sent == {}


def test_a_redirect_to_a_named_host_is_followed(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENMILL_REDIRECT_HOSTS", "example.org, Localhost")
    server.faults.redirects = {
        "old": f"http://localhost:{server.server_port}/there",
        "there": f"{server.url}/a%20b%3F%23",  # back to the host of the URL
    }
    assert read_web(f"{server.url}/old", (0, 9)) == (len(CONTENT), CONTENT[:9])


def test_more_bytes_than_were_asked_for_are_refused(server: ObjectServer) -> None:
    server.faults.n_more = 1
    with pytest.raises(StorageError, match="the server sends more than the 9 bytes that were asked for"):
        read_web(f"{server.url}/a b?#", (0, 9))
