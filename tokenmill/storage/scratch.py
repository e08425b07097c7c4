"""Temporary directories of a process. The next process removes what a killed one left."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.storage.atomic import remove_tree
from tokenmill_reader.regular_files import naming


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Yields an empty directory in `parent`, named `prefix` plus some letters. It is removed when the block ends.

    It is locked while this process lives, which also holds against other containers that share the disk. Unlocked leftovers
    are removed first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{prefix}*"):
        if left.is_dir() and (lock := _lock(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    lock = None
    while lock is None:  # before it is locked, another process may remove the new directory as a leftover
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _lock(directory)
    try:
        yield directory
    finally:
        remove_tree(directory)
        os.close(lock)


def _lock(directory: Path) -> int | None:
    """A descriptor that holds the lock of an existing directory; None if the directory is gone or another process has it."""
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
