"""The process of an embedded Prefect server. It ends when the process that started it ends for any reason."""

import gc
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module

_UNDER_PREFECT = ("fastapi", "sqlalchemy.ext.asyncio", "aiosqlite", "docket", "uvicorn")
"""What Prefect's server imports and takes half of its time to start. None of it reads Prefect's settings."""
_RECORD_S_MAX = 5.0
_LOOK_EVERY_S = 0.02
_END_S_MAX = 5.0


def main(listening: int) -> None:
    """Serves on the socket `listening` until standard input ends. Its first line is [folder to work in, environment variables]."""
    gc.disable()  # nothing of the imports is garbage, and looking for it takes a sixth of their time
    lines: list[bytes] = []
    reading = threading.Thread(target=lambda: lines.append(_first_line()), daemon=True)
    reading.start()  # so that the starter, which writes more than a pipe holds, need not wait for the imports
    for module in _UNDER_PREFECT:
        import_module(module)
    reading.join()
    if not lines[0]:
        return
    folder, environment = json.loads(lines[0])
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(ephemeral=True)
    os.chdir(folder)  # not before: Prefect reads settings from the folder in which it begins
    gc.freeze()
    gc.enable()
    uvicorn.run(app, fd=listening, log_level="error", lifespan="on")


def _first_line() -> bytes:
    """The first line of standard input; empty if the process that started this one needs no server."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 2**16)):
        line += more
    return line


def _end_with_starter() -> None:
    os.read(0, 1)  # not through sys.stdin: Python aborts on exit while a thread holds its lock
    until_s = time.monotonic() + _RECORD_S_MAX
    while _has_unread_events() and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


def _has_unread_events() -> bool:
    """Whether the server has events that it did not read yet, and would lose. Those that it has read it writes when it ends."""
    topics: dict[str, dict[str, int]] = getattr(
        sys.modules.get("prefect.server.utilities.messaging.memory"), "METRICS", {}
    )
    return any(topic["published"] > topic["consumed"] for topic in list(topics.values()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
