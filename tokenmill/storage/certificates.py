"""Checks the variables that name certificates: clients of Prefect, and git's library, end in a traceback over wrong ones."""

import os
import ssl
from pathlib import Path

from tokenmill.errors import ParamsError

_FILES = ("SSL_CERT_FILE", "PREFECT_API_SSL_CERT_FILE")
_FOLDERS = ("SSL_CERT_DIR",)


def check_certificates() -> None:
    """Raises ParamsError for a variable of these that names no folder, or no file of certificates."""
    for name in (*_FILES, *_FOLDERS):
        path = os.environ.get(name)
        if path and (what := _wrong_file(path) if name in _FILES else _wrong_folder(path)):
            raise ParamsError(f"the environment's {name}", f"{what}.", "Correct the variable, or unset it.")


def _wrong_file(path: str) -> str:
    if not Path(path).is_file():
        return f"there is no {path}, or it is no file"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:
        return f"{path}: {error}"
    return ""


def _wrong_folder(path: str) -> str:
    return "" if Path(path).is_dir() else f"there is no {path}, or it is no folder"
