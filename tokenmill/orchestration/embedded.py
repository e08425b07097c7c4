"""A Prefect server for as long as one process runs: what starts it, and what its own process does.

Prefect would start one, too, but only when it is first asked something, and after importing the server in the process that
asks, which takes 4 s. This one comes up while that process imports Prefect, and ends with it, however it ends.
"""

import atexit
import gc
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing

from tokenmill.errors import Terminated, TokenmillError

_START_S_MAX = 120.0
_END_S_MAX = 5.0
_HOST = "127.0.0.1"
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")  # the last line of a traceback


class Embedded:
    """A server that is starting, at `url`. It uses the database of PREFECT_HOME, and has neither web page nor schedules."""

    def __init__(self) -> None:
        # It gets the socket: there is no port that another could take meanwhile, and who connects early waits.
        with socket.create_server((_HOST, 0)) as listening:
            # Here, since uvicorn takes a socket that it is given for one of the machine's own, for which asyncio does not.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            port = listening.getsockname()[1]
            self.url: str = f"http://{_HOST}:{port}/api"
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 — open until it has ended
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(listening.fileno())],
                stdin=subprocess.PIPE,  # ends when this process does
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is not for it: it is to be told how the build ended
                env={**os.environ, "PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_FINAL": "1"},
            )
            # Asked now, the server has made its routes, which takes 0.2 s, when the flow asks.
            self._first = http.client.HTTPConnection(_HOST, port, timeout=_START_S_MAX)
            self._first.request("GET", "/api/admin/version", headers={"Connection": "close"})
        atexit.register(self.close)  # before Prefect registers what it has to tell the server at the end, so after that

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Returns when it answers. Raises TokenmillError when it has ended."""
        try:
            with closing(self._first):
                answer = self._first.getresponse()
                answer.read()
            if answer.status >= http.client.INTERNAL_SERVER_ERROR:  # 401 is of a healthy one that asks for a password
                raise http.client.HTTPException(f"it answered with {answer.status}")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._said.seek(0)
            lines = self._said.read().decode("utf-8", "replace").splitlines()
            reason = next(
                (line for line in reversed(lines) if _EXCEPTION.match(line)), str(error) or type(error).__name__
            )
            raise TokenmillError(
                f"Prefect's own server did not start: {reason}. See that its home (PREFECT_HOME, else ~/.prefect) can be "
                "written to, start a server (`make server`), or set run.engine: inline in params.yaml."
            ) from None

    def kill(self) -> None:
        """Ends it without letting it write what it has not written yet."""
        self._process.kill()

    def close(self) -> None:
        """Ends it, at once when a signal comes meanwhile; nothing happens when it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S_MAX)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, Terminated):
            self._process.kill()
            self._process.wait()


def main(listening: int) -> None:
    """What the server's process does, until its standard input ends."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    gc.disable()  # importing makes many objects and drops none: a tenth of the time
    import uvicorn
    from prefect.server.api.server import create_app

    gc.freeze()  # to look through them for cycles took 0.2 s each time
    gc.enable()
    uvicorn.run(create_app(ephemeral=True), fd=listening, log_level="error", lifespan="on")


def _end_with_starter() -> None:
    os.read(0, 1)  # not through sys.stdin: Python aborts at its end when a thread holds that
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S_MAX)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
