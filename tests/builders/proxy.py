"""A TCP proxy on 127.0.0.1 that can refuse, cut, stall and slow down connections, for tests of outages."""

import socket
import threading
import time
from contextlib import suppress
from typing import Literal

_SLOW_S = 0.02  # between two blocks of 64 kB
_BLOCK_BYTES = 1 << 16

Mode = Literal["open", "refuse", "cut", "stall", "slow"]


class Proxy:
    """A proxy to a port of 127.0.0.1. `mode` holds for all connections from now on: `refuse` ends them at once, `cut` after some
    bytes of an answer, `stall` lets no byte through. `n_hit`: how many connections or answers were disturbed."""

    def __init__(self, port: int) -> None:
        self.mode: Mode = "open"
        self.n_hit = 0
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            if self.mode == "refuse":
                self.n_hit += 1
                connection.close()
                continue
            there = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._pump, args=(connection, there, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(there, connection, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        n_bytes = 0
        with suppress(OSError):
            while block := source.recv(_BLOCK_BYTES):
                while self.mode == "stall":
                    time.sleep(0.05)
                if self.mode == "refuse":
                    self.n_hit += 1
                    break
                if self.mode == "slow" and is_answer:
                    time.sleep(_SLOW_S)
                if self.mode == "cut" and is_answer and (n_bytes := n_bytes + len(block)) > 3 * _BLOCK_BYTES:
                    self.n_hit += 1
                    target.sendall(block[: len(block) // 2])
                    break
                target.sendall(block)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
