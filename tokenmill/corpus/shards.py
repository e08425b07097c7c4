"""Finds the files of the corpus."""

import fnmatch
import glob as globbing
import os
import stat
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path, PurePath

from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.file_messages import StrangeFile, nothing_matches, strange_files
from tokenmill.corpus.kinds import FileKind, kind_of, known_suffixes
from tokenmill.corpus.object_globs import find_objects
from tokenmill.errors import CorpusError, PointerError
from tokenmill.storage.pointers import how_to_restore
from tokenmill.storage.urls import StoredObject
from tokenmill_reader.urls import is_url, local_path, place

_LEFT_OUT = (".partial", ".tmp", ".dvc")  # unfinished files, and DVC's files beside data
_OF_THE_SYSTEM = (".DS_Store", "._", ".git")  # begins of hidden names that macOS and git make
_DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json")  # of the library datasets
_N_ERRORS_SHOWN = 20
_RAW_PREFIX = "data/raw/"  # omitted from the names of the dataset's files


@dataclass(frozen=True)
class Shard:
    """One input file. `path`: to be opened by tokenmill.corpus.shard_files. `name`: its path relative to the project's root, in
    POSIX form; outside, it starts with ../ or /. An object's name is its URL. `source`: None for a file that is none of the
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
    def kind(self) -> FileKind:
        """The kind of the file, by its source's format or else its name. Raises CorpusError for an unknown kind, as from an edited
        manifest."""
        found = kind_of(self.name, None if self.source is None else self.source.format)
        if found is None:
            raise CorpusError(self.name, f"expected a name that ends with {known_suffixes()}.", "Correct it.")
        return found

    @property
    def ids_from_name(self) -> str | None:
        """The path, without data/raw, that its documents' ids begin with if the source's format is text; else None."""
        is_asked = self.source is not None and self.source.format == "text"
        return inside(self.name) if is_asked else None

    def id_of(self, row: int, is_whole: bool) -> str:
        """The id of a document of plain text. `is_whole`: whether the file is one document."""
        name = self.ids_from_name
        return str(row) if name is None else name if is_whole else f"{name}:{row}"

    @property
    def section(self) -> str:
        """The section of params.yaml that says how to read it."""
        return "source" if self.source is None else self.source.section

    def setting(self, param: str) -> str:
        """The full name of a key of that section, such as "source.id_column". "count.by" and options stand for themselves."""
        return param if "." in param or param.startswith("--") else f"{self.section}.{param}"


@dataclass(frozen=True)
class ShardRange:
    """A range of whole documents of a shard: bytes of a .jsonl or .csv file, or row groups of a .parquet file, from `start` up to
    but without `stop`. `first_row`: the row of its first document in the shard, from 0. `first_line`: its first line, from 1."""

    start: int
    stop: int
    n_bytes: int
    first_row: int
    first_line: int


@dataclass(frozen=True)
class MatchedFiles:
    """The files that globs match. `shards`: readable ones, sorted by name. `strange`: those of unknown kind. `wrong`: the errors of
    the others."""

    shards: list[Shard]
    strange: list[StrangeFile]
    wrong: list[CorpusError]


def find_shards(
    root: Path, glob: str | Sequence[str], setting: str = "source.glob", source: DocumentSource | None = None
) -> list[Shard]:
    """The files that the globs match, each once, sorted by name. `setting`: the parameter with the globs, for messages. `source`:
    theirs.

    `**` matches folders at any depth. Hidden files and names that end with .partial, .tmp or .dvc are left out. So are files
    that describe a folder of documents (see `is_description`), unless the format is text or they are all there is. A glob may be
    the URL of objects in object storage; empty ones of unknown kind mark folders and are left out, too. Raises StorageError, and
    CorpusError for a glob that matches no file, a folder that cannot be listed, a .dvc file without its data, and, in one error,
    all files that are of unknown kind or unreadable.
    """
    return whole([look_for(root, glob, setting, source)])


def matching_names(root: Path, glob: str | Sequence[str], asked: str) -> list[str]:
    """The names of the files that the globs match, whatever their kind. Raises CorpusError as `find_shards` does, and
    StorageError."""
    local, stored = _named(root, glob, asked)
    return sorted({*local, *stored})


def hidden_names(root: Path, folder: str) -> list[str]:
    """The names of the hidden files and folders below a folder that are not inside others, sorted; those of folders end with a
    slash. What each system makes is left out, and so is a name that DVC's list of files cannot have, which a build refuses.
    Raises OSError."""
    found = _paths(os.path.abspath(root), "", (*PurePath(folder).parts, "**", ".*"))  # noqa: PTH100 — as in _named
    return sorted(
        os.path.join(above, f"{last}/" if is_folder else last)  # noqa: PTH118
        for above, last, is_folder in found
        if not last.startswith(_OF_THE_SYSTEM) and "\n" not in last and last == last.encode(errors="ignore").decode()
    )


def look_for(
    root: Path, glob: str | Sequence[str], setting: str, source: DocumentSource | None, known: Set[str] = frozenset()
) -> MatchedFiles:
    """What `find_shards` finds, without the names in `known`, and with the unreadable files for which it would raise errors."""
    names, stored = _named(root, glob, setting)
    format = None if source is None else source.format
    matched_files = MatchedFiles([], [], [])
    matched = {*names, *stored}
    described = set() if format == "text" else {name for name in matched if is_description(root, name, matched)}
    for name in sorted(matched - known - (described if described < matched else set())):
        if kind_of(name, format) is None:
            matched_files.strange.append(
                StrangeFile(name, setting, stored[name].n_bytes if name in stored else _n_bytes(root / name))
            )
        elif name in stored:
            matched_files.shards.append(Shard(stored[name], name, stored[name].n_bytes, source))
        else:
            try:
                matched_files.shards.append(_shard(root, name, source))
            except CorpusError as error:
                matched_files.wrong.append(error)
    return matched_files


def _named(root: Path, glob: str | Sequence[str], setting: str) -> tuple[set[str], dict[str, StoredObject]]:
    """The names of local files that the globs match, and the matching objects by URL."""
    globs = [local_path(one) for one in ([glob] if isinstance(glob, str) else glob)]
    base = os.path.abspath(root)  # noqa: PTH100 — resolve() would follow links and name another file
    listings: dict[str, list[StoredObject]] = {}
    stored = {one.url: one for glob in globs if is_url(glob) for one in _objects(glob, setting, listings)}
    return {name for one in globs if not is_url(one) for name in _matches(base, one, setting)}, stored


def whole(matched: Sequence[MatchedFiles]) -> list[Shard]:
    """All shards, in order. Raises one CorpusError for all files that are of unknown kind or cannot be read."""
    wrong = [error for files in matched for error in files.wrong]
    if strange := [file for files in matched for file in files.strange]:
        wrong.append(strange_files(strange))
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        n_more = len(wrong) - _N_ERRORS_SHOWN
        more = [f"  and {n_more:,} more"] if n_more > 0 else []
        shown = [f"  {error}" for error in wrong[:_N_ERRORS_SHOWN]]
        raise CorpusError("", ["the files that documents are read from:", *shown, *more])
    return [shard for files in matched for shard in files.shards]


def is_description(root: Path, name: str, names: Set[str]) -> bool:
    """Whether a file is no document but describes its folder. The library datasets writes such files beside its tables, and a clone
    from a Hugging Face hub has a README.md. `names`: those of all files."""
    folder, slash, last = name.rpartition("/")
    match last:
        case "state.json":
            return f"{folder}{slash}dataset_info.json" in names
        case "README.md" if is_url(name):
            return name.startswith("hf://")
        case "README.md":
            return (root / folder / ".gitattributes").is_file()
        case _:
            return last in _DESCRIPTIONS


def _n_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def inside(name: str) -> str:
    """A shard's name without data/raw, or an object's path in its bucket."""
    return (place(name).key if is_url(name) else name).removeprefix(_RAW_PREFIX)


def _objects(glob: str, setting: str, listings: dict[str, list[StoredObject]]) -> list[StoredObject]:
    objects = [
        stored_object
        for stored_object in find_objects(glob, setting, listings)
        if stored_object.n_bytes or kind_of(stored_object.url)
    ]
    objects = [one for one in objects if not _is_left_out(one.url.rpartition("/")[2])]
    if not objects:
        raise CorpusError(
            setting,
            f"expected objects that match {glob!r}; found only empty ones that mark folders, hidden and unfinished "
            "ones.",
            f"Correct {setting}, or put objects there.",
            code="TM203",
        )
    return objects


# A build lists the shards after every stage, and there may be many, so paths are text here: Path objects take six times as long.


def _matches(base: str, glob: str, setting: str) -> set[str]:
    prefix_of = cache(partial(_prefix, base))
    is_in_loop = cache(lambda prefix: _is_in_loop(os.path.join(base, prefix)))  # noqa: PTH118
    try:
        paths = list(_paths(base, "", PurePath(glob).parts))
        names = {
            f"{prefix_of(folder)}{last}"
            for folder, last, is_folder in paths
            if not is_folder and not _is_left_out(last) and not is_in_loop(prefix_of(folder))
        }
        pointers = (f"{prefix_of(folder)}{last}" for folder, last, _ in paths if last.endswith(".dvc"))
        away = min((name for name in pointers if _is_away(base, name)), default=None)
        if not names and away is None:
            away = next((os.path.join(*path[:2]) for path in _paths(base, "", PurePath(f"{glob}.dvc").parts)), None)  # noqa: PTH118
    except OSError as error:
        raise CorpusError(
            error.filename, f"cannot be listed: {error.strerror}.", "Check the folder and its permissions."
        ) from None
    if away is not None:
        raise PointerError(
            away,
            f"its file or folder, {PurePath(away).name.removesuffix('.dvc')}, is not there.",
            "DVC keeps it: run `dvc pull`, or delete the .dvc file.",
        )
    if not names:
        folders = (f"{prefix_of(above)}{last}" for above, last, is_folder in paths if is_folder and "**" not in glob)
        folder = min(folders, default=None)
        raise nothing_matches(Path(base), glob, setting, folder)
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


def _is_away(base: str, name: str) -> bool:
    """Whether the data of a .dvc file is missing."""
    return not os.path.lexists(os.path.join(base, name.removesuffix(".dvc")))  # noqa: PTH118


def _is_left_out(last: str) -> bool:
    return last.startswith(".") or last.endswith(_LEFT_OUT)


def _is_in_loop(folder: str) -> bool:
    """Whether a link in `folder` leads back to a folder above it. `**` would find a file in such a loop forty times."""
    path = Path(os.path.normpath(folder))  # otherwise a path with `..` would repeat a folder and look like a loop
    real = [os.path.realpath(ancestor) for ancestor in (path, *path.parents)]
    return len(set(real)) < len(real)


def _prefix(base: str, folder: str) -> str:
    """A unique name of a folder with a slash at its end, so that two globs that match the same file agree. That of `base` is
    empty."""
    inside = os.path.relpath(os.path.join(base, folder), base)  # noqa: PTH118 — Path cannot make `..`
    if inside == os.curdir:
        return ""
    outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
    return os.path.join(os.path.normpath(folder) if outside else inside, "")  # noqa: PTH118


def _shard(root: Path, name: str, source: DocumentSource | None) -> Shard:
    path = root / name
    if not name.isascii() and name != name.encode(errors="ignore").decode():
        raise CorpusError(f"{name!r}", "the file's name is not valid UTF-8.", "Rename the file.")
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CorpusError(name, "is a FIFO, a socket or a device; expected a file.", "Remove it.")
        return Shard(path, name, found.st_size, source)
    except OSError as error:
        target = str(path.readlink()) if path.is_symlink() else ""
        place = f"{name} (a link to {target})" if target else name
        restore = how_to_restore(target)
        raise CorpusError(
            place, f"cannot be read: {error.strerror}.", f"Restore the file (`{restore}`), or remove it."
        ) from None
