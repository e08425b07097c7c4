"""The process of an embedded Prefect server. It ends when the process that started it ends for any reason."""

import os
import signal
import sys
import threading
import time

_RECORD_S = 2.0  # the server writes events in the background, and loses unread ones when it ends
_END_S_MAX = 5.0


def main(listening: int) -> None:
    """Serves on the socket `listening` until standard input ends."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(create_app(ephemeral=True, final=True), fd=listening, log_level="error", lifespan="on")


def _end_with_starter() -> None:
    os.read(0, 1)  # not through sys.stdin: Python aborts on exit while a thread holds its lock
    time.sleep(_RECORD_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
