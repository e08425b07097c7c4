"""The settings of Prefect, made before it is imported."""

import logging
import os
import warnings
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from pydantic import ValidationError

from tokenmill.console import console
from tokenmill.errors import ParamsError, first_finding
from tokenmill.orchestration.settings_files import check_files
from tokenmill.storage.certificates import check_certificates
from tokenmill_reader.object_clients import keep_off_proxies

_SETTINGS = {
    # Prefect's log goes to its server, not to the terminal.
    "PREFECT_LOGGING_SETTINGS_PATH": str(Path(__file__).with_name("logging.yml")),
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLI_COLORS": "false",
    # By default, a server that hangs gets six requests of a minute each.
    "PREFECT_API_REQUEST_TIMEOUT": "10",
    "PREFECT_CLIENT_MAX_RETRIES": "3",
    # An embedded server writes each task-run event separately by default; in batches, 300 units are recorded 13 s sooner. It
    # rounds an interval below one second to 0, and then uses a whole core.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}


_PROXY_SCHEMES = ("", "http", "https", "socks5", "socks5h")


def quiet_environment() -> None:
    """Sets Prefect's settings for a build, which work only before its import. Variables that are already set stay.

    Raises ParamsError for a variable of proxies or certificates with which Prefect's client does not start.
    """
    for name, value in _SETTINGS.items():
        if not (console.level > 1 and "LOGGING" in name):  # with --debug the terminal shows it, too
            os.environ.setdefault(name, value)
    # It tries to make the folder of the account even where the project's own is used.
    warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")
    logging.raiseExceptions = False  # no traceback if a signal interrupts the sending of a log record
    _prepare_network()


def load_settings() -> None:
    """Sets Prefect's settings as `quiet_environment` does, and imports Prefect. Raises ParamsError, also for a setting that Prefect
    refuses."""
    quiet_environment()
    check_files()
    import_module("fsspec")  # Prefect imports it, and its mistakes about files of its own are none of Prefect's
    try:
        from prefect.settings import get_current_settings

        get_current_settings()
    except ValueError as error:  # of pydantic, TOML and UTF-8
        what = first_finding(error) if isinstance(error, ValidationError) else str(error)
        raise ParamsError(
            "the settings of Prefect",
            f"{what}.",
            "Correct it in a variable PREFECT_…, prefect.toml, pyproject.toml, .env or Prefect's profile.",
        ) from None


def _prepare_network() -> None:
    """Keeps requests to this machine from a proxy, which would get the password of the embedded server, and refuses variables with
    which no client can be made."""
    keep_off_proxies()
    for kind, url in getproxies().items():
        scheme = urlsplit(url).scheme if "://" in url else ""
        if kind != "no" and scheme not in _PROXY_SCHEMES:
            allowed = ", ".join(filter(None, _PROXY_SCHEMES))
            raise ParamsError(
                f"the environment's {kind}_proxy",
                f"found a proxy of the scheme {scheme}; allowed: {allowed}.",
                "Unset the variable, or name another proxy.",
            )
    check_certificates()
