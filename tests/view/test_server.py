"""The page is served to whoever knows its address, and to nobody else."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.builders import in_process
from tests.conftest import REPOSITORY
from tests.times import PATIENCE_S
from tests.view.conftest import HOSTILE, Serve
from tokenmill.features.view.answering import Answering


def get(url: str, path: str = "", host: str | None = None, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the content of a reply."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path if path.startswith("/") else address.path + path, headers=headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, dict(reply.headers), content


def test_the_page_has_a_policy_and_only_files_of_its_own(texts: Path, serve: Serve) -> None:
    url = serve(Answering(texts)).url
    for name, kind in (("", "html"), ("page.css", "css"), ("page.js", "javascript")):
        status, headers, content = get(url, name)
        assert (status, headers["Content-Type"]) == (200, f"text/{kind}; charset=utf-8")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
        assert b"http:" not in content and b"https:" not in content and b"innerHTML" not in content
        assert get(url, name, method="HEAD")[::2] == (200, b"")


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/info", "/wrong/api/info", "/%00/", "/%C3%A9/", "//"])
def test_without_the_secret_there_is_nothing(path: str, texts: Path, serve: Serve) -> None:
    status, _, content = get(serve(Answering(texts)).url, path)
    assert (status, content) == (404, b"Nothing is here.\n")


def test_other_names_of_the_host_are_refused(texts: Path, serve: Serve) -> None:
    url = serve(Answering(texts)).url
    for host in ("example.org", "127.0.0.1.example.org:80", "localhost.example.org", "", ":80"):
        assert get(url, "api/info", host)[::2] == (403, b"The name of this host is not allowed.\n")
    for host in ("localhost:1", "127.0.0.1:9000", "localhost"):
        assert get(url, "api/info", host)[0] == 200


def test_only_questions_are_answered(texts: Path, serve: Serve) -> None:
    url = serve(Answering(texts)).url
    for path in ("api/_set", "api/", "info", "../page.html", "dataset_view.py", "api/info/"):
        assert get(url, path)[0] == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(url, "api/info", method=method)[0] == 501
    status, _, content = get(url, "api/item?i=x%00")
    assert status == 400
    assert json.loads(content) == {"error": r"i: expected a number from 0 on, less than 69; found 'x\x00'."}


def test_hostile_text_is_plain_data(texts: Path, serve: Serve) -> None:
    status, headers, content = get(serve(Answering(texts)).url, "api/item?i=40")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert content.isascii() and json.loads(content)["text"].startswith(HOSTILE[:20])


def test_an_answer_that_takes_too_long_is_an_error(texts: Path, serve: Serve) -> None:
    status, _, content = get(serve(Answering(texts, seconds_max=1e-6)).url, "api/items")
    assert status == 503 and b"the answer takes more than 1e-06 s. Run `tokenmill verify`" in content


def test_a_process_that_ended_is_replaced(texts: Path, serve: Serve) -> None:
    answering = Answering(texts)
    url = serve(answering).url
    assert get(url, "api/info")[0] == 200
    assert answering._process is not None
    answering._process.kill()
    assert [get(url, "api/info")[0] for _ in range(2)] == [503, 200]


def test_connections_without_a_request_hinder_nobody(
    texts: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(Answering(texts))
    idle = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(100)]
    idle[-1].sendall(b"GET / HT")
    assert get(server.url, "api/info")[0] == 200
    monkeypatch.setattr("tokenmill.features.view.server._IDLE_S_MAX", 0.01)
    for one in idle:
        one.settimeout(20)
        assert one.recv(1) == b""
        one.close()


def test_each_start_has_a_secret_of_its_own(texts: Path, serve: Serve) -> None:
    answering = Answering(texts)
    urls = {urlsplit(serve(answering).url).path for _ in range(3)}
    assert len(urls) == 3 and all(len(one) >= 34 for one in urls)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_prints_the_address_and_ends_with_ctrl_c(options: tuple[str, ...], texts: Path) -> None:
    command = [sys.executable, "-m", "tokenmill", "view", str(texts), *options]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        line = running.stdout.readline()
        url = json.loads(line)["result"]["url"] if options else line.rstrip("\n")
        assert get(url, "api/info")[0] == 200
    finally:
        running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (130, "tokenmill: interrupted.\n")


def test_mistakes_have_the_errors_of_other_commands(texts: Path, tmp_path: Path) -> None:
    none = in_process.tokenmill(tmp_path, "view", str(tmp_path))
    assert none.returncode == 2 and "error[TM502]" in none.stderr
    no_other = in_process.tokenmill(tmp_path, "view", str(texts), "--other", "nothing.json")
    assert no_other.returncode == 2 and "nothing.json" in no_other.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = in_process.tokenmill(tmp_path, "view", str(texts), "--port", str(port))
        words = f"--port {port}: is in use by process {os.getpid()} ("
        assert said.returncode == 2 and words in said.stderr and said.stderr.count("\n") == 1
    none = in_process.tokenmill(tmp_path, "view", str(texts), "--port", "70000")
    assert none.returncode == 2 and "--port 70000: is no port; allowed: 0 to 65535." in none.stderr
