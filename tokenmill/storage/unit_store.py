"""The unit store: finished units under their keys in .tokenmill/units, so that an interrupted build does not redo them.

The store is content-addressed. A key is a digest of everything that decides a unit's bytes (see `unit_key`), so a unit found
under a key is correct for any state of the project. Files in the store are read-only; an output is a hard link or a copy.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.storage.atomic import flush, make_folder, partial_path
from tokenmill.storage.writable import may_write
from tokenmill_reader.regular_files import naming, read, sha256_file

T = TypeVar("T")

_FACTS_FILE = "facts.json"
_GROUP_LETTERS = 2  # units whose keys begin with the same letters are in one folder


class File(msgspec.Struct, frozen=True):
    """A file as it was added to the store. Its length, mtime and inode tell whether it was touched since."""

    sha256: str
    n_bytes: int
    mtime_ns: int
    inode: int


class _Kept(msgspec.Struct, frozen=True):
    """The record beside a unit's files: the state of each file by name, and the stage's facts about the unit."""

    files: dict[str, File]
    facts: msgspec.Raw


class Done(NamedTuple, Generic[T]):
    """A finished unit: its folder, its facts, and its files by name."""

    folder: Path
    facts: T
    files: Mapping[str, File]


def unit_key(**decides: Any) -> str:
    """The key of a unit: the sha256, in hex, of everything that decides its bytes, given as named values."""
    return hashlib.sha256(msgspec.json.encode(decides, order="sorted")).hexdigest()


class UnitStore:
    """The finished units of the project at `root`. Safe to use from several threads.

    `trust`: whether a file with an unchanged size, mtime and inode is accepted without reading it.
    """

    def __init__(self, root: Path, trust: bool = True) -> None:
        self._root = root / SCRATCH_DIRECTORY / "units"
        self._trust = trust
        self._unflushed: set[Path] = set()

    def keys(self) -> set[str]:
        """The keys of all units in the store, intact or damaged."""
        return {folder.name for folder in self._folders()}

    def find(self, key: str, kind: type[T]) -> Done[T] | None:
        """A finished unit with facts of type `kind`; None if it is missing, or differs from what was stored."""
        folder = self._folder(key)
        whole = self._whole(key, self._trust)
        if whole is None:
            return None
        kept, files = whole
        try:
            facts = msgspec.json.decode(kept.facts, type=kind)
        except msgspec.DecodeError:
            return None
        if not may_write(self._root):  # whoever may only read a project may plan its build
            return Done(folder, facts, files)
        if files != kept.files:  # same bytes, but new times or inodes: the store was copied from elsewhere
            partial = partial_path(self._root / key)  # outside the unit's folder, where a leftover would stay
            with naming(partial):
                partial.write_bytes(msgspec.json.encode(_Kept(files, kept.facts)))
            flush(partial)
            partial.replace(folder / _FACTS_FILE)
        os.utime(folder)  # marks the last use
        return Done(folder, facts, files)

    def _whole(self, key: str, trust: bool) -> tuple[_Kept, dict[str, File]] | None:
        """The record of an intact unit, and its files as they are now, which may be copies. None if it is missing or damaged.

        `trust`: files with an unchanged size, mtime and inode are not read.
        """
        folder = self._folder(key)
        try:
            kept = msgspec.json.decode(read(folder / _FACTS_FILE), type=_Kept)
            found = {name: _look(folder / name, file, trust) for name, file in kept.files.items()}
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None
        return (kept, found) if _digests(found) == _digests(kept.files) else None

    @contextmanager
    def new(self, key: str) -> Iterator[Path]:
        """Yields an empty folder for a unit's files. `keep` makes it a unit of the store; otherwise it is deleted afterwards."""
        partial = partial_path(self._root / key)
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def keep(self, key: str, partial: Path, facts: T) -> Done[T]:
        """Makes the files in `partial` a finished unit, atomically. It survives a power cut only after `flush`."""
        folder = self._folder(key)
        files = {}
        for path in sorted(partial.iterdir()):
            path.chmod(0o444)
            flush(path)
            files[path.name] = _file(path, sha256_file(path))
        kept = _Kept(files, msgspec.Raw(msgspec.json.encode(facts)))
        with naming(partial / _FACTS_FILE):
            (partial / _FACTS_FILE).write_bytes(msgspec.json.encode(kept))
        flush(partial / _FACTS_FILE)
        flush(partial)
        make_folder(folder.parent)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if (whole := self._whole(key, trust=False)) and _is_same(whole[0], kept):
                os.utime(folder)
                # A forced build made the same bytes, or a cluster gave the unit to two workers. The old files stay, so links
                # from outputs and DVC's cache remain shared.
                return Done(folder, facts, whole[1])
            shutil.rmtree(folder)  # damaged, or a forced build made other bytes
            partial.rename(folder)
        self._unflushed.add(folder.parent)
        return Done(folder, facts, files)

    def flush(self) -> None:
        """Makes all kept units survive a power cut (fsync). It is called once for many units, because for a small unit the
        fsync of its folder takes as long as counting it."""
        while self._unflushed:
            flush(self._unflushed.pop())

    def remove(self, keys: Iterable[str]) -> None:
        """Removes these units, as far as they are there."""
        for key in keys:
            shutil.rmtree(self._folder(key), ignore_errors=True)

    def remove_damaged(self, altered: Iterable[Path]) -> None:
        """Removes each unit that shares a file (inode) with `altered`, if it differs from what was stored."""
        inodes = {path.stat().st_ino for path in altered}
        for folder in self._folders() if inodes else ():
            with os.scandir(folder) as entries:
                shares = any(entry.inode() in inodes for entry in entries)
            if shares:
                self._remove_if_damaged(folder)

    def remove_all_damaged(self) -> None:
        """Reads every unit, and removes those that differ from what was stored."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(self._remove_if_damaged, list(self._folders())):
                pass

    def _remove_if_damaged(self, folder: "os.DirEntry[str]") -> None:
        if self._whole(folder.name, trust=False) is None:
            shutil.rmtree(folder)

    def clean(self, bytes_max: int) -> None:
        """Removes units, least recently used first, until the bytes that no output shares are `bytes_max` or less."""
        units = sorted((folder.stat().st_mtime_ns, folder.path) for folder in self._folders())
        held = {folder: _held_bytes(folder) for _, folder in units}
        total = sum(held.values())
        for _, folder in units:
            if total <= bytes_max:
                break
            shutil.rmtree(folder)
            total -= held[folder]

    def _folders(self) -> Iterator["os.DirEntry[str]"]:
        """The folders of the units. `Path.glob` takes three times as long for 4,000 units."""
        if self._root.is_dir():
            with os.scandir(self._root) as groups:
                for group in groups:
                    if len(group.name) == _GROUP_LETTERS and group.is_dir():
                        with os.scandir(group) as folders:
                            yield from (folder for folder in folders if folder.is_dir())

    def _folder(self, key: str) -> Path:
        return self._root / key[:_GROUP_LETTERS] / key


def _look(path: Path, known: File, trust: bool) -> File:
    now = _file(path, known.sha256)
    return now if trust and now == known else _file(path, sha256_file(path))


def _is_same(one: _Kept, other: _Kept) -> bool:
    """Whether two units have the same facts and the same bytes. Where their files are does not matter."""
    return bytes(one.facts) == bytes(other.facts) and _digests(one.files) == _digests(other.files)


def _digests(files: Mapping[str, File]) -> dict[str, str]:
    return {name: file.sha256 for name, file in files.items()}


def _file(path: Path, sha256: str) -> File:
    status = path.stat()
    return File(sha256, status.st_size, status.st_mtime_ns, status.st_ino)


def _held_bytes(folder: str) -> int:
    """The bytes that removing the unit would free. A file with another hard link frees nothing."""
    with os.scandir(folder) as entries:
        return sum(status.st_size for entry in entries if (status := entry.stat()).st_nlink == 1)
