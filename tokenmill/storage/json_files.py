"""Reads small files of JSON that others may have written."""

import json
from pathlib import Path
from typing import Any

from tokenmill_reader.regular_files import read


def read_json(path: Path) -> Any:
    """The value in a file of JSON. Raises ValueError, as `parse_json` does, and OSError, as `read` does."""
    return parse_json(read(path))


def parse_json(content: bytes | str) -> Any:
    """The value of JSON. Raises ValueError, also where it is nested deeper than Python's reader goes.

    >>> parse_json("[1]")
    [1]
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
