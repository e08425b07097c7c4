"""An S3 server on 127.0.0.1, for tests of object storage."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.session import get_session

from tests.conftest import REPOSITORY
from tests.times import PATIENCE_S

S3S = REPOSITORY / ".s3-server/bin/s3s-fs"
KEY = "AKIDEXAMPLE"
SECRET = "sEcrEtKey0123456789abcdefghij"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None and time.monotonic() < deadline, "the S3 server did not start"
        time.sleep(0.05)


ONE_AT_A_TIME = """
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
answer, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
def in_turn(*request):
    with lock:
        return answer(*request)
run_simple("127.0.0.1", int(sys.argv[1]), in_turn, threaded=True)
"""


@contextmanager
def moto() -> Iterator[str]:
    """The URL of a running moto_server."""
    port = free_port()
    with _running([str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)], port) as url:
        yield url


@contextmanager
def moto_one_at_a_time() -> Iterator[str]:
    """The URL of a moto that answers one request after another, so that no writer comes between its look and its write."""
    port = free_port()
    with _running([sys.executable, "-c", ONE_AT_A_TIME, str(port)], port) as url:
        yield url


@contextmanager
def s3s(folder: Path) -> Iterator[str]:
    """The URL of a running s3s-fs, a server in Rust, whose buckets are folders in `folder`. Skips the test without it."""
    if not S3S.exists():
        pytest.skip("`make test-storage` installs the S3 server in Rust")
    port = free_port()
    keys = ["--access-key", KEY, "--secret-key", SECRET]
    with _running([str(S3S), "--host", "127.0.0.1", "--port", str(port), *keys, str(folder)], port) as url:
        yield url


@contextmanager
def _running(command: list[str], port: int) -> Iterator[str]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@contextmanager
def environment(url: str, folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """The environment in which clients find the server at `url`, and no credentials of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_SKIP_SIGNATURE"):
            patch.delenv(name, raising=False)
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        }.items():
            patch.setenv(name, value)
        yield patch


def client(url: str | None = None):  # type: ignore[no-untyped-def]  # botocore makes its methods when it runs
    """A client of the server at `url`, or of the one that the environment names."""
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    return get_session().create_client("s3", region_name="us-east-1", endpoint_url=url, **keys)
