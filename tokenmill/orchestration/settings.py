"""The settings of Prefect, made before it is imported."""

import logging
import os
from pathlib import Path

from tokenmill.console import console

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


def quiet_environment() -> None:
    """Sets Prefect's settings for a build, which work only before its import. Variables that are already set stay."""
    for name, value in _SETTINGS.items():
        if not (console.level > 1 and "LOGGING" in name):  # with --debug the terminal shows it, too
            os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # no traceback if a signal interrupts the sending of a log record
