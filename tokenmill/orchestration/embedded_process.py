"""Starts the process of an embedded Prefect server, before Prefect is imported here."""

import json
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from tokenmill_reader.child_python import command_of


class EmbeddedProcess:
    """A process that imports what Prefect's server needs, and serves when it gets its settings. `url`: the address of its API."""

    def __init__(self) -> None:
        # The server inherits the listening socket, so no other process can take the port, and early connections just wait.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            # Set here because uvicorn takes a given socket for a Unix one, for which asyncio does not set it.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.url: str = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 — open until it has ended
            self._process = subprocess.Popen(
                command_of("tokenmill.orchestration.embedded", str(listening.fileno())),
                stdin=subprocess.PIPE,  # ends when this process does
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal must not end it: it still has to record the build's end
            )

    def serve(self, folder: str, environment: Mapping[str, str]) -> None:
        """Has it serve, in this folder and with these environment variables."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: who waits for an answer says so
            self._process.stdin.write(json.dumps([folder, dict(environment)]).encode() + b"\n")
            self._process.stdin.flush()

    def said(self) -> str:
        """What it wrote to its standard error."""
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")

    def end(self, s_max: float) -> None:
        """Has it end, after it has recorded what it was sent. Raises subprocess.TimeoutExpired after `s_max` seconds."""
        self._close()
        self._process.wait(s_max)

    def kill(self) -> None:
        """Ends it at once."""
        self._close()
        self._process.kill()
        self._process.wait()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
