"""Writes the bytes of a part's files in order, and maps files into memory after checking them."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import ValidationError
from tokenmill.formats.item_checks import REBUILD
from tokenmill.storage.atomic import naming, open_regular

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


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of a file, mapped into memory. Raises ValidationError if it is missing or no file."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
                return np.empty(0, np.uint8)
            return np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)
    except FileNotFoundError:
        raise ValidationError(path, "is missing.", REBUILD) from None


def values(found: npt.NDArray[np.uint8], type: npt.DTypeLike, start: int, n_values: int) -> npt.NDArray[Any]:
    """Values in a mapped file that is known to be long enough, without a copy."""
    return found[start : start + n_values * np.dtype(type).itemsize].view(type)


def whole_values(path: Path, type: npt.DTypeLike) -> npt.NDArray[Any]:
    """A file of values alone, mapped into memory. Raises ValidationError if its size is not a whole number of them."""
    found = map_file(path)
    if found.size % np.dtype(type).itemsize:
        raise ValidationError(
            path, f"expected values of {np.dtype(type).itemsize} bytes each; found {found.size:,} bytes.", REBUILD
        )
    return found.view(type)


def _put(path: Path, file: IO[bytes], data: bytes | memoryview | npt.NDArray[Any]) -> None:
    with naming(path):
        file.write(np.ascontiguousarray(data).view(np.uint8).data if isinstance(data, np.ndarray) else data)
