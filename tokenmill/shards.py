"""Which files are the corpus."""

import fnmatch
import glob as globbing
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from tokenmill.errors import CorpusError

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".arrow", ".txt")

_LEFT_OUT = (".partial", ".tmp", ".dvc")  # files that are not whole yet, and those that DVC puts beside data
_N_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Shard:
    """One input file. `name` is its path seen from the project's root, in POSIX form: it starts with ../ or / outside."""

    path: Path
    name: str
    n_bytes: int


@dataclass(frozen=True)
class Part:
    """Whole documents of a shard, in order: bytes of a .jsonl file, or row groups of a .parquet file, from `start` to before
    `stop`. `first_row`: of its first document in the shard, from 0; `first_line`: the same of its first line, from 1."""

    start: int
    stop: int
    n_bytes: int
    first_row: int
    first_line: int


def find_shards(root: Path, glob: str | Sequence[str], key: str = "source.glob in params.yaml") -> list[Shard]:
    """The files that the globs match, each once, sorted by name.

    `**` stands for any depth of folders. `key`: where the globs stand, for messages.
    Hidden files and names that end with .partial, .tmp or .dvc are left out. Raises
    CorpusError for a glob that matches no file, a folder that cannot be listed, a file of unknown kind, and a link that
    leads nowhere.
    """
    globs = [glob] if isinstance(glob, str) else glob
    names = sorted({name for one in globs for name in _matches(root, one, key)})
    return [_shard(root, name, key) for name in names]


def _matches(root: Path, glob: str, key: str) -> set[str]:
    try:
        found = _paths(root, PurePath(glob).parts)
        paths = found if PurePath(glob).is_absolute() else (path.relative_to(root) for path in found)
        base = os.path.abspath(root)  # noqa: PTH100 — resolve() would follow links and name another file
        is_in_loop = cache(_is_in_loop)
        found_names = {_name(base, str(path)) for path in paths}
        names = {name for name in found_names if _is_shard(base, name, is_in_loop)}
    except OSError as error:
        raise CorpusError(
            f"{error.filename}: cannot be listed: {error.strerror}. Check the folder and its permissions."
        ) from None
    if not names:
        folder = next((name for name in sorted(found_names) if "**" not in glob and (root / name).is_dir()), None)
        raise CorpusError(_nothing_matches(root, glob, key, folder))
    return names


def _paths(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What the parts of a glob match below a folder. Raises OSError: the glob module passes over what cannot be listed."""
    part, rest = parts[0], parts[1:]
    if not globbing.has_magic(part):
        path = folder / part
        if rest and path.is_dir():
            yield from _paths(path, rest)
        elif not rest and os.path.lexists(path):
            yield path
        return
    if part == "**" and rest:
        yield from _paths(folder, rest)
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if part.startswith(".") or not entry.name.startswith(".")]
    for entry in found:
        if part == "**":
            if not rest:
                yield folder / entry.name
            if entry.is_dir() and not (entry.is_symlink() and _is_in_loop(str(folder / entry.name))):
                yield from _paths(folder / entry.name, parts)
        elif fnmatch.fnmatchcase(entry.name, part):
            if not rest:
                yield folder / entry.name
            elif entry.is_dir():
                yield from _paths(folder / entry.name, rest)


def _is_shard(base: str, name: str, is_in_loop: Callable[[str], bool]) -> bool:
    """Asked of every file at each stage, so in plain strings: with Path it takes four times as long."""
    path = os.path.normpath(os.path.join(base, name))  # noqa: PTH118
    folder, last = os.path.split(path)
    if last.startswith(".") or last.endswith(_LEFT_OUT) or is_in_loop(folder):
        return False
    return not os.path.isdir(path)  # noqa: PTH112


def _is_in_loop(folder: str) -> bool:
    """Whether a link in `folder` leads back to a folder that it came through: `**` finds a file there forty times."""
    real = [os.path.realpath(one) for one in (Path(folder), *Path(folder).parents)]
    return len(set(real)) < len(real)


def _name(base: str, path: str) -> str:
    """The one name of a path, so that two globs which match the same file agree."""
    inside = os.path.relpath(os.path.join(base, path), base)  # noqa: PTH118 — Path has no `..` of its own
    outside = inside.startswith(os.pardir + os.sep)
    return (os.path.normpath(path) if outside else inside).replace(os.sep, "/")


def _shard(root: Path, name: str, key: str) -> Shard:
    path = root / name
    if not name.isascii() and name != name.encode(errors="ignore").decode():
        raise CorpusError(f"{name!r}: the file's name is not valid UTF-8. Rename the file.")
    if not name.endswith(SUFFIXES):
        raise CorpusError(
            f"{name}: not a kind of file that can be read; expected a name that ends with {', '.join(SUFFIXES)}. "
            f"Convert it, move it elsewhere, or have {key} leave it out."
        )
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CorpusError(f"{name}: is no file but a FIFO, a socket or a device. Remove it.")
        return Shard(path, name, found.st_size)
    except OSError as error:
        target = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise CorpusError(
            f"{name}{target}: cannot be read: {error.strerror}. Restore the file (`dvc checkout`), or remove it."
        ) from None


def _nothing_matches(root: Path, glob: str, key: str, matched_folder: str | None) -> str:
    parts = Path(glob).parts
    n_plain = next((i for i, part in enumerate(parts) if globbing.has_magic(part)), max(len(parts) - 1, 0))
    folder = Path(os.path.abspath(root.joinpath(*parts[:n_plain])))  # noqa: PTH100 — as in _name
    exists = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    missing = "" if exists == folder else ", which is not there"
    if matched_folder is not None:
        return (
            f"{key}: expected files that match {glob!r}; found the folder {matched_folder}. "
            f"{glob.rstrip('/') + '/**/*'!r} matches the files in it, at any depth."
        )
    return (
        f"{key}: expected files that match {glob!r}; found none in {folder}{missing}. "
        f"{exists} holds {_listing(exists)}. "
        f"Put files ({', '.join(SUFFIXES)}) there, or correct the glob."
    )


def _listing(folder: Path) -> str:
    try:
        names = sorted(_entries(folder))
    except OSError as error:
        return f"what cannot be listed ({error.strerror})"
    more = f" and {len(names) - _N_NAMES_SHOWN} more" if len(names) > _N_NAMES_SHOWN else ""
    return ", ".join(names[:_N_NAMES_SHOWN]) + more if names else "nothing"


def _entries(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name + ("/" if entry.is_dir() else "")
