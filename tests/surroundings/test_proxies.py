"""Proxies, certificates and settings in the environment: builds reach their own server past any proxy, or name what is wrong."""

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import serving
from tests.builders.s3_server import environment
from tests.conftest import Project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import ParamsError
from tokenmill.orchestration.settings import quiet_environment
from tokenmill.storage.objects import get

DEAD = "http://127.0.0.1:9"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*VARIABLES, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        for spelling in (name, name.upper()):
            monkeypatch.setenv(spelling, "")  # restored afterwards also where it was not set
            monkeypatch.delenv(spelling)
    return monkeypatch


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that answers nothing: its address, and what it was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            while True:
                try:
                    with listener.accept()[0] as connection:
                        heard.append(connection.recv(1 << 12))
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"http_proxy": "http://{}", "https_proxy": "http://{}", "no_proxy": ""},
        {"HTTP_PROXY": "http://{}", "HTTPS_PROXY": "http://{}", "ALL_PROXY": "http://{}", "NO_PROXY": ""},
        {"all_proxy": "socks5h://{}"},
        {"ALL_PROXY": "socks5://{}", "no_proxy": "example.org"},
    ],
    ids=["lower case", "upper case", "socks5h", "socks5"],
)
def test_a_build_tells_a_proxy_nothing_of_its_own_server(
    project: Project, proxy: tuple[str, list[bytes]], no_proxies: pytest.MonkeyPatch, variables: Mapping[str, str]
) -> None:
    address, heard = proxy
    given = {name: value.format(address) for name, value in variables.items()}
    project.set(run__engine="threads")
    done = project.run(sys.executable, "-m", "tokenmill", "build", **given)
    assert done.returncode == 0, done.stderr
    assert heard == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "all_proxy",
            "socks4://127.0.0.1:9",
            "all_proxy: found a proxy of the scheme socks4; allowed: http, https, socks5",
        ),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9", "https_proxy: found a proxy of the scheme ftp"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE: there is no /nowhere/ca.pem"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR: there is no /nowhere"),
    ],
)
def test_a_variable_that_prefects_client_cannot_use_is_named(
    no_proxies: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    no_proxies.setenv(name, value)
    with pytest.raises(ParamsError, match=words):
        quiet_environment()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PREFECT_LOGGING_LEVEL", "loud", "level: Input should be 'DEBUG'"),
        ("PREFECT_CLIENT_MAX_RETRIES", "some", "max_retries: Input should be a valid integer"),
        ("PREFECT_API_REQUEST_TIMEOUT", "ten", "request_timeout: Input should be a valid number"),
    ],
)
def test_a_setting_that_prefect_refuses_is_named(project: Project, name: str, value: str, words: str) -> None:
    project.set(run__engine="threads")
    for command in ("build", "doctor"):
        done = project.run(sys.executable, "-m", "tokenmill", command, **{name: value})
        assert done.returncode == (2 if command == "build" else 1)
        assert f"the settings of Prefect: {words}" in (done.stderr if command == "build" else done.stdout)


@pytest.mark.parametrize("value", [DEAD, "127.0.0.1:9", "socks5h://127.0.0.1:9"])
def test_a_client_of_this_machine_takes_no_proxy_and_one_of_another_machine_does(
    no_proxies: pytest.MonkeyPatch, value: str
) -> None:
    import httpx

    no_proxies.setenv("ALL_PROXY", value)
    no_proxies.setenv("NO_PROXY", "example.org, localhost")
    quiet_environment()
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,localhost,127.0.0.1,::1"
    with httpx.Client() as client:
        direct = client._transport
        for url in ("http://127.0.0.1:4200/api", "http://localhost:4200", "http://[::1]:4200", "https://example.org"):
            assert client._transport_for_url(httpx.URL(url)) is direct, url
        assert client._transport_for_url(httpx.URL("https://example.com")) is not direct


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_object_storage_on_this_machine_is_asked_without_a_proxy(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch, proxy: tuple[str, list[bytes]], name: str
) -> None:
    address, heard = proxy
    local = documents_dataset(tmp_path / "local", [[[1, 2], [3]]], ["arrow"])
    digest = read_manifest(local).digest[:16]
    (tmp_path / "server/bucket" / digest).mkdir(parents=True)
    local.rename(tmp_path / "server/bucket" / digest / "tokens")
    no_proxies.setenv(name, f"http://{address}")
    with serving(tmp_path / "server") as server, environment(server.url, tmp_path):
        assert get(f"s3://bucket/{digest}/tokens/manifest.json")
        dataset = tokenmill.open(f"s3://bucket/{digest}", cache=tmp_path / "cache")
        assert [ids.tolist() for ids in dataset] == [[1, 2], [3]]
    assert heard == []
