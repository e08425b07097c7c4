"""Checks that the server that Prefect is configured to use answers."""

import os
import re
import threading
from urllib.parse import urlsplit

from tokenmill.console import say
from tokenmill.errors import TokenmillError
from tokenmill.orchestration.settings import quiet_environment

_ANSWER_S_MAX = 10.0
_SILENCE_S_MAX = 2.0
_SHOWN_MAX = 40
_CREDENTIALS = re.compile(r"^(.*?://)?.*@", re.DOTALL)


def check_standing(answer_s_max: float = _ANSWER_S_MAX) -> str | None:
    """The URL of the standalone server that Prefect is configured to use; None if it is configured to use none.

    Raises TokenmillError if that server does not answer, or if the URL is malformed or belongs to another service. Prefect
    itself would retry for a minute and end in a traceback.
    """
    import httpx

    if not (url := os.environ.get("PREFECT_API_URL")):  # the environment overrides all other settings
        quiet_environment()
        from prefect.settings import PREFECT_API_URL

        if not (url := PREFECT_API_URL.value()):
            return None
    _refuse_no_address(url)
    shown = without_password(url)
    waiting = f"waiting for an answer of Prefect's server at {shown}, {answer_s_max:.0f} s"
    timer = threading.Timer(_SILENCE_S_MAX, say, [waiting])
    timer.daemon = True
    timer.start()
    try:
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=answer_s_max)
        if answer.status_code != httpx.codes.NOT_FOUND:
            answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TokenmillError(
            f"PREFECT_API_URL: no Prefect server answers at {shown} ({type(error).__name__}). Start it (`prefect server start`), "
            "unset PREFECT_API_URL, or set run.engine: inline in params.yaml.",
            code="TM703",
        ) from None
    finally:
        timer.cancel()
    is_cloud = answer.url.host.endswith("prefect.cloud")  # its health answer may differ
    if answer.status_code == httpx.codes.NOT_FOUND or not (is_cloud or answer.text.strip() == "true"):
        found = f"{answer.status_code}, {answer.text[:_SHOWN_MAX]!r}"
        root = shown.rstrip("/")
        meant = "" if root.endswith("/api") else f" A Prefect server's address ends with /api: {root}/api?"
        raise TokenmillError(
            f"PREFECT_API_URL: what answers at {shown} is not the API of a Prefect server: expected true from "
            f"{without_password(str(answer.url))}, found {found}.{meant} Correct or unset it, or set run.engine: inline in "
            "params.yaml.",
            code="TM703",
        )
    return url


def place(url: str) -> str:
    """How messages name the server at `url`: by its web page, if its address follows from that of the API."""
    address = without_password(url).rstrip("/")
    page = address.removesuffix("/api")
    return f"Prefect's API at {address}" if page == address else f"Prefect at {page}"


def without_password(text: str) -> str:
    """A server address, or a text with one, without user name and password."""
    return _CREDENTIALS.sub(r"\1", text)


def _refuse_no_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in url
    except ValueError:  # an invalid port or IPv6 address
        is_address = False
    if not is_address:
        raise TokenmillError(
            f"PREFECT_API_URL: found {without_password(url)!r}, expected the address of a Prefect server's API, like "
            "http://127.0.0.1:4200/api. Correct or unset it, or set run.engine: inline in params.yaml.",
            code="TM703",
        )
