"""What Prefect is told before it is imported."""

import logging
import os
from pathlib import Path

from tokenmill import console

_SETTINGS = {
    # Prefect's log goes to its server, not to the terminal.
    "PREFECT_LOGGING_SETTINGS_PATH": str(Path(__file__).with_name("logging.yml")),
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLI_COLORS": "false",
    # By default a server that hangs is asked six times, for a minute each.
    "PREFECT_API_REQUEST_TIMEOUT": "10",
    "PREFECT_CLIENT_MAX_RETRIES": "3",
    # An embedded server writes each event of a task run by itself; in batches, 300 units are settled 13 s sooner. An interval
    # below a second becomes 0 there, and the server takes all of a core.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}


def quiet_environment() -> None:
    """Settings of Prefect for a build, which only count before it is imported; what the environment says already stays."""
    for name, value in _SETTINGS.items():
        if not (console.level > 1 and "LOGGING" in name):  # with --debug the terminal shows it, too
            os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # no traceback when a signal comes while a record is being sent
