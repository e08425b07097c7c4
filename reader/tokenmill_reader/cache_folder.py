"""The folder that keeps files of a remote dataset for all processes of a machine: which are there, their locks, and their room.

    FOLDER/manifest.json
           megatron/part-00000.bin                     a whole and right file
           megatron/part-00001.bin.1048576.partial     the begin of one of 1,048,576 bytes; it counts as whole for the limit
           .locks/megatron%2Fpart-00000.bin            locked shared while the file is in use, alone while it is fetched or removed

The locks are those of flock: the system takes them back from a process that is killed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from tokenmill_reader.manifest import MANIFEST_FILE, DatasetFile

_LOCKS = ".locks"
_SPACE = "%space"  # no name of a file: those have each % as %25
_PARTIAL = ".partial"


def is_there(folder: Path, file: DatasetFile) -> bool:
    """Whether a whole file is in the folder."""
    try:
        return (folder / file.name).stat().st_size == file.n_bytes
    except FileNotFoundError:
        return False


def partial_path(folder: Path, file: DatasetFile) -> Path:
    """Where a file is written until it is whole."""
    return folder / f"{file.name}.{file.n_bytes}{_PARTIAL}"


class Lock:
    """A lock of this name in the folder: shared, or of one holder alone. It is held until `release`, which `with` calls, or until
    nothing refers to it."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / _LOCKS / name.replace("%", "%25").replace("/", "%2F")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def share(self) -> None:
        """Waits until no one holds it alone, and holds it together with others."""
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def take(self) -> None:
        """Waits until no one holds it, and holds it alone."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Holds it alone if no one holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Ends it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.release()


def make_room(
    folder: Path,
    file: DatasetFile,
    cache_bytes: int | None,
    next_use: Callable[[str], float],
    kept: Collection[DatasetFile],
    latest: float,
) -> bool:
    """Reserves room for a file whose lock is held, by its partial file, after it has removed others; False if there is none.

    The file whose next use is furthest goes first, and none that is needed before `latest` or at it. Files in use stay, and those
    of `kept`, for which there is room besides. `next_use`: how soon a file is needed, by its name.
    """
    with Lock(folder, _SPACE) as lock:
        lock.take()
        partial = partial_path(folder, file)
        partial.parent.mkdir(parents=True, exist_ok=True)
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
        partial.touch()
        return True


def _removed(folder: Path, name: str, path: str) -> bool:
    """Removes a file unless it is in use."""
    with Lock(folder, name) as lock:
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
            if name.endswith(_PARTIAL):
                relative, _, n_bytes = relative[: -len(_PARTIAL)].rpartition(".")
                yield relative, (int(n_bytes), path)
            else:
                with suppress(FileNotFoundError):
                    yield relative, (Path(path).stat().st_size, path)
