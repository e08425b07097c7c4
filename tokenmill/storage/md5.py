"""MD5 of many files, several side by side in each thread: what DVC names files by."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from tokenmill import _core
from tokenmill.storage.atomic import naming, open_regular

_START = bytes.fromhex("0123456789abcdeffedcba9876543210")  # RFC 1321, 3.3
_STATE_BYTES = len(_START)
_BLOCK_BYTES = 64
_READ_BYTES = 1 << 18
_AT_ONCE = 16  # as the core takes


def md5_of_files(paths: Sequence[str], threads: int) -> list[tuple[str, str]]:
    """Each path with the digest of its file, in hex; in any order. An OSError names the file."""
    todo, taking, stop = iter(paths), threading.Lock(), threading.Event()
    n_at_once = min(_AT_ONCE, -(-len(paths) // threads))

    def work() -> list[tuple[str, str]]:
        done: list[tuple[str, str]] = []
        messages: list[_Message] = []
        try:
            while not stop.is_set():
                with taking:
                    more = list(islice(todo, n_at_once - len(messages)))
                for path in more:
                    messages.append(_Message(path))
                if not messages:
                    break
                chunks = [message.chunk() for message in messages]
                states = _core.md5_blocks(b"".join(message.state for message in messages), chunks)
                for i, message in enumerate(messages):
                    message.state = states[i * _STATE_BYTES : (i + 1) * _STATE_BYTES]
                done += [(message.path, message.state.hex()) for message in messages if message.is_whole]
                messages = [message for message in messages if not message.is_whole]
        except BaseException:
            stop.set()
            raise
        finally:
            for message in messages:
                message.close()
        return done

    with ThreadPoolExecutor(threads, thread_name_prefix="md5") as pool:
        try:
            found = [pool.submit(work) for _ in range(threads)]
            return [one for future in found for one in future.result()]
        finally:
            stop.set()


class _Message:
    """A file that is being read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.state = _START
        self.is_whole = False
        self._n_bytes = 0
        self._file = open(path, "rb", opener=open_regular)  # noqa: SIM115 — until `close`

    def chunk(self) -> bytes:
        """Whole blocks: its next bytes, at its end with the padding."""
        with naming(Path(self.path)):
            read = self._file.read(_READ_BYTES)
        self._n_bytes += len(read)
        if len(read) == _READ_BYTES:
            return read
        self.close()
        self.is_whole = True
        n_zeros = -(len(read) + 9) % _BLOCK_BYTES
        return read + b"\x80" + bytes(n_zeros) + (8 * self._n_bytes).to_bytes(8, "little")

    def close(self) -> None:
        """Reads no more."""
        self._file.close()
