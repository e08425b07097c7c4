"""The folder that keeps files of a remote dataset for all processes of a machine: which are there, their locks, and their room.

    FOLDER/manifest.json
           megatron/part-00000.bin                     a whole and right file
           megatron/part-00001.bin.1048576.partial     the begin of one of 1,048,576 bytes; it counts as whole for the limit
           .locks/megatron%2Fpart-00000.bin            locked shared while the file is in use, alone while it is fetched or removed

The locks are those of flock, which the system takes back from a process that is killed. The text of a lock is the inode, size and
times of the file that was compared with its digest last: a file with others is compared again.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from tokenmill_reader.errors import StorageError
from tokenmill_reader.manifest import MANIFEST_FILE, DatasetFile
from tokenmill_reader.regular_files import open_regular, sha256_file

_LOCKS = ".locks"
_SPACE = "%space"  # no name of a file: those have each % as %25
_PARTIAL = ".partial"
_RECORD_BYTES_MAX = 200
_DIGITS_MAX = 18  # of the number of bytes in the name of a partial file
_POLL_S = (0.002, 0.1)  # the first and the longest pause while another process holds a lock
_STILL_S_MIN = 20.0  # longer than a digest of what was fetched of a file takes


def make_folder(folder: Path) -> None:
    """Makes the folder, for this user alone. Raises StorageError for a link, and for another user's folder."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise StorageError(
            folder,
            f"expected a folder of user {os.geteuid()}; found one of {status.st_uid}, or a link.",
            "Remove it, or name another folder as cache.",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


def is_there(folder: Path, file: DatasetFile) -> bool:
    """Whether a whole file is in the folder that is unchanged since it was compared with its digest."""
    identity = _identity(folder / file.name, file.n_bytes)
    if not identity:
        return False
    try:
        with open_own(_lock_path(folder, file.name), os.O_RDONLY) as record:
            return record.read(_RECORD_BYTES_MAX) == identity
    except (OSError, StorageError):  # whoever fetches it next says what is wrong
        return False


def is_right(folder: Path, file: DatasetFile) -> bool:
    """Whether a file, whose lock is held alone, is there and has its digest; one that has not is removed."""
    path = folder / file.name
    if is_there(folder, file):
        return True
    if not (identity := _identity(path, file.n_bytes)):
        return False
    if sha256_file(path) != file.sha256 or _identity(path, file.n_bytes) != identity:
        path.unlink()
        return False
    record_right(folder, file)
    return True


def record_right(folder: Path, file: DatasetFile) -> None:
    """Notes that a file, whose lock is held alone, has its digest."""
    with open_own(_lock_path(folder, file.name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as record:
        record.write(_identity(folder / file.name, file.n_bytes))


def _identity(path: Path, n_bytes: int) -> bytes:
    """What tells a file from another one, and from itself before a change. Empty unless it is a regular file of this size."""
    try:
        status = path.lstat()
    except OSError:
        return b""
    if not stat.S_ISREG(status.st_mode) or status.st_size != n_bytes:
        return b""
    return b"%d %d %d %d" % (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_own(path: Path, flags: int) -> BinaryIO:
    """Opens a regular file of the folder, and follows no link. Raises StorageError for what is none."""
    try:
        descriptor = open_regular(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EINVAL):
            raise
        raise StorageError(path, "expected a file; found a link, a folder or a device.", "Remove it.") from None
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flags & os.O_ACCMODE]
    return cast(BinaryIO, open(descriptor, mode, buffering=0))  # noqa: PTH123 — a descriptor


def _lock_path(folder: Path, name: str) -> Path:
    return folder / _LOCKS / name.replace("%", "%25").replace("/", "%2F")


def partial_path(folder: Path, file: DatasetFile) -> Path:
    """Where a file is written until it is whole."""
    return folder / f"{file.name}.{file.n_bytes}{_PARTIAL}"


class FolderLock:
    """A lock of this name in the folder. It is held until `release`, or until nothing refers to it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name, self._path = folder, name, _lock_path(folder, name)
        for path in (self._path, folder / name):
            for above in reversed(path.relative_to(folder).parents):
                make_folder(folder / above)
        self._file: BinaryIO | None = open_own(self._path, os.O_RDWR | os.O_CREAT)

    def share(self, patience_s: float) -> None:
        """Waits until no one holds it alone, and holds it with others. Raises as `wait`."""
        self.wait(lambda: self._try(fcntl.LOCK_SH), patience_s)

    def take(self, patience_s: float) -> None:
        """Waits until no one holds it, and holds it alone. Raises as `wait`."""
        self.wait(self.try_take, patience_s)

    def try_take(self) -> bool:
        """Holds it alone if no one holds it."""
        return self._try(fcntl.LOCK_EX)

    def wait(self, is_done: Callable[[], bool], patience_s: float) -> None:
        """Waits until `is_done()`. Raises StorageError if the holder of the lock does nothing for the file for so long."""
        pause_s, longest_s = _POLL_S
        state, since_s = self._state(), time.monotonic()
        while not is_done():
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
            if (now := self._state()) != state:
                state, since_s = now, time.monotonic()
            elif (waited_s := time.monotonic() - since_s) > max(patience_s, _STILL_S_MIN):
                raise StorageError(
                    self._path,
                    f"another process holds this lock, and has not gone on with {self._name} for {waited_s:.0f} s.",
                    f"End that process (`lsof {self._path}` says which), or name another folder as cache.",
                )

    def _state(self) -> list[tuple[int, int]]:
        """Changes as long as the file is fetched."""
        path = self._folder / self._name
        files = [path, *path.parent.glob(f"{glob.escape(path.name)}.*{_PARTIAL}")]
        states = []
        for file in files:
            with suppress(OSError):
                states.append((file.lstat().st_size, file.lstat().st_mtime_ns))
        return states

    def _try(self, operation: int) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Ends it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.release()


def make_room(
    folder: Path,
    file: DatasetFile,
    cache_bytes: int | None,
    next_use: Callable[[str], float],
    kept: Collection[DatasetFile],
    latest: float,
    patience_s: float,
) -> bool:
    """Reserves room for a file whose lock is held, by its partial file, after it has removed others; False if there is none.

    The file whose next use is furthest goes first, and none that is needed before `latest` or at it. Files in use and those of
    `kept` stay. `next_use`: how soon a file is needed, by its name.
    """
    with FolderLock(folder, _SPACE) as lock:
        lock.take(patience_s)
        partial = partial_path(folder, file)
        if cache_bytes is not None:
            held = dict(_files(folder))
            held.pop(file.name, None)
            stays = {one.name: one.n_bytes for one in kept if one.name != file.name}
            free = cache_bytes - sum({**{name: n_bytes for name, (n_bytes, _) in held.items()}, **stays}.values())
            for name in sorted(held, key=lambda name: (next_use(name), name), reverse=True):
                if free >= file.n_bytes or next_use(name) <= latest:
                    break
                if name not in stays and _removed(folder, name, held[name][1]):
                    free += held[name][0]
            if free < file.n_bytes:
                return False
        open_own(partial, os.O_WRONLY | os.O_CREAT).close()
        return True


def trim(folder: Path, n_bytes_max: int) -> None:
    """Removes files of the datasets beside this one, those read longest ago first, until at most so many bytes are left."""
    held = []
    for other in folder.parent.iterdir():
        for name, (n_bytes, path) in _files(other):
            with suppress(FileNotFoundError):
                held.append((Path(path).lstat().st_atime, other, name, path, n_bytes))
    n_bytes = sum(one[-1] for one in held if one[1] != folder)
    for _, other, name, path, of_file in sorted(held):
        if n_bytes > n_bytes_max and other != folder and _removed(other, name, path):
            n_bytes -= of_file


def _removed(folder: Path, name: str, path: str) -> bool:
    """Removes a file unless it is in use."""
    with FolderLock(folder, name) as lock:
        if not lock.try_take():
            return False
        with suppress(FileNotFoundError):
            Path(path).unlink()
        return True


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, str]]]:
    """The name of each file that is there or in the making, the room that it needs, and its path."""
    start = len(str(folder)) + 1  # strings, since a Path for each file took most of the time
    for above, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one != _LOCKS]
        for name in names:
            path = f"{above}/{name}"
            relative = path[start:]
            if relative.startswith(MANIFEST_FILE):
                continue
            whole, _, n_bytes = relative[: -len(_PARTIAL)].rpartition(".")
            if name.endswith(_PARTIAL) and n_bytes.isdecimal() and len(n_bytes) <= _DIGITS_MAX:
                yield whole, (int(n_bytes), path)
            else:
                with suppress(FileNotFoundError):
                    yield relative, (Path(path).lstat().st_size, path)
