"""The errors for globs that match no file, and for files of unknown kind."""

import glob as globbing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from tokenmill.corpus.kinds import COMPRESSIONS, UNFINISHED, known_suffixes
from tokenmill.errors import CorpusError

_N_NAMES_SHOWN = 5
_N_KINDS_SHOWN = 8


def strange_files(files: Sequence[tuple[str, str]]) -> CorpusError:
    """The error for files of unknown kind: how many have each suffix, with one example. `files`: each name with the parameter
    whose glob matches it."""
    by_suffix: dict[str, list[str]] = {}
    for name, _ in files:
        last = PurePath(name)
        packed = last.suffix if last.suffix.lower() in COMPRESSIONS else ""
        by_suffix.setdefault((PurePath(last.stem).suffix if packed else last.suffix) + packed, []).append(name)
    groups = sorted(by_suffix.items(), key=lambda one: (-len(one[1]), one[0]))
    kinds = [
        f"{len(some):,} {suffix or 'without a suffix'}, like {min(some)}" for suffix, some in groups[:_N_KINDS_SHOWN]
    ]
    kinds += [f"and {len(groups) - _N_KINDS_SHOWN:,} other kinds"] if len(groups) > _N_KINDS_SHOWN else []
    what = "files of this kind" if len(files) == 1 else f"files of these kinds ({'; '.join(kinds)})"
    if any(name.lower().endswith(UNFINISHED) for name, _ in files):
        what = f"{what}, of which those in {', '.join(UNFINISHED)} are downloads that have not ended,"
    settings = list(dict.fromkeys(asked for _, asked in files))
    sections = [asked.removesuffix(".glob") for asked in settings if asked.endswith(".glob")]
    them, they = ("it", "it is") if len(files) == 1 else ("them", "they are")
    say_it = (
        f"If {they} plain text, set {sections[0]}.format: text, or give {them} a source with that format if other files are not "
        "plain text (see `sources`). "
        if sections
        else ""
    )
    return CorpusError(
        files[0][0] if len(files) == 1 else "",
        f"{what} cannot be read; expected a name that ends with {known_suffixes()}.",
        f"{say_it}Otherwise convert {them}, move {them} elsewhere, or make {' and '.join(settings)} narrower.",
    )


def nothing_matches(root: Path, glob: str, asked: str, matched_folder: str | None) -> CorpusError:
    """The error for a glob that matches no file. `matched_folder`: a folder that it matches, if any."""
    parts = Path(glob).parts
    n_plain = next((i for i, part in enumerate(parts) if globbing.has_magic(part)), max(len(parts) - 1, 0))
    folder = Path(os.path.abspath(root.joinpath(*parts[:n_plain])))  # noqa: PTH100 — as in _name
    exists = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    missing = "" if exists == folder else ", which is not there"
    expected = f"expected files that match {glob!r}"
    if matched_folder is not None:
        inside = f"{glob.rstrip('/') + '/**/*'!r} matches the files in it, at any depth."
        return CorpusError(asked, f"{expected}; found the folder {matched_folder}.", inside, code="TM203")
    tracked = next((one for one in (folder, *folder.parents) if Path(f"{one}.dvc").is_file()), None)
    if tracked is not None and not _holds_any(tracked):
        what = f"{expected}; {tracked} is tracked by DVC and not downloaded."
        return CorpusError(asked, what, "Run `dvc pull`.", code="TM203")
    return CorpusError(
        asked,
        f"{expected}; found none in {folder}{missing}. {exists} holds {_listing(exists)}.",
        f"Put files there, or correct {asked}. They are read if their names end with {known_suffixes()}.",
        code="TM203",
    )


def _holds_any(folder: Path) -> bool:
    """Whether the folder exists and holds a file that is not hidden."""
    return folder.is_dir() and any(not one.name.startswith(".") for one in folder.iterdir())


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
