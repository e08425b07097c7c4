"""Clients of object storage, one for each bucket and process, with credentials from the environment or a named profile."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tokenmill_reader.errors import StorageError
from tokenmill_reader.object_errors import no_credentials, storage_error

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# A request is tried for some seconds here. Who reads tries longer (tokenmill_reader.object_errors).
_RETRIES: Any = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=2), "base": 2},
}
_TIMES = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "120s"}
_ROLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_PROFILE_READ_AGAIN = timedelta(minutes=5)  # so that credentials which another program renews in the file are found
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")

_clients: dict[tuple[Any, ...], ObjectStore] = {}
_lock = Lock()


def client(scheme: str, bucket: str) -> ObjectStore:
    """The client of a bucket, the same one in a process with the same environment. For file, `bucket` is empty.
    Raises StorageError where obstore, credentials or settings are missing."""
    # The key is in memory only. With the process, because a fork has none of the threads that a client works with.
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_SETTINGS)))
    key = (os.getpid(), scheme, bucket, settings)
    with _lock:
        if key not in _clients:
            _clients[key] = _made(scheme, bucket)
        return _clients[key]


def bounded_bytes(url: str, answer: Any, n_bytes_max: int) -> bytes:
    """The bytes of an answer of obstore. Raises StorageError for more than these."""
    return bounded(url, answer.stream(min_chunk_size=n_bytes_max + 1), n_bytes_max)


def bounded(url: str, blocks: Iterable[bytes], n_bytes_max: int) -> bytes:
    """These blocks in one. Raises StorageError for more bytes than these: a server may send as many as it likes."""
    kept, n_bytes = [], 0
    for block in blocks:
        n_bytes += len(block)
        if n_bytes > n_bytes_max:
            raise StorageError(
                url, f"the server sends more than the {n_bytes_max:,} bytes that were asked for.", "Check the endpoint."
            )
        kept.append(block)
    return b"".join(kept)


def keep_off_proxies() -> None:
    """Makes this process, and those that it starts, ask servers of this machine without a proxy."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    hosts = dict.fromkeys([*given.replace(" ", "").split(","), "127.0.0.1", "localhost", "::1"])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, hosts))


def _made(scheme: str, bucket: str) -> ObjectStore:
    keep_off_proxies()
    threads = os.environ.get("TOKIO_WORKER_THREADS")
    if threads is not None and not (threads.isascii() and threads.isdigit() and int(threads)):
        # obstore's runtime ends the process over it
        raise StorageError(
            "the environment's TOKIO_WORKER_THREADS",
            f"expected a number of threads; found {threads!r}.",
            "Correct the variable, or unset it.",
        )
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, LocalStore, S3Store
    except ModuleNotFoundError:
        raise StorageError(
            f"{scheme}://{bucket}",
            "obstore, which reads and writes object storage, is not installed.",
            "Run `pip install tokenmill[storage]`, or tokenmill-reader[storage].",
        ) from None
    options: Any = dict(_TIMES)
    try:
        if scheme == "file":
            return LocalStore("/")
        if scheme == "s3":
            return S3Store(bucket, client_options=options, retry_config=_RETRIES, **_s3_settings(bucket, options))
        options["allow_http"] = _is_on(f"{'GOOGLE' if scheme == 'gs' else 'AZURE'}_ALLOW_HTTP")
        if scheme == "gs":
            return GCSStore(bucket, client_options=options, retry_config=_RETRIES)
        return AzureStore(bucket, client_options=options, retry_config=_RETRIES)
    except (BaseError, ValueError) as error:
        raise storage_error(f"{scheme}://{bucket}", error) from None


def _s3_settings(bucket: str, options: dict[str, Any]) -> dict[str, Any]:
    """The settings that obstore does not read from the environment. Also sets the options of the connection."""
    name = os.environ.get("AWS_PROFILE", "default")
    profile = _profile(name)
    endpoint = _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") or profile.get("endpoint_url")
    region = _first("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")
    settings = {key: value for key, value in (("endpoint", endpoint), ("region", region)) if value}
    if endpoint is not None and endpoint.lower().startswith("http://"):
        if not _is_on("AWS_ALLOW_HTTP"):
            raise StorageError(
                f"s3://{bucket}",
                f"the endpoint {endpoint} has no TLS, so others on the network can read the data.",
                "Name an https:// endpoint in AWS_ENDPOINT_URL, or set AWS_ALLOW_HTTP=true.",
            )
        options["allow_http"] = True
    if bool(_first("AWS_ACCESS_KEY_ID")) != bool(_first("AWS_SECRET_ACCESS_KEY")):
        raise StorageError(
            f"s3://{bucket}",
            "expected both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or none of them; only one is set.",
            "Set both, or none of them.",
        )
    if _first("AWS_ACCESS_KEY_ID") or _is_on("AWS_SKIP_SIGNATURE"):
        return settings
    if "aws_access_key_id" in profile and "aws_secret_access_key" in profile:
        return settings | {"credential_provider": lambda: _credentials(name)}
    if "AWS_PROFILE" in os.environ:
        kind = "of another kind (a role, single sign-on or a program)" if profile else "missing"
        raise StorageError(
            f"s3://{bucket}",
            f"the keys of profile {name!r}, which AWS_PROFILE names, are {kind} in "
            f"{_file('credentials')} and {_file('config')}.",
            "Put aws_access_key_id and aws_secret_access_key there, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
            "and, where it is needed, AWS_SESSION_TOKEN.",
        )
    if not _first(*_ROLES) and _is_on("AWS_EC2_METADATA_DISABLED"):
        raise no_credentials(f"s3://{bucket}")
    return settings


def _credentials(name: str) -> Any:
    profile = _profile(name)
    return {
        "access_key_id": profile.get("aws_access_key_id", ""),
        "secret_access_key": profile.get("aws_secret_access_key", ""),
        "token": profile.get("aws_session_token"),
        "expires_at": datetime.now(timezone.utc) + _PROFILE_READ_AGAIN,
    }


def _profile(name: str) -> dict[str, str]:
    """The settings of a profile, those of the credentials file first; none if there is no such profile."""
    settings: dict[str, str] = {}
    for kind, section in (("config", name if name == "default" else f"profile {name}"), ("credentials", name)):
        parser = configparser.RawConfigParser()
        try:
            parser.read(_file(kind), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            # Its message would show the line, which may be a secret.
            raise StorageError(
                _file(kind), "expected a file of profiles in the INI format; found something else.", "Correct it."
            ) from None
        if parser.has_section(section):
            settings |= {key: value.strip() for key, value in parser.items(section)}
    return settings


def _file(kind: str) -> Path:
    variable = {"credentials": "AWS_SHARED_CREDENTIALS_FILE", "config": "AWS_CONFIG_FILE"}[kind]
    return Path(os.environ.get(variable) or f"~/.aws/{kind}").expanduser()


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "1", "yes", "on")
