"""Finds the files of the corpus."""

import fnmatch
import glob as globbing
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path, PurePath

from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.object_globs import find_objects
from tokenmill.corpus.pointers import how_to_restore
from tokenmill.errors import CorpusError, PointerError
from tokenmill.storage.urls import StoredObject, is_url, local_path

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".arrow", ".txt")

_LEFT_OUT = (".partial", ".tmp", ".dvc")  # unfinished files, and files that DVC puts beside data
_N_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Shard:
    """One input file. `path`: where it is; tokenmill.corpus.shard_files opens it. `name`: its path relative to the project's root,
    in POSIX form; outside it starts with ../ or /. The name of an object is its URL. `source`: None for a file that is not of the
    project's documents."""

    path: Path | StoredObject
    name: str
    n_bytes: int
    source: DocumentSource | None = field(default=None, compare=False)  # follows from the name

    @property
    def named_source(self) -> str | None:
        """The name of its source, if it has one."""
        return None if self.source is None else self.source.name

    @property
    def section(self) -> str:
        """Where params.yaml says how it is read."""
        return "source" if self.source is None else self.source.section


@dataclass(frozen=True)
class ShardRange:
    """A range of whole documents of a shard: bytes of a .jsonl file or row groups of a .parquet file, from `start` up to but
    without `stop`. `first_row`: the row of its first document in the shard, from 0. `first_line`: its first line, from 1."""

    start: int
    stop: int
    n_bytes: int
    first_row: int
    first_line: int


def find_shards(
    root: Path, glob: str | Sequence[str], asked: str = "source.glob", source: DocumentSource | None = None
) -> list[Shard]:
    """The files that the globs match, each once, sorted by name. `asked`: where the globs come from, for error messages. `source`:
    the one that they are of.

    `**` matches folders at any depth. Hidden files and names that end with .partial, .tmp or .dvc are left out. A glob may be the
    URL of objects in object storage, of which those without content and with a name of no kind are left out, too: they mark
    folders. Raises CorpusError for a glob that matches no file, a folder that cannot be listed, a file of unknown kind, a
    broken link, and a .dvc file whose data is not there; and StorageError.
    """
    globs = [local_path(one) for one in ([glob] if isinstance(glob, str) else glob)]
    base = os.path.abspath(root)  # noqa: PTH100 — resolve() would follow links and name another file
    names = {name for one in globs if not is_url(one) for name in _matches(base, one, asked)}
    listings: dict[str, list[StoredObject]] = {}
    stored = {one.url: one for glob in globs if is_url(glob) for one in _objects(glob, asked, listings)}
    shards = [_shard(root, name, asked, source) for name in names]
    shards += [_stored_shard(one, asked, source) for one in stored.values()]
    return sorted(shards, key=lambda shard: shard.name)


def _objects(glob: str, asked: str, listings: dict[str, list[StoredObject]]) -> list[StoredObject]:
    found = [one for one in find_objects(glob, asked, listings) if one.n_bytes or one.url.endswith(SUFFIXES)]
    found = [one for one in found if not _is_left_out(one.url.rpartition("/")[2])]
    if not found:
        raise CorpusError(
            f"{asked}: expected objects that match {glob!r}; found only empty ones that mark folders, hidden and unfinished ones. "
            f"Correct {asked}, or put objects there.",
            code="TM203",
        )
    return found


def _stored_shard(stored: StoredObject, asked: str, source: DocumentSource | None) -> Shard:
    _check_kind(stored.url, asked)
    return Shard(stored, stored.url, stored.n_bytes, source)


# A build lists the shards after every stage, and there may be many, so paths are text here: Path objects take six times as long.


def _matches(base: str, glob: str, asked: str) -> set[str]:
    is_in_loop = cache(_is_in_loop)
    name_of = cache(partial(_name, base))
    try:
        found = [
            (os.path.join(name_of(folder), last), is_folder)  # noqa: PTH118
            for folder, last, is_folder in _paths(base, "", PurePath(glob).parts)
        ]
        names = {name for name, is_folder in found if not is_folder and _is_shard(base, name, is_in_loop)}
        away = min((name for name, _ in found if name.endswith(".dvc") and _is_away(base, name)), default=None)
        if not names and away is None:
            away = next((os.path.join(*path[:2]) for path in _paths(base, "", PurePath(f"{glob}.dvc").parts)), None)  # noqa: PTH118
    except OSError as error:
        raise CorpusError(
            f"{error.filename}: cannot be listed: {error.strerror}. Check the folder and its permissions."
        ) from None
    if away is not None:
        raise PointerError(
            f"{away}: its file or folder, {PurePath(away).name.removesuffix('.dvc')}, is not there. DVC keeps it: run `dvc pull`, "
            "or delete the .dvc file."
        )
    if not names:
        folder = min((name for name, is_folder in found if is_folder and "**" not in glob), default=None)
        raise CorpusError(_nothing_matches(Path(base), glob, asked, folder), code="TM203")
    return names


def _paths(base: str, folder: str, parts: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """The paths below a folder that a glob matches: the folder relative to `base`, the name in it, and whether that is a folder.
    Raises OSError for a folder that cannot be listed, which the glob module would silently skip."""
    part, rest = parts[0], parts[1:]
    if not globbing.has_magic(part):
        path = Path(base, folder, part)
        if rest and path.is_dir():
            yield from _paths(base, os.path.join(folder, part), rest)  # noqa: PTH118
        elif not rest and os.path.lexists(path):
            yield folder, part, path.is_dir()
        return
    if part == "**" and rest:
        yield from _paths(base, folder, rest)
    with os.scandir(os.path.join(base, folder)) as entries:  # noqa: PTH118
        found = [entry for entry in entries if part.startswith(".") or not entry.name.startswith(".")]
    for entry in found:
        is_folder = Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()
        if part == "**":
            if not rest:
                yield folder, entry.name, is_folder
            if is_folder and not (entry.is_symlink() and _is_in_loop(entry.path)):
                yield from _paths(base, os.path.join(folder, entry.name), parts)  # noqa: PTH118
        elif fnmatch.fnmatchcase(entry.name, part):
            if not rest:
                yield folder, entry.name, is_folder
            elif is_folder:
                yield from _paths(base, os.path.join(folder, entry.name), rest)  # noqa: PTH118


def _is_shard(base: str, name: str, is_in_loop: Callable[[str], bool]) -> bool:
    folder, last = os.path.split(name)
    return not _is_left_out(last) and not is_in_loop(os.path.join(base, folder))  # noqa: PTH118


def _is_away(base: str, name: str) -> bool:
    """Whether what a .dvc file stands for is missing beside it."""
    return not os.path.lexists(os.path.join(base, name.removesuffix(".dvc")))  # noqa: PTH118


def _is_left_out(last: str) -> bool:
    return last.startswith(".") or last.endswith(_LEFT_OUT)


def _is_in_loop(folder: str) -> bool:
    """Whether a link in `folder` leads back to a folder above it. `**` would find a file in such a loop forty times."""
    path = Path(os.path.normpath(folder))  # otherwise a path with `..` would repeat a folder and look like a loop
    real = [os.path.realpath(one) for one in (path, *path.parents)]
    return len(set(real)) < len(real)


def _name(base: str, folder: str) -> str:
    """The one name of a folder, so that two globs that match the same file agree. The name of `base` is empty."""
    inside = os.path.relpath(os.path.join(base, folder), base)  # noqa: PTH118 — Path cannot make `..`
    if inside == os.curdir:
        return ""
    outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
    return os.path.normpath(folder) if outside else inside


def _shard(root: Path, name: str, asked: str, source: DocumentSource | None) -> Shard:
    path = root / name
    if not name.isascii() and name != name.encode(errors="ignore").decode():
        raise CorpusError(f"{name!r}: the file's name is not valid UTF-8. Rename the file.")
    _check_kind(name, asked)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CorpusError(f"{name}: is a FIFO, a socket or a device; expected a file. Remove it.")
        return Shard(path, name, found.st_size, source)
    except OSError as error:
        target = str(path.readlink()) if path.is_symlink() else ""
        place = f"{name} (a link to {target})" if target else name
        restore = how_to_restore(target)
        raise CorpusError(
            f"{place}: cannot be read: {error.strerror}. Restore the file (`{restore}`), or remove it."
        ) from None


def _check_kind(name: str, asked: str) -> None:
    if not name.endswith(SUFFIXES):
        raise CorpusError(
            f"{name}: files of this kind cannot be read; expected a name that ends with {', '.join(SUFFIXES)}. "
            f"Convert it, move it elsewhere, or make {asked} narrower."
        )


def _nothing_matches(root: Path, glob: str, asked: str, matched_folder: str | None) -> str:
    parts = Path(glob).parts
    n_plain = next((i for i, part in enumerate(parts) if globbing.has_magic(part)), max(len(parts) - 1, 0))
    folder = Path(os.path.abspath(root.joinpath(*parts[:n_plain])))  # noqa: PTH100 — as in _name
    exists = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    missing = "" if exists == folder else ", which is not there"
    if matched_folder is not None:
        return (
            f"{asked}: expected files that match {glob!r}; found the folder {matched_folder}. "
            f"{glob.rstrip('/') + '/**/*'!r} matches the files in it, at any depth."
        )
    if missing and folder.with_name(f"{folder.name}.dvc").is_file():
        return f"{asked}: expected files that match {glob!r}; {folder} is tracked by DVC and not downloaded. Run `dvc pull`."
    return (
        f"{asked}: expected files that match {glob!r}; found none in {folder}{missing}. "
        f"{exists} holds {_listing(exists)}. "
        f"Put files ({', '.join(SUFFIXES)}) there, or correct {asked}."
    )


def _listing(folder: Path) -> str:
    try:
        names = sorted(_entries(folder))
    except OSError as error:
        return f"files that cannot be listed ({error.strerror})"
    more = f" and {len(names) - _N_NAMES_SHOWN} more" if len(names) > _N_NAMES_SHOWN else ""
    return ", ".join(names[:_N_NAMES_SHOWN]) + more if names else "nothing"


def _entries(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name + ("/" if entry.is_dir() else "")
