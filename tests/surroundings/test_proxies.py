"""Proxies, certificates and settings in the environment: builds reach their own server past any proxy, or name what is wrong."""

import os
import sys
from pathlib import Path

import httpx
import pytest

import tokenmill
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import serving
from tests.builders.s3_server import environment
from tests.conftest import Project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import ParamsError, TokenmillError
from tokenmill.orchestration.address import answered_by_server
from tokenmill.orchestration.settings import quiet_environment
from tokenmill.storage.objects import get
from tokenmill_reader.errors import OutageError, StorageError
from tokenmill_reader.web import read_web

DEAD = "http://127.0.0.1:9"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*VARIABLES, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        for spelling in (name, name.upper()):
            monkeypatch.setenv(spelling, "")  # restored afterwards also where it was not set
            monkeypatch.delenv(spelling)
    return monkeypatch


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
        ("SSL_CERT_FILE", __file__, "SSL_CERT_FILE: .*test_proxies.py: .* no certificate"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR: there is no /nowhere"),
        ("PREFECT_API_SSL_CERT_FILE", "/nowhere/ca.pem", "PREFECT_API_SSL_CERT_FILE: there is no /nowhere/ca.pem"),
    ],
)
def test_a_variable_that_prefects_client_cannot_use_is_named(
    no_proxies: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    no_proxies.setenv(name, value)
    with pytest.raises(ParamsError, match=words):
        quiet_environment()


def test_a_server_that_fails_at_a_request_is_named(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("PREFECT_API_URL", "http://me:secret@127.0.0.1:9/api")
    with (
        pytest.raises(TokenmillError, match=r"at http://127\.0\.0\.1:9/api failed: "),
        answered_by_server(),
    ):
        httpx.get(DEAD)


def test_a_publication_beside_wrong_certificates_is_refused_before_it_begins(
    project: Project, no_proxies: pytest.MonkeyPatch
) -> None:
    no_proxies.setenv("SSL_CERT_DIR", "/nowhere")
    done = project.cli("publish", "tokenizer@v1.0.0")
    assert done.returncode == 2
    assert done.stderr.startswith("tokenmill: error[TM100]: the environment's SSL_CERT_DIR: there is no /nowhere")


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


def test_a_web_server_of_another_machine_is_asked_through_a_proxy(
    no_proxies: pytest.MonkeyPatch, proxy: tuple[str, list[bytes]]
) -> None:
    address, heard = proxy
    no_proxies.setenv("ALL_PROXY", f"me:word@{address}")
    with pytest.raises(OutageError, match="cannot be reached now"):
        read_web("https://example.org/any", None)
    assert heard[0].startswith(b"CONNECT example.org:443 ") and b"Proxy-Authorization: Basic bWU6d29yZA==" in heard[0]
    no_proxies.setenv("ALL_PROXY", f"socks5h://{address}")
    with pytest.raises(StorageError, match="environment's all_proxy: found a proxy of the scheme socks5h"):
        read_web("https://example.org/any", None)
