"""The process of an embedded Prefect server. It ends when the process that started it ends for any reason."""

import os
import signal
import sys
import threading
import time

# The server writes events in the background, and loses what it has not written when it ends. So it first waits at least
# _RECORD_S, and then until it needs less than _IDLE_SHARE of a core, on a machine under load for _RECORD_S_MAX.
_RECORD_S, _RECORD_S_MAX = 2.0, 10.0
_LOOK_S, _IDLE_SHARE = 0.5, 0.2
_END_S_MAX = 5.0


def main(listening: int) -> None:
    """Serves on the socket `listening` until standard input ends."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(create_app(ephemeral=True, final=True), fd=listening, log_level="error", lifespan="on")


def _end_with_starter() -> None:
    os.read(0, 1)  # not through sys.stdin: Python aborts on exit while a thread holds its lock
    started_s = time.monotonic()
    time.sleep(_RECORD_S)
    needed_s = _LOOK_S
    while needed_s > _IDLE_SHARE * _LOOK_S and time.monotonic() - started_s < _RECORD_S_MAX:
        before_s = time.process_time()
        time.sleep(_LOOK_S)
        needed_s = time.process_time() - before_s
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
