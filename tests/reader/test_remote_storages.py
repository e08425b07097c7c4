"""A dataset is read where `tokenmill upload` can put it, and where a web server has it; each mistake has one clear message."""

import functools
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from tests.builders.cloud_servers import cloud
from tests.builders.document_sets import documents_dataset
from tests.builders.object_server import serving
from tests.builders.s3_server import environment, moto, s3s
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import StorageError, ValidationError

PARTS = [[[part * 10 + k] * 30 for k in range(5)] for part in range(4)]


class Quiet(SimpleHTTPRequestHandler):
    """A static server that does not know ranges."""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class StaticServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that do not want a whole file."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents_dataset(tmp_path_factory.mktemp("local") / "tokens", PARTS, ["megatron"])


def digest_of(local: Path) -> str:
    return read_manifest(local).digest[:16]


def has_the_items(url: str, cache: Path, local: Path) -> bool:
    there, here = tokenmill.open(url, cache=cache), tokenmill.open(local)
    return len(there) == len(here) > 0 and all(np.array_equal(a, b) for a, b in zip(there, here, strict=True))


@contextmanager
def static_server(folder: Path, certificate: Path | None = None) -> Iterator[str]:
    """The address of a server without ranges."""
    with StaticServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_a_dataset_in_another_cloud_is_read(scheme: str, tmp_path: Path, local: Path) -> None:
    with cloud(scheme, tmp_path) as (server, _):
        for path in local.rglob("*"):
            if path.is_file():
                key = f"datasets/{digest_of(local)}/tokens/{path.relative_to(local).as_posix()}"
                server.put(key, path.read_bytes())
        assert has_the_items(f"{scheme}://bucket/datasets/{digest_of(local)}", tmp_path / "cache", local)
        with pytest.raises(StorageError, match=rf"{scheme}://other: there is no such bucket"):
            tokenmill.open(f"{scheme}://other/{digest_of(local)}", cache=tmp_path / "other")
        with pytest.raises(ValidationError, match=rf"{scheme}://bucket/0{{16}}: expected an uploaded dataset"):
            tokenmill.open(f"{scheme}://bucket/{'0' * 16}", cache=tmp_path / "other")


def test_a_web_server_must_answer_ranges(tmp_path: Path, local: Path) -> None:
    shutil.copytree(local, tmp_path / "web" / digest_of(local) / "tokens")
    with serving(tmp_path / "web") as server:
        assert has_the_items(f"{server.url}/{digest_of(local)}", tmp_path / "cache", local)
    with static_server(tmp_path / "web") as address:
        dataset = tokenmill.open(f"http://{address}/{digest_of(local)}", cache=tmp_path / "other")
        with pytest.raises(StorageError, match=r"\.bin: the server does not answer requests for a range of bytes"):
            _ = dataset[0]


def test_the_certificate_of_a_web_server_is_checked(tmp_path: Path, local: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    shutil.copytree(local, tmp_path / "web" / digest_of(local) / "tokens")
    certificate = tmp_path / "certificate.pem"
    asked = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    asked += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    asked += ["-keyout", str(certificate), "-out", str(tmp_path / "public.pem")]
    subprocess.run(["openssl", "req", *asked], check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "public.pem").read_bytes())
    with static_server(tmp_path / "web", certificate) as address, pytest.MonkeyPatch.context() as patch:
        url = f"https://{address}/{digest_of(local)}"
        with pytest.raises(StorageError, match=r"the server's certificate is not trusted on .* in SSL_CERT_FILE"):
            tokenmill.open(url, cache=tmp_path / "cache")
        patch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
        assert tokenmill.open(url, cache=tmp_path / "cache").manifest.n_documents == 20


@pytest.mark.slow
def test_a_missing_bucket_of_s3_has_a_message(tmp_path: Path, local: Path) -> None:
    said = "s3://other: there is no such bucket"
    with moto() as url, environment(url, tmp_path), pytest.raises(StorageError, match=said):
        tokenmill.open(f"s3://other/{digest_of(local)}", cache=tmp_path / "cache")


def test_wrong_credentials_have_a_message(tmp_path: Path, local: Path) -> None:
    (tmp_path / "server/bucket").mkdir(parents=True)
    with s3s(tmp_path / "server") as url, environment(url, tmp_path) as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(StorageError, match=r"the storage does not take the credentials .* Correct or renew them"):
            tokenmill.open(f"s3://bucket/{digest_of(local)}", cache=tmp_path / "cache")
