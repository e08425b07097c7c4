"""Files of web servers: in ranges, and without redirects to hosts that nobody named."""

from collections.abc import Iterator
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


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://localhost:PORT/a%20b%3F%23", "redirects to another host, localhost:"),
        ("//localhost:PORT/a%20b%3F%23", "redirects to another host, localhost:"),
        ("https://example.org/any", "redirects to another host, example.org"),
        ("http://169.254.169.254/latest/meta-data", "has no TLS"),
        ("https://user:word@example.org/any", "the URL holds a password"),
        ("file:///etc/passwd", "redirects to what is no address"),
        ("http://[", "redirects to what is no address"),
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
    monkeypatch.setenv("TOKENMILL_REDIRECT_HOSTS", "example.org, localhost")
    server.faults.redirects = {"old": f"http://localhost:{server.server_port}/a%20b%3F%23"}
    assert read_web(f"{server.url}/old", (0, 9)) == (len(CONTENT), CONTENT[:9])


def test_more_bytes_than_were_asked_for_are_refused(server: ObjectServer) -> None:
    server.faults.n_more = 1
    with pytest.raises(StorageError, match="the server sends more than the 9 bytes that were asked for"):
        read_web(f"{server.url}/a b?#", (0, 9))
