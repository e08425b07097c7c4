"""What is known of files that have not changed, kept in .tokenmill/digests.json so that they are not read for it again."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.errors import CorpusError
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.storage.atomic import read, write_atomic

T = TypeVar("T")

_FILE = f"{SCRATCH_DIRECTORY}/digests.json"

# A file written to twice within one tick of the clock has the same time of change after both: one that changed so
# shortly before it was read is not remembered (git calls such an entry racy).
_RACY_NS = 2_000_000_000
_KEPT_UNUSED = 1000


class _Signature(msgspec.Struct, frozen=True, array_like=True):
    """`ctime_ns`: when the file, its name or its links changed last; 0 for an output, which is linked here and there."""

    n_bytes: int
    mtime_ns: int
    inode: int
    ctime_ns: int


class _Known(msgspec.Struct, frozen=True, array_like=True):
    signature: _Signature
    fact: msgspec.Raw


class Digests:
    """Facts of files, each under a file's name and a word that says which fact; may be used from several threads.

    A fact holds as long as the file's length, times of change and inode do. `trust`: whether to believe what earlier builds
    have remembered.
    """

    def __init__(self, root: Path, trust: bool = True) -> None:
        self._root = root
        self._path = root / _FILE
        self._known = _load(self._path) if trust else {}
        self._used: set[str] = set()
        self._seen: dict[Path, _Signature] = {}
        self._changed = False
        self._lock = threading.Lock()

    def fact(self, path: Path, word: str, kind: type[T], find: Callable[[], T]) -> T:
        """`find()`, or what it gave for the file as it is. Raises CorpusError when the file changes meanwhile."""
        name = self._name(path, word)
        before = _signature(path)
        known = self._known.get(name)
        with self._lock:
            self._used.add(name)
            self._seen[path] = before
        if known is not None and known.signature in (before, _without_ctime(before)):
            return msgspec.json.decode(known.fact, type=kind)
        found = find()
        self.check_unchanged(path)
        if time.time_ns() - max(before.mtime_ns, before.ctime_ns) > _RACY_NS:
            self._remember(name, before, found)
        return found

    def check_unchanged(self, path: Path) -> None:
        """Raises CorpusError when the file is not as it was when a fact of it was last asked for."""
        try:
            unchanged = _signature(path) == self._seen[path]
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise CorpusError(
                f"{path}: changed while it was read. Run `tokenmill build` again when it is at rest.", code="TM207"
            )

    def remember(self, path: Path, word: str, fact: object) -> None:
        """Takes in a fact of a read-only file that this process has made, from which nobody else has written to it."""
        self._remember(self._name(path, word), _without_ctime(_signature(path)), fact)

    def save(self) -> None:
        """Keeps what was found for later builds."""
        with self._lock:
            if len(self._known) > 2 * len(self._used) + _KEPT_UNUSED:
                self._known = {name: self._known[name] for name in self._used & self._known.keys()}
            if self._changed:
                with write_atomic(self._path) as path:
                    path.write_bytes(msgspec.json.encode(self._known))
                self._changed = False

    def _remember(self, name: str, signature: _Signature, fact: object) -> None:
        with self._lock:
            self._used.add(name)
            self._known[name] = _Known(signature, msgspec.Raw(msgspec.json.encode(fact)))
            self._changed = True

    def _name(self, path: Path, word: str) -> str:
        return f"{word} {os.path.relpath(path, self._root)}"


def forget(root: Path) -> None:
    """Removes what is remembered of the files of the project at `root`."""
    (root / _FILE).unlink(missing_ok=True)


def _signature(path: Path) -> _Signature:
    status = path.stat()
    return _Signature(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _without_ctime(signature: _Signature) -> _Signature:
    return msgspec.structs.replace(signature, ctime_ns=0)


def _load(path: Path) -> dict[str, _Known]:
    try:
        return msgspec.json.decode(read(path), type=dict[str, _Known])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
