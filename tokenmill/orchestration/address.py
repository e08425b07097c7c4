"""Checks that the server that Prefect is configured to use answers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tokenmill.errors import TokenmillError
from tokenmill.orchestration.settings import load_settings, quiet_environment
from tokenmill_reader.shown import without_passwords

_ANSWER_S_MAX = 10.0
_SHOWN_MAX = 40


def check_standing(answer_s_max: float = _ANSWER_S_MAX) -> str | None:
    """The URL of the standalone server that Prefect is configured to use; None if it is configured to use none.

    Raises TokenmillError if no Prefect server answers there. Prefect itself would retry for a minute and end in a traceback.
    """
    quiet_environment()
    import httpx

    if not (url := os.environ.get("PREFECT_API_URL")):  # the environment overrides all other settings
        load_settings()
        from prefect.settings import PREFECT_API_URL

        if not (url := PREFECT_API_URL.value()):
            return None
    try:
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=answer_s_max)
        if answer.is_success and (answer.text.strip() == "true" or answer.url.host.endswith("prefect.cloud")):
            return url
        what_answered = f"{answer.status_code}, {answer.text[:_SHOWN_MAX]!r}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what_answered = type(error).__name__
    raise TokenmillError(
        "PREFECT_API_URL",
        f"no Prefect server answers at {shown(url)} ({what_answered}).",
        "Start one (`prefect server start`), correct the address, which is like http://127.0.0.1:4200/api, unset it, "
        "or set run.engine: inline in params.yaml.",
        code="TM703",
    )


@contextmanager
def answered_by_server() -> Iterator[None]:
    """Turns a request that the server refused or did not answer in the block into a TokenmillError, which names its address."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TokenmillError(
            "PREFECT_API_URL",
            f"the Prefect server at {shown(os.environ['PREFECT_API_URL'])} failed: {reason}.",
            "Look into its log, and run this command again. It goes on where it was.",
            code="TM703",
        ) from error


def shown(url: str) -> str:
    """The address of a server for a message, without user and password, also one that was written without http://."""
    return without_passwords(url).replace("***@", "") if "://" in url else url.rpartition("@")[2]
