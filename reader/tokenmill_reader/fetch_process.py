"""The process that fetches files of a remote dataset for a training process, and ends with it.

The client of object storage cannot be used after a fork, as in workers of a DataLoader. It reads lines of JSON, and answers
"manifest" and "need" with a line each: {}, or an error.

    {"url": …, "folder": …, "cache_bytes": …, "patience_s": …}      the first line: the dataset
    {"manifest": true}                                              fetch the manifest
    {"need": [[name, n_bytes, sha256], …]}                          fetch these files now
    {"order": [[[name, n_bytes, sha256], …], …]}                    the files, in groups, in the order in which they are needed
    {"at": name}                                                    the group of this file is read now
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenmill_reader.cache_folder import FolderLock, is_right, is_there, make_room
from tokenmill_reader.errors import OutageError, StorageError, TokenmillError, ValidationError
from tokenmill_reader.fetch_file import fetch_file, fetch_manifest
from tokenmill_reader.manifest import DatasetFile
from tokenmill_reader.object_errors import with_patience
from tokenmill_reader.shown import as_shown
from tokenmill_reader.urls import RemoteDataset

_N_AHEAD = 8  # files that are fetched ahead at the same time
_LOOK_AGAIN_S = 0.5  # for room, after an outage, and whether the training process is there
_N_FEW = 3  # groups
_N_FILES_AHEAD_MIN = 8  # parts have one or two


class Fetching:
    """What the threads of the process share."""

    def __init__(self, dataset: RemoteDataset) -> None:
        self._dataset = dataset
        self._changed, self._n_changes = threading.Condition(), 0
        self._visits = Visits([], dataset.cache_bytes)
        self._failed: dict[str, TokenmillError] = {}  # files fetched ahead, until they are needed
        self._in_hand: set[str] = set()
        self._kept: set[str] = set()  # without a limit, what is there stays

    def set_order(self, groups: list[list[DatasetFile]]) -> None:
        """Files are fetched ahead in this order from now on."""
        with self._changed:
            self._visits = Visits(groups, self._dataset.cache_bytes)
            self._say_changed()

    def set_at(self, name: str) -> None:
        """The group with this file is read now."""
        with self._changed:
            self._visits.go_to(name)
            self._say_changed()

    def _say_changed(self) -> None:
        """Lets one thread look for a file; it lets the next one look when there is room."""
        self._n_changes += 1
        self._changed.notify()

    def need(self, files: list[DatasetFile]) -> None:
        """Brings these files. Raises the errors that CachedFiles.hold describes."""
        for file in files:
            self.set_at(file.name)
        for file in files:
            self._bring(file, files)

    def _bring(self, file: DatasetFile, kept: Sequence[DatasetFile]) -> None:
        folder, waited_s = self._dataset.folder, 0.0
        with FolderLock(folder, file.name) as lock:
            # Another process may have brought it, and use it by now.
            lock.wait(lambda: lock.try_take() or is_there(folder, file), self._dataset.patience_s)
            if not lock.try_take():
                return
            if (failed := self._failed.pop(file.name, None)) is not None:
                raise failed
            if is_right(folder, file):
                return
            while not self._has_room(file, kept, -1):
                if waited_s > self._dataset.patience_s:
                    raise StorageError(
                        folder,
                        f"no room for {file.name}: all other files of cache_bytes ({self._dataset.cache_bytes:,}) are in "
                        "use by readers.",
                        "Set a larger cache_bytes, or close readers that are not needed.",
                    )
                time.sleep(_LOOK_AGAIN_S)
                waited_s += _LOOK_AGAIN_S
            fetch_file(self._dataset, file, self.patient)

    def patient(self, do: Any) -> Any:
        """The result of `do()`, tried again during an outage."""
        return with_patience(do, OutageError, _say, patience_s=self._dataset.patience_s)

    def fetch_ahead(self) -> None:
        """Brings the files that are needed next, for ever."""
        while True:
            with self._changed:
                n_changes = self._n_changes
                file = next((one for one in self._visits.ahead() if self._is_wanted(one)), None)
                if file is not None:
                    self._in_hand.add(file.name)
            is_of_use = file is not None and self._brought_ahead(file)
            with self._changed:
                if file is not None:
                    self._in_hand.discard(file.name)
                if not is_of_use and n_changes == self._n_changes:
                    self._changed.wait(_LOOK_AGAIN_S)

    def _is_wanted(self, file: DatasetFile) -> bool:
        if any(file.name in names for names in (self._kept, self._in_hand, self._failed)):
            return False
        is_here = is_there(self._dataset.folder, file)
        if is_here and self._dataset.cache_bytes is None:
            self._kept.add(file.name)
        return not is_here

    def _brought_ahead(self, file: DatasetFile) -> bool:
        """Whether it was of use to try. An outage is left to `need`."""
        folder = self._dataset.folder
        try:
            with FolderLock(folder, file.name) as lock:
                if not lock.try_take():
                    return False
                if is_right(folder, file):
                    return True
                if not self._has_room(file, self._visits.before(file), self._visits.next_use(file.name)):
                    return False
                with self._changed:
                    self._changed.notify()
                fetch_file(self._dataset, file, lambda do: do())
                return True
        except OutageError:
            time.sleep(_LOOK_AGAIN_S)
            return False
        except TokenmillError as error:
            self._failed[file.name] = error
            return True
        except OSError as error:
            self._failed[file.name] = _of_the_system(error, folder)
            return True

    def _has_room(self, file: DatasetFile, kept: Sequence[DatasetFile], latest: float) -> bool:
        limit = self._dataset.cache_bytes
        return make_room(
            self._dataset.folder, file, limit, self._visits.next_use, kept, latest, self._dataset.patience_s
        )


class Visits:
    """Groups of files that are read one after another, and again in the next epoch; files of a group are needed together.

    `cache_bytes`: half of it is for files of later groups; None: no limit.
    """

    def __init__(self, groups: Sequence[Sequence[DatasetFile]], cache_bytes: int | None) -> None:
        self._groups = groups
        self._groups_of: dict[str, list[int]] = {}
        for i, group in enumerate(groups):
            for file in group:
                self._groups_of.setdefault(file.name, []).append(i)
        self._n_ahead_max = max(_N_FILES_AHEAD_MIN, max(map(len, groups), default=0))
        self._bytes_ahead_max = float("inf") if cache_bytes is None else cache_bytes // 2
        self._is_in_order = self._n_ahead_max == _N_FILES_AHEAD_MIN
        self._at = 0

    def go_to(self, name: str) -> None:
        """The next group with this file is read now. A file of no group changes nothing."""
        self._at = min(self._groups_of.get(name, ()), key=self._steps_to, default=self._at)

    def _steps_to(self, group: int) -> int:
        return (group - self._at) % len(self._groups)

    def next_use(self, name: str) -> float:
        """How many groups later a file is needed; 0: now. A file of no group comes last. A part that was passed just now counts as
        the next one, since another process may not have come to it yet."""
        n_groups = len(self._groups)
        later = min(map(self._steps_to, self._groups_of.get(name, [])), default=n_groups)
        return 0.5 if later == n_groups - 1 > _N_FEW and self._is_in_order else later

    def before(self, file: DatasetFile) -> Sequence[DatasetFile]:
        """The files that are needed before this one, whose room it may not take."""
        return [*self._groups[self._at], *takewhile(lambda one: one.name != file.name, self.ahead())]

    def ahead(self) -> Iterator[DatasetFile]:
        """The files of this group, then those of the next ones in this epoch, whether they are here or not."""
        n_files, n_bytes = 0, 0
        for i in range(self._at, len(self._groups)):
            for file in self._groups[i]:
                if i > self._at:
                    n_files, n_bytes = n_files + 1, n_bytes + file.n_bytes
                    if n_files > self._n_ahead_max or n_bytes > self._bytes_ahead_max:
                        return
                yield file


def main() -> None:
    """Does what standard input says, to its end."""
    given = json.loads(sys.stdin.readline())
    dataset = RemoteDataset(given["url"], Path(given["folder"]), given["cache_bytes"], given["patience_s"])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    fetching, is_ahead = Fetching(dataset), False
    for line in sys.stdin:
        told = json.loads(line)
        if "at" in told:
            fetching.set_at(told["at"])
        elif "order" in told:
            fetching.set_order([_files(group) for group in told["order"]])
            for _ in range(0 if is_ahead else _N_AHEAD):
                threading.Thread(target=fetching.fetch_ahead, daemon=True).start()
            is_ahead = True
        else:
            answer = json.dumps(_answer(fetching, dataset, told))
            try:
                print(answer, flush=True)
            except BrokenPipeError:
                break
    os._exit(0)  # threads may be in the middle of a file, which another process goes on with


def _answer(fetching: Fetching, dataset: RemoteDataset, told: dict[str, Any]) -> dict[str, Any]:
    try:
        if "need" in told:
            fetching.need(_files(told["need"]))
        else:
            fetch_manifest(dataset, fetching.patient)
    except TokenmillError as error:
        return _as_json(error)
    except OSError as error:
        return _as_json(_of_the_system(error, dataset.folder))
    return {}


def _as_json(error: TokenmillError) -> dict[str, Any]:
    kind = "ValidationError" if isinstance(error, ValidationError) else "StorageError"
    return {"kind": kind, "where": error.where, "what": error.what.split("\n"), "fix": error.fix}


def _of_the_system(error: OSError, folder: Path) -> StorageError:
    return StorageError(
        error.filename or folder,
        f"{error.strerror or error}.",
        "Free the disk of the cache or set a lower cache_bytes, or name another folder.",
    )


def _files(given: list[list[Any]]) -> list[DatasetFile]:
    return [DatasetFile(*one) for one in given]


def _end_with(parent: int) -> None:
    """Ends the process when its parent has ended, of whose pipe forks of it hold copies."""
    while os.getppid() == parent:
        time.sleep(_LOOK_AGAIN_S)
    os._exit(0)


def _say(line: str) -> None:
    print(as_shown(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
