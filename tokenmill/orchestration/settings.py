"""What Prefect is told before it is imported."""

import logging
import os
from pathlib import Path


def quiet_environment() -> None:
    """Settings of Prefect that only count before it is imported: its log goes to its server, not to the terminal, and its own
    server keeps up with a build."""
    os.environ.setdefault("PREFECT_LOGGING_SETTINGS_PATH", str(Path(__file__).with_name("logging.yml")))
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.setdefault("PREFECT_CLI_COLORS", "false")
    # Its embedded server writes each event of a task run by itself; in batches, 300 units are settled 13 s sooner. An interval
    # below a second becomes 0 there, and the server takes all of a core.
    for name, value in (("BATCH_SIZE", "500"), ("READ_BATCH_SIZE", "500"), ("FLUSH_INTERVAL", "1")):
        os.environ.setdefault(f"PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_{name}", value)
    logging.raiseExceptions = False  # no traceback when a signal comes while a record is being sent
