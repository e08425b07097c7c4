"""Says what to install where a file is read that only pyarrow reads."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tokenmill_reader.errors import ParamsError


def has_pyarrow() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def need_pyarrow(path: Path) -> None:
    """Raises ParamsError if pyarrow is not installed. `path`: the file that it is to read."""
    if not has_pyarrow():
        raise ParamsError(
            path,
            "is an Arrow or Parquet file, which needs pyarrow, and pyarrow is not installed.",
            "Install it (pip install pyarrow), or build with a format that numpy reads alone, such as megatron.",
        )
