"""Finished units, kept under their keys in .tokenmill/units: what an interrupted build had done is not done again.

A key is a digest of all that a unit's bytes follow from (see `unit_key`), so what is found under it is right, whatever
project state asks. Files in the store are read-only; an output is another name for the same file (a hard link) or a copy.
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
from tokenmill.storage.atomic import flush, make_folder, naming, partial_path, read, sha256_file

T = TypeVar("T")

_FACTS_FILE = "facts.json"
_GROUP_LETTERS = 2  # of a key: the units whose keys begin with them stand in one folder


class File(msgspec.Struct, frozen=True):
    """A file as it was put into the store; its length, time of change and inode tell whether it was touched since."""

    sha256: str
    n_bytes: int
    mtime_ns: int
    inode: int


class _Kept(msgspec.Struct, frozen=True):
    """What stands beside a unit's files: each as it was, by name, and what the stage wants to know of the unit again."""

    files: dict[str, File]
    facts: msgspec.Raw


class Done(NamedTuple, Generic[T]):
    """A finished unit: the folder of its files, its facts, and its files by name."""

    folder: Path
    facts: T
    files: Mapping[str, File]


def unit_key(**decides: Any) -> str:
    """The key of a unit: sha256, in hex, over everything that decides its bytes, given by name."""
    return hashlib.sha256(msgspec.json.encode(decides, order="sorted")).hexdigest()


class UnitStore:
    """The finished units of the project at `root`; may be used from several threads.

    `trust`: whether to take a file that was not touched for whole, or to read it again.
    """

    def __init__(self, root: Path, trust: bool = True) -> None:
        self._root = root / SCRATCH_DIRECTORY / "units"
        self._trust = trust
        self._unflushed: set[Path] = set()

    def keys(self) -> set[str]:
        """Those of the units that there are, be they whole or not."""
        return {folder.name for folder in self._folders()}

    def find(self, key: str, kind: type[T]) -> Done[T] | None:
        """A finished unit, its facts of type `kind`; None when it is not there, or not as it was put there."""
        folder = self._folder(key)
        whole = self._whole(key, self._trust)
        if whole is None:
            return None
        kept, found = whole
        try:
            facts = msgspec.json.decode(kept.facts, type=kind)
        except msgspec.DecodeError:
            return None
        if found != kept.files:  # the store was copied from elsewhere
            partial = partial_path(self._root / key)  # not in the unit's folder: a killed build's would stay there
            with naming(partial):
                partial.write_bytes(msgspec.json.encode(_Kept(found, kept.facts)))
            flush(partial)
            partial.replace(folder / _FACTS_FILE)
        os.utime(folder)  # when it was last used
        return Done(folder, facts, found)

    def _whole(self, key: str, trust: bool) -> tuple[_Kept, dict[str, File]] | None:
        """What is known of a unit that is there as it was put there, and its files as they are now, which may be copies.

        `trust`: files of the known size and times are not read.
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
        """Yields an empty folder for a unit's files; `keep` flushes them and makes it the unit. Otherwise what is in it goes."""
        partial = partial_path(self._root / key)
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def keep(self, key: str, partial: Path, facts: T) -> Done[T]:
        """Makes the files in `partial` the finished unit, in one step. `flush` makes it last."""
        folder = self._folder(key)
        files = {}
        for path in sorted(partial.iterdir()):
            path.chmod(0o444)
            flush(path)
            files[path.name] = _file(path, sha256_file(path))
        kept = _Kept(files, msgspec.Raw(msgspec.json.encode(facts)))
        if (whole := self._whole(key, trust=False)) and _is_same(whole[0], kept):
            os.utime(folder)
            # A forced build's: what is linked to its files in outputs and DVC's cache stays so.
            return Done(folder, facts, whole[1])
        with naming(partial / _FACTS_FILE):
            (partial / _FACTS_FILE).write_bytes(msgspec.json.encode(kept))
        flush(partial / _FACTS_FILE)
        flush(partial)
        make_folder(folder.parent)
        if folder.exists():  # one that is damaged, or that a forced build made with other bytes
            shutil.rmtree(folder)
        partial.rename(folder)
        self._unflushed.add(folder.parent)
        return Done(folder, facts, files)

    def flush(self) -> None:
        """Returns when the units that were kept would be there after a power cut. Once for all of them: for a small unit, to
        flush the folder that it is in takes as long as to count it."""
        while self._unflushed:
            flush(self._unflushed.pop())

    def remove_damaged(self, altered: Iterable[Path]) -> None:
        """Removes the units that have one of the files given by another name, if they are not as they were put there."""
        inodes = {path.stat().st_ino for path in altered}
        for folder in self._folders() if inodes else ():
            with os.scandir(folder) as entries:
                shares = any(entry.inode() in inodes for entry in entries)
            if shares:
                self._remove_if_damaged(folder)

    def remove_all_damaged(self) -> None:
        """Reads each unit, and removes those that are not as they were put there."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(self._remove_if_damaged, list(self._folders())):
                pass

    def _remove_if_damaged(self, folder: "os.DirEntry[str]") -> None:
        if self._whole(folder.name, trust=False) is None:
            shutil.rmtree(folder)

    def clean(self, bytes_max: int) -> None:
        """Removes units, those first that were used longest ago, until what no output shares is `bytes_max` or less."""
        units = sorted((folder.stat().st_mtime_ns, folder.path) for folder in self._folders())
        held = {folder: _held_bytes(folder) for _, folder in units}
        total = sum(held.values())
        for _, folder in units:
            if total <= bytes_max:
                break
            shutil.rmtree(folder)
            total -= held[folder]

    def _folders(self) -> Iterator["os.DirEntry[str]"]:
        """The folders of the units. With `Path.glob`, to look at 4,000 takes three times as long."""
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
    """Whether two units have the same facts and the same bytes, wherever their files are."""
    return bytes(one.facts) == bytes(other.facts) and _digests(one.files) == _digests(other.files)


def _digests(files: Mapping[str, File]) -> dict[str, str]:
    return {name: file.sha256 for name, file in files.items()}


def _file(path: Path, sha256: str) -> File:
    status = path.stat()
    return File(sha256, status.st_size, status.st_mtime_ns, status.st_ino)


def _held_bytes(folder: str) -> int:
    """What removing the unit gives back: nothing for a file that has another name."""
    with os.scandir(folder) as entries:
        return sum(status.st_size for entry in entries if (status := entry.stat()).st_nlink == 1)
