"""The errors for globs that match no file, and for files of unknown kind."""

import glob as globbing
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from tokenmill.corpus.kinds import COMPRESSIONS, UNFINISHED, known_suffixes
from tokenmill.errors import CorpusError

_N_NAMES_SHOWN = 5
_N_KINDS_SHOWN = 8
_LARGE_BYTES = 4_000_000
_TEXTS = re.compile(
    r"\.(md|markdown|mdx|rst|adoc|org|text|tex|log|srt|vtt|yaml|yml|toml|ini|cfg|sql|css|scss|po|proto|py|pyi|js|jsx|ts|tsx|java|kt"
    r"|scala|c|h|cc|cpp|hpp|cu|cs|rs|go|rb|php|pl|lua|r|jl|swift|m|sh|hs|ml|ex|erl|clj|lisp|el|v|sv|vhdl|f90|dart|zig)"
)
"""Suffixes of plain text, besides those that need no format."""

_CONVERSIONS = {
    (".xlsx",): "write each sheet as .csv, with pandas",
    (".xls", ".ods"): "save them as .xlsx or .csv first",
    (".warc",): "write the texts of its pages as .jsonl, with warcio and trafilatura",
    (".pdf",): "write their texts as .jsonl, with pypdf",
    (".html", ".htm", ".xhtml"): "write their texts as .jsonl, with trafilatura",
    (".docx",): "write their texts as .jsonl, with python-docx",
    (".doc", ".odt"): "save them as .docx first",
    (".epub",): "write their texts as .jsonl, with ebooklib",
}


class StrangeFile(NamedTuple):
    """A file of unknown kind. `asked`: the parameter whose glob matches it."""

    name: str
    asked: str
    n_bytes: int

    @property
    def suffix(self) -> str:
        """The end of its name, with that of the compression, as it is written; empty if there is none."""
        last = PurePath(self.name)
        packed = last.suffix if last.suffix.lower() in COMPRESSIONS else ""
        return (PurePath(last.stem).suffix if packed else last.suffix) + packed

    @property
    def kind(self) -> str:
        """The suffix in lower case, without that of the compression."""
        suffix = self.suffix.lower()
        return next((suffix.removesuffix(packed) for packed in COMPRESSIONS if suffix.endswith(packed)), suffix)


def strange_files(files: Sequence[StrangeFile]) -> CorpusError:
    """The error for files of unknown kind: how many have each suffix, with one example, and how to convert those that programs
    convert."""
    by_suffix: dict[str, list[str]] = {}
    for file in files:
        by_suffix.setdefault(file.suffix, []).append(file.name)
    groups = sorted(by_suffix.items(), key=lambda suffix_there: (-len(suffix_there[1]), suffix_there[0]))
    kinds = [
        f"{len(some):,} {suffix or 'without a suffix'}, like {min(some)}" for suffix, some in groups[:_N_KINDS_SHOWN]
    ]
    kinds += [f"and {len(groups) - _N_KINDS_SHOWN:,} other kinds"] if len(groups) > _N_KINDS_SHOWN else []
    what = "files of this kind" if len(files) == 1 else f"files of these kinds ({'; '.join(kinds)})"
    if any(file.name.lower().endswith(UNFINISHED) for file in files):
        what = f"{what}, of which those in {', '.join(UNFINISHED)} are downloads that have not ended,"
    kinds_there = {file.kind for file in files}
    conversions = [
        f"  {suffix}: {how}"
        for suffixes, how in _CONVERSIONS.items()
        if (suffix := next((suffix_there for suffix_there in suffixes if suffix_there in kinds_there), None))
    ]
    settings = list(dict.fromkeys(file.asked for file in files))
    them = "it" if len(files) == 1 else "them"
    how = ", as the page “From csv, WARC, the Hub, folders” shows" if conversions else ""
    convert = f"onvert {them}{how}, move {them} elsewhere, or make {' and '.join(settings)} narrower."
    advice = _read_as_text(files)
    return CorpusError(
        files[0].name if len(files) == 1 else "",
        [f"{what} cannot be read; expected a name that ends with {known_suffixes()}.", *conversions],
        f"{advice} Otherwise c{convert}" if advice else f"C{convert}",
    )


def _read_as_text(files: Sequence[StrangeFile]) -> str:
    """How to have the files of plain text read; empty if none seems to be."""
    texts = [file for file in files if _TEXTS.fullmatch(file.kind) and file.asked.endswith(".glob")]
    if not texts:
        return ""
    they, them = ("it is", "it") if len(texts) == 1 else ("they are", "them")
    if len(texts) < len(files):
        they = f"those in {', '.join(sorted({file.suffix for file in texts}))} are"
    section = texts[0].asked.removesuffix(".glob")
    largest = max(texts, key=lambda file: file.n_bytes)
    large = f", {largest.name} one of {largest.n_bytes / 1e6:,.0f} MB" if largest.n_bytes >= _LARGE_BYTES else ""
    return (
        f"If {they} plain text, set {section}.format: text, or give {them} a source with that format if other files are not "
        f"plain text (see `sources`). Each file is then one document{large}."
    )


def nothing_matches(root: Path, glob: str, setting: str, matched_folder: str | None) -> CorpusError:
    """The error for a glob that matches no file. `matched_folder`: a folder that it matches, if any."""
    parts = Path(glob).parts
    n_plain = next((i for i, part in enumerate(parts) if globbing.has_magic(part)), max(len(parts) - 1, 0))
    folder = Path(os.path.abspath(root.joinpath(*parts[:n_plain])))  # noqa: PTH100 — as in _name
    exists = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    missing = "" if exists == folder else ", which is not there"
    expected = f"expected files that match {glob!r}"
    if matched_folder is not None:
        inside = f"{glob.rstrip('/') + '/**/*'!r} matches the files in it, at any depth."
        return CorpusError(setting, f"{expected}; found the folder {matched_folder}.", inside, code="TM203")
    tracked = next((ancestor for ancestor in (folder, *folder.parents) if Path(f"{ancestor}.dvc").is_file()), None)
    if tracked is not None and not _holds_any(tracked):
        what = f"{expected}; {tracked} is tracked by DVC and not downloaded."
        return CorpusError(setting, what, "Run `dvc pull`.", code="TM203")
    return CorpusError(
        setting,
        f"{expected}; found none in {folder}{missing}. {exists} holds {_listing(exists)}.",
        f"Put files there, or correct {setting}. They are read if their names end with {known_suffixes()}.",
        code="TM203",
    )


def _holds_any(folder: Path) -> bool:
    """Whether the folder exists and holds a file that is not hidden."""
    return folder.is_dir() and any(not child.name.startswith(".") for child in folder.iterdir())


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
