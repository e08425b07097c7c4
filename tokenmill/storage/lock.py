"""The project lock: one build of a project at a time. The kernel releases it when its holder ends for any reason."""

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
from tokenmill_reader.regular_files import naming

_held: set[Path] = set()  # lets a nested build pass: the command holds the lock when its flow asks for it


@contextmanager
def project_lock(root: Path, wait: bool, clean: Callable[[], None]) -> Iterator[bool]:
    """Keeps other processes from building the project at `root` while the block runs. Yields False in a nested build.

    `wait`: wait for the lock; otherwise a held lock raises BusyError, which names the holder. `clean` is called first if the
    previous holder was killed or failed. The lock is flock(2) on .tokenmill/lock. The file stays and names its holder: process,
    machine and start time. A clean exit empties the file. A non-empty file without a lock means that its holder crashed.
    """
    path = (root / SCRATCH_DIRECTORY / "lock").absolute()
    if path in _held:
        yield False
        return
    path.parent.mkdir(exist_ok=True)
    # Child processes do not inherit the lock: Prefect's server outlives a killed build and would keep holding it.
    with FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+") as file:
        _take(path, file, root, wait)
        with naming(path):
            file.seek(0)
            may_have_left = bool(file.read())
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        _write(path, file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n")
        if may_have_left:
            clean()  # if it fails, the file stays non-empty for the next holder
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
    except ValueError:  # the holder has not written the file yet, or has just emptied it
        return "another process"
