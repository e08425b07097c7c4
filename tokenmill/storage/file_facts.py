"""Facts about files, kept in .tokenmill/digests.json so that an unchanged file is not read again."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.errors import CorpusError
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.urls import StoredObject
from tokenmill.storage.writable import may_write
from tokenmill_reader.regular_files import read

T = TypeVar("T")

_FILE = f"{SCRATCH_DIRECTORY}/digests.json"

# A file that is written twice within one clock tick has the same mtime after both writes. So a file that changed shortly
# before it was read is not remembered (git calls such an index entry racy).
_RACY_NS = 2_000_000_000
_KEPT_UNUSED = 1000


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """Values that change when a file changes. `ctime_ns`: the last change of the file, its name or its links; 0 for an output,
    because linking changes its ctime. `e_tag`: an object's in object storage, whose times are 0."""

    n_bytes: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    e_tag: str = ""


class _KnownFact(msgspec.Struct, frozen=True, array_like=True):
    signature: Signature
    fact: msgspec.Raw


class Digests:
    """Facts about files, each stored under the file's name and a word for the kind of fact. Safe to use from several threads.

    A fact holds while the file's length, mtime, ctime and inode stay the same. `trust`: whether to use the facts that earlier
    builds stored.
    """

    def __init__(self, root: Path, trust: bool = True) -> None:
        self._root, self._below = root, f"{root.absolute()}{os.sep}"
        self._path = root / _FILE
        self._known = _load(self._path) if trust else {}
        self._used: set[str] = set()
        self.seen: dict[Path | StoredObject, Signature] = {}
        """The signature of each file when `fact` or `known` was last called for it."""
        self._changed = False
        self._lock = threading.Lock()

    def fact(self, path: Path | StoredObject, word: str, kind: type[T], find: Callable[[], T]) -> T:
        """The stored fact if the file is unchanged, else `find()`. Raises CorpusError if the file changes while it is read."""
        known = self.known(path, word, kind)
        if known is not None:
            return known
        before = self.seen[path]
        fact = find()
        check_unchanged(path, before)
        if isinstance(path, StoredObject) or time.time_ns() - max(before.mtime_ns, before.ctime_ns) > _RACY_NS:
            self._remember(self._name(path, word), before, fact)
        return fact

    def known(self, path: Path | StoredObject, word: str, kind: type[T]) -> T | None:
        """The stored fact if the file is unchanged; None otherwise. It reads no file."""
        name, before = self._name(path, word), signature_of(path)
        with self._lock:
            known = self._known.get(name)
            self._used.add(name)
            self.seen[path] = before
        if known is None or known.signature not in (before, _without_ctime(before)):
            return None
        return msgspec.json.decode(known.fact, type=kind)

    def remember(self, path: Path, word: str, fact: object) -> None:
        """Stores a fact about a read-only file that this process has made and that no other process has written to."""
        self._remember(self._name(path, word), _without_ctime(signature_of(path)), fact)

    def save(self) -> None:
        """Writes the facts to disk for later builds, if this user may."""
        with self._lock:
            if len(self._known) > 2 * len(self._used) + _KEPT_UNUSED:
                self._known = {name: self._known[name] for name in self._used & self._known.keys()}
            if self._changed and may_write(self._path.parent):
                with write_atomic(self._path) as path:
                    path.write_bytes(msgspec.json.encode(self._known))
                self._changed = False

    def _remember(self, name: str, signature: Signature, fact: object) -> None:
        with self._lock:
            self._used.add(name)
            self._known[name] = _KnownFact(signature, msgspec.Raw(msgspec.json.encode(fact)))
            self._changed = True

    def _name(self, path: Path | StoredObject, word: str) -> str:
        if isinstance(path, StoredObject):
            return f"{word} {path.url}"
        name = str(path).removeprefix(self._below)  # relpath takes ten times as long
        is_below = len(name) < len(str(path)) and ".." not in name
        return f"{word} {name if is_below else os.path.relpath(path, self._root)}"


def check_unchanged(path: Path | StoredObject, before: Signature) -> None:
    """Raises CorpusError if the file is not as it was. An object is read as it was listed or not at all."""
    try:
        unchanged = signature_of(path) == before
    except FileNotFoundError:
        unchanged = False
    if not unchanged:
        raise CorpusError(
            str(path),
            "changed while it was read.",
            "Run `tokenmill build` again when nothing writes to it any more.",
            code="TM207",
        )


def forget(root: Path) -> None:
    """Deletes the stored facts of the project at `root`."""
    (root / _FILE).unlink(missing_ok=True)


def signature_of(path: Path | StoredObject) -> Signature:
    """The signature of a file or object. An object's comes from its listing, without a request. Raises OSError."""
    if isinstance(path, StoredObject):
        return Signature(path.n_bytes, 0 if path.e_tag else path.modified_ns, 0, 0, path.e_tag or "")
    status = path.stat()
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _without_ctime(signature: Signature) -> Signature:
    return msgspec.structs.replace(signature, ctime_ns=0)


def _load(path: Path) -> dict[str, _KnownFact]:
    try:
        return msgspec.json.decode(read(path), type=dict[str, _KnownFact])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
