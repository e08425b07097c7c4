"""Reads regular files alone: a FIFO, a device or a folder is an error, and so is a small file that turns out to be huge."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READ_BYTES_MAX = 2**29
"""A file that is read at once has 40 MB at most (a tokenizer), or some hundred bytes for each input file (a manifest). More is a
mistake, or a sparse file that somebody made to fill the memory."""

_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # Windows has neither
_DIGESTED_BYTES = 1 << 20  # at a time


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds this path to an OSError of the block that names no file; errors of read and write calls do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def read(path: Path) -> bytes:
    """The bytes of a small regular file. A read error names the file. Raises OSError for a file of more than 512 MiB."""
    with naming(path), open(path, "rb", opener=open_small) as file:
        return file.read()


def open_small(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Opens like `open_regular`, but raises OSError for a file that is too large to be read at once."""
    descriptor = open_regular(path, flags)
    n_bytes = os.fstat(descriptor).st_size
    if n_bytes <= READ_BYTES_MAX:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EFBIG, words_of_large(n_bytes), str(path))


def words_of_large(n_bytes: int) -> str:
    """The message about a file that is too large to be read at once."""
    return f"it has {n_bytes:,} bytes, and {READ_BYTES_MAX:,} are expected at most"


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor for `open(..., opener=)`. Raises OSError unless the path is a regular file: reading a FIFO may never end."""
    descriptor = os.open(path, flags | _FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a FIFO, a socket or a device", str(path))


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    digest, block = hashlib.sha256(), memoryview(bytearray(_DIGESTED_BYTES))
    with naming(path), open(path, "rb", buffering=0, opener=open_regular) as file:
        while n_bytes := file.readinto(block):
            digest.update(block[:n_bytes])
    return digest.hexdigest()
