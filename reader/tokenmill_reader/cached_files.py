"""The files of the parts of a remote dataset: fetched when they are needed, and held while they are in use."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import weakref
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from tokenmill_reader import errors
from tokenmill_reader.cache_folder import FolderLock, is_there
from tokenmill_reader.child_python import command_of
from tokenmill_reader.errors import ParamsError, StorageError
from tokenmill_reader.manifest import DatasetFile
from tokenmill_reader.shown import size
from tokenmill_reader.urls import RemoteDataset

_END_S = 5.0
_TRIES_MAX = 100  # another process may make room for its own files in between


class CachedFiles:
    """The files of a remote dataset. `parts`: those of each part. `fetcher`: this process's own; others that get a copy start
    theirs. `turns`: the number of each part's group in the order.

    Raises ParamsError if a part does not fit into `cache_bytes`.
    """

    def __init__(
        self, dataset: RemoteDataset, parts: Sequence[Sequence[DatasetFile]], fetcher: Fetcher | None = None
    ) -> None:
        self._dataset, self._parts = dataset, parts
        self._part_bytes = [sum(file.n_bytes for file in files) for files in parts]
        self._fetcher = fetcher
        self._order: Sequence[Sequence[int]] = ()
        self._group: frozenset[int]
        self.set_order([[i] for i in range(len(parts))])
        largest = self._largest_group_bytes
        if dataset.cache_bytes is not None and largest > dataset.cache_bytes:
            raise ParamsError(
                "cache_bytes",
                f"expected {largest:,} at least, the size of the largest part; found {dataset.cache_bytes:,}.",
                f"Set {4 * largest:,} or more, so that the next parts are fetched ahead; or build with smaller "
                "encode.file_bytes.",
            )

    def refuse_order(
        self,
        groups: Sequence[Sequence[int]],
        where: str = "shuffle: block",
        fix: str = "Give a block, such as block=64, or a smaller one; or a larger cache_bytes, of twice a block at best.",
    ) -> None:
        """Raises ParamsError if the parts of one of these groups, which are needed together, do not fit into `cache_bytes`."""
        limit = self._dataset.cache_bytes
        needed = max((sum(self._part_bytes[part] for part in group) for group in groups), default=0)
        if limit is not None and needed > limit:
            raise ParamsError(
                where,
                f"expected parts that fit into cache_bytes ({size(limit)}); found {max(map(len, groups)):,} that are read "
                f"together, with {size(needed)}.",
                fix,
            )

    def set_order(self, groups: Sequence[Sequence[int]]) -> None:
        """The parts will be read in this order; those of a group together."""
        if groups is self._order:
            return
        self._order, self._group = groups, frozenset()
        self.turns: dict[int, int] = {part: turn for turn, group in enumerate(groups) for part in group}
        self._largest_group_bytes = max((sum(self._part_bytes[i] for i in group) for group in groups), default=0)

    def hold(self, files: Sequence[DatasetFile]) -> list[FolderLock]:
        """Makes sure that files are here, as long as its result is referred to. Raises StorageError after a minute of outage, and
        ValidationError for a file that is not that of the manifest."""
        for _ in range(_TRIES_MAX):
            locks = [FolderLock(self._dataset.folder, file.name) for file in files]
            for lock in locks:
                lock.share(self._dataset.patience_s)
            if all(is_there(self._dataset.folder, file) for file in files):
                return locks
            for lock in locks:
                lock.release()
            self._here().ask({"need": files})
        raise StorageError(
            self._dataset.folder,
            f"{files[0].name} and what belongs to it were fetched {_TRIES_MAX} times, and changed or removed each time.",
            "Name a folder as cache in which nothing else writes, or a larger cache_bytes.",
        )

    def hold_part(self, part: int) -> list[FolderLock]:
        """Like `hold`, for the files of a part; it also says that this part is read now."""
        fetcher = self._here()
        if fetcher.order is not self._order:
            fetcher.order = self._order
            fetcher.tell({"order": [[file for i in group for file in self._parts[i]] for group in self._order]})
        fetcher.tell({"at": self._parts[part][0].name})
        return self.hold(self._parts[part])

    def to_close(self, opened: Collection[int], part: int) -> list[int]:
        """Which of these parts are to be closed before this one is opened, so that there is room for its group."""
        limit = self._dataset.cache_bytes
        if limit is None:
            return []
        if part not in self._group:
            self._group = frozenset(self._order[self.turns[part]])
        held_bytes_max = max(limit // 2, self._largest_group_bytes)
        held_bytes, closed = sum(self._part_bytes[i] for i in {*opened, *self._group}), []
        for i in opened:
            if held_bytes > held_bytes_max and i not in self._group:
                closed.append(i)
                held_bytes -= self._part_bytes[i]
        return closed

    def _here(self) -> Fetcher:
        """The fetching process of this process."""
        if self._fetcher is None or self._fetcher.process != os.getpid():
            self._fetcher = Fetcher(self._dataset)
        return self._fetcher

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fetcher": None}


class Fetcher:
    """A process that fetches files (tokenmill_reader.fetch_process) for the process with a number. `order`: as it was told."""

    def __init__(self, dataset: RemoteDataset) -> None:
        self.process: int = os.getpid()
        self._asking, self._url = threading.Lock(), dataset.url
        self.order: Sequence[Sequence[int]] | None = None
        self._fetching = subprocess.Popen(
            command_of("tokenmill_reader.fetch_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other one
        )
        weakref.finalize(self, _end, self._fetching, self.process)
        self.tell({**dataset._asdict(), "folder": str(dataset.folder)})

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a message that has no answer."""
        with self._asking:
            self._send(message)

    def ask(self, message: dict[str, Any]) -> None:
        """Sends a message and waits until it is done. Raises the error that it ended with."""
        with self._asking:
            self._send(message)
            assert self._fetching.stdout is not None
            line = self._fetching.stdout.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if answer:
            raise getattr(errors, answer["kind"])(answer["where"], answer["what"], answer["fix"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._fetching.stdin is not None
        try:
            self._fetching.stdin.write(json.dumps(message) + "\n")
            self._fetching.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _ended(self) -> StorageError:
        return StorageError(
            self._url,
            f"the process that fetches its files has ended (exit code {self._fetching.wait()}).",
            "Look for its message on standard error, and start the job again: what was fetched is kept.",
        )


def _end(fetching: subprocess.Popen[str], process: int) -> None:
    """Ends a fetching process of this process."""
    if process != os.getpid():
        return
    assert fetching.stdin is not None and fetching.stdout is not None
    with suppress(BrokenPipeError):
        fetching.stdin.close()
    try:
        fetching.wait(_END_S)
    except subprocess.TimeoutExpired:
        fetching.kill()
        fetching.wait()
    fetching.stdout.close()
