"""Shares file content on disk: by a clone (reflink) if the file system has them, else by a hard link, else by a copy."""

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from tokenmill.storage.atomic import flush
from tokenmill.storage.writable import may_write
from tokenmill_reader.regular_files import naming

_CLONE = 0x40049409  # FICLONE of linux/fs.h: a copy that shares its blocks until either file is written to
_NO_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS)
NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of file systems without hard links."""

_without_clones: set[tuple[int, int]] = set()  # (from, to) devices; each failed try makes and removes a file


def link(file: Path, target: Path) -> None:
    """Makes `target`, which must not exist, a read-only file with the bytes of the read-only `file`.

    Both may be names of one file, so neither is ever written to. A new version replaces it instead.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    devices = (file.stat().st_dev, target.parent.stat().st_dev)
    if devices not in _without_clones:
        if _clone(file, target):
            return
        _without_clones.add(devices)
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        with naming(target):
            shutil.copyfile(file, target)
        target.chmod(0o444)
        flush(target)


def has_clones(folder: Path) -> bool:
    """Whether files in `folder`, or in its nearest existing parent, can be cloned; never where this user may not write."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    if not may_write(there):
        return False
    with naming(there), tempfile.TemporaryFile(dir=there) as one, tempfile.TemporaryFile(dir=there) as other:
        one.write(b"x")
        one.flush()
        return _clone_open(one.fileno(), other.fileno())


def _clone(file: Path, target: Path) -> bool:
    with naming(target), file.open("rb") as source, target.open("xb") as copy:
        if not _clone_open(source.fileno(), copy.fileno()):
            target.unlink()
            return False
        os.fchmod(copy.fileno(), 0o444)
        os.fsync(copy.fileno())
    return True


def _clone_open(source: int, copy: int) -> bool:
    try:
        fcntl.ioctl(copy, _CLONE, source)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True
