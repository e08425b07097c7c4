"""An object as a seekable file that reads a few megabytes ahead."""

import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from tokenmill.storage import objects
from tokenmill.storage.retries import with_patience
from tokenmill.storage.urls import StoredObject

BLOCK_BYTES = 2 << 20
_N_AHEAD = 3  # blocks to read ahead, once two blocks in a row were read
_N_HELD_MAX = 10  # 20 MB: a reader of tables goes through several columns at the same time
_N_THREADS = 16  # of all files of the process


class ObjectFile(io.RawIOBase):
    """The bytes of an object. At most 20 MB of them are in memory. `stop`: nothing behind it is fetched ahead.

    Each request says which content it is for, so all bytes are of the object as it was listed. Reading raises CorpusError if it was
    changed or deleted, StorageError, and PassingError once the storage has not answered for a minute.
    """

    def __init__(self, stored: StoredObject, stop: int | None = None) -> None:
        super().__init__()
        self._stored = stored
        self._position = 0
        end = stored.n_bytes if stop is None else min(stop, stored.n_bytes)
        self._n_blocks_ahead = -(-end // BLOCK_BYTES)
        self._blocks: dict[int, Future[memoryview]] = {}  # the one that was used last comes last
        self._ended = threading.Event()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._stored.n_bytes}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Reads into the buffer until it is full or the object ends."""
        view = memoryview(buffer).cast("B")
        n_read = 0
        while n_read < len(view) and self._position < self._stored.n_bytes:
            i, start = divmod(self._position, BLOCK_BYTES)
            some = self._block(i)[start : start + len(view) - n_read]
            view[n_read : n_read + len(some)] = some
            n_read += len(some)
            self._position += len(some)
        return n_read

    def read(self, n_bytes: int | None = -1, /) -> bytes:
        left = max(self._stored.n_bytes - self._position, 0)
        n_bytes = left if n_bytes is None or n_bytes < 0 else min(n_bytes, left)
        i, start = divmod(self._position, BLOCK_BYTES)
        if start + n_bytes <= BLOCK_BYTES:  # the usual read, with one copy
            some = bytes(self._block(i)[start : start + n_bytes]) if n_bytes else b""
            self._position += n_bytes
            return some
        content = bytearray(n_bytes)
        self.readinto(content)
        return bytes(content)

    def close(self) -> None:
        self._ended.set()
        for block in self._blocks.values():
            block.cancel()
        self._blocks.clear()
        super().close()

    def _block(self, i: int) -> memoryview:
        is_in_order = i == 0 or i - 1 in self._blocks
        block = self._fetch(i)
        for j in range(i + 1, min(i + 1 + _N_AHEAD, self._n_blocks_ahead) if is_in_order else 0):
            self._fetch(j)
        while len(self._blocks) > _N_HELD_MAX:
            self._blocks.pop(next(iter(self._blocks))).cancel()
        try:
            return block.result()
        except BaseException:
            self._blocks.pop(i, None)  # so that it is fetched again when it is asked for again
            raise

    def _fetch(self, i: int) -> "Future[memoryview]":
        block = self._blocks.pop(i, None)
        if block is None:
            start = i * BLOCK_BYTES
            stop = min(start + BLOCK_BYTES, self._stored.n_bytes)
            read = partial(read_range(self._stored), self._stored, start, stop)
            block = _pool(os.getpid()).submit(with_patience, read, self._ended)
        self._blocks[i] = block
        return block


def read_range(stored: StoredObject) -> Callable[[StoredObject, int, int], memoryview]:
    """The function that reads ranges of such an object."""
    if stored.url.startswith("hf://"):
        from tokenmill.storage import hub

        return hub.get_range
    return objects.get_range


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_N_THREADS, thread_name_prefix="objects")
