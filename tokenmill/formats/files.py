"""Writes the bytes of a part's files in order, and maps files into memory after checking them."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokenmill_reader.regular_files import naming

Put = Callable[[bytes | memoryview | npt.NDArray[Any]], None]
_COPIED_BYTES = 1 << 20


@contextmanager
def new_file(path: Path) -> Iterator[Put]:
    """Yields a function that adds bytes, or the bytes of an array, to a new file. An OSError names the file."""
    with naming(path), path.open("xb") as file:
        yield lambda data: _put(path, file, data)


@contextmanager
def spool(folder: Path) -> Iterator[tuple[Put, IO[bytes]]]:
    """Yields a function that adds bytes to an anonymous temporary file, and that file. It holds data that belongs after a header,
    until the header is known."""
    with naming(folder), tempfile.TemporaryFile(dir=folder) as file:
        yield lambda data: _put(folder, file, data), file


def put_spooled(put: Put, file: IO[bytes]) -> None:
    """Copies all bytes of a spool."""
    file.flush()
    file.seek(0)
    while block := file.read(_COPIED_BYTES):
        put(block)


def arrays(file: IO[bytes], type: npt.DTypeLike) -> Iterator[npt.NDArray[Any]]:
    """Yields the values of a spool in bounded arrays."""
    file.flush()
    file.seek(0)
    while block := file.read(_COPIED_BYTES):
        yield np.frombuffer(block, dtype=type)


def _put(path: Path, file: IO[bytes], data: bytes | memoryview | npt.NDArray[Any]) -> None:
    with naming(path):
        file.write(np.ascontiguousarray(data).view(np.uint8).data if isinstance(data, np.ndarray) else data)
