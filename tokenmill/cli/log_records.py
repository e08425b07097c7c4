"""Log records of all libraries in a command's process: they say no passwords."""

import logging
import traceback
from contextlib import suppress
from typing import Any

from tokenmill_reader.shown import without_passwords


def without_passwords_in_logs() -> None:
    """Cuts passwords out of every log record that is made from now on, which a terminal or a Prefect server may show."""
    logging.setLogRecordFactory(_record)


def _record(*arguments: Any, **named: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **named)
    with suppress(TypeError, ValueError, KeyError):  # arguments that do not fit, which logging reports when it writes
        message = record.getMessage()
        if (cleaned := without_passwords(message)) != message:
            record.msg, record.args = cleaned, None
    if record.exc_info and record.exc_info[1]:
        record.exc_text = without_passwords("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
    return record
