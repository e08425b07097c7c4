"""Directories for what a process needs while it runs; what a killed one left is removed by the next."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.storage.atomic import naming


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Yields an empty directory in `parent`, named `prefix` and some letters, that is gone when the block ends.

    It is locked as long as this process lives, also against other containers that share the disk; those that nobody holds any
    more are removed first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{prefix}*"):
        if left.is_dir() and (lock := _lock(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    lock = None
    while lock is None:  # another process may take the new one for a leftover before it is locked
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _lock(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
        os.close(lock)


def _lock(directory: Path) -> int | None:
    """An open descriptor that holds the lock of a directory that is there; None when another process has it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        with naming(directory):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if directory.exists():
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None
