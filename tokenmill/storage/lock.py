"""One build of a project at a time: a lock that the kernel takes back when its holder ends, however it ends."""

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from io import FileIO
from pathlib import Path

from tokenmill.console import say
from tokenmill.errors import BusyError
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.storage.atomic import naming

_held: set[Path] = set()  # a build inside a build, as the flow's inside the command's, goes through


@contextmanager
def project_lock(root: Path, wait: bool, clean: Callable[[], None]) -> Iterator[bool]:
    """No other process builds the project at `root` while the block runs; yields False in a build inside a build.

    `wait`: until that is so; otherwise raises BusyError that says who builds it. `clean` is called first when the holder
    before was killed or failed. The lock is flock(2) on .tokenmill/lock; the file stays and says who holds it: process,
    machine and since when. Whose block ends well empties it.
    """
    path = (root / SCRATCH_DIRECTORY / "lock").absolute()
    if path in _held:
        yield False
        return
    path.parent.mkdir(exist_ok=True)
    # Not inherited by children: Prefect's server outlives a killed build and would hold the lock for it.
    with FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+") as file:
        _take(path, file, root, wait)
        with naming(path):
            file.seek(0)
            may_have_left = bool(file.read())
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        _write(path, file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
        if may_have_left:
            clean()  # should it fail, the file still tells the next
        _held.add(path)
        try:
            yield True
        finally:
            _held.discard(path)
        _write(path, file, "")


def _take(path: Path, file: FileIO, root: Path, wait: bool) -> None:
    try:
        with naming(path):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(file)
        if not wait:
            raise BusyError(
                f"{root.absolute()}: {holder} is building this project.",
                "Wait until it has ended, or let `tokenmill build --wait` wait.",
            ) from None
        say(f"waiting for {holder}, which is building this project")
        with naming(path):
            fcntl.flock(file, fcntl.LOCK_EX)


def _write(path: Path, file: FileIO, text: str) -> None:
    with naming(path):
        file.seek(0)
        file.write(text.encode())
        file.truncate()
        os.fsync(file.fileno())


def _holder(file: FileIO) -> str:
    try:
        found = json.loads(file.read())
        return f"process {found['pid']} on {found['host']} (since {found['since']})"
    except ValueError:  # it has just begun, or is about to end
        return "another process"
