"""One at a time in a project: a lock that the system gives back when its holder ends, however it ends."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(path: Path) -> Iterator[str | None]:
    """Holds the lock while the block runs, and yields None; if another process has it, yields who, and holds nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            yield _holder(file.read())
            return
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": time.strftime("%F %T %z")}))
        file.flush()
        yield None  # the file stays: were it removed, two processes could hold locks on two files of this name


def _holder(content: str) -> str:
    try:
        found = json.loads(content)
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
