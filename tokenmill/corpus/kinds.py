"""The kinds of files that hold documents: the format of each, and how it is compressed."""

from functools import lru_cache
from typing import NamedTuple, get_args

from tokenmill.config.sources import DocumentFormat

_SUFFIXES: dict[str, DocumentFormat] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".arrow": "arrow",
    ".txt": "text",
}
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
UNFINISHED = (".crdownload", ".part", ".aria2")
"""Suffixes of unfinished downloads, which are never read."""

_SEPARATORS = {"csv": b",", "tsv": b"\t"}
_NEVER_COMPRESSED = ("parquet", "arrow")  # compressed inside

assert set(_SUFFIXES.values()) == set(get_args(DocumentFormat))


class FileKind(NamedTuple):
    """A kind of file. `compression`: the suffix that says how the whole file is compressed; "" if it is not."""

    format: DocumentFormat
    compression: str

    @property
    def suffix(self) -> str:
        """The suffix that names of this kind have where no parameter says the format."""
        return next(suffix for suffix, name in _SUFFIXES.items() if name == self.format) + self.compression

    @property
    def has_columns(self) -> bool:
        """Whether its documents have columns or keys; False for plain text."""
        return self.format != "text"

    @property
    def separator(self) -> bytes:
        """What separates the values of a record; empty for a kind without records."""
        return _SEPARATORS.get(self.format, b"")

    @property
    def is_cut_at_lines(self) -> bool:
        """Whether a large file is cut between lines; one of records between those at which a record ends."""
        return not self.compression and (self.format == "jsonl" or bool(self.separator))

    @property
    def is_packed(self) -> bool:
        """Whether the file is smaller than its text."""
        return bool(self.compression) or self.format == "parquet"


def kind_of(name: str, format: DocumentFormat | None = None) -> FileKind | None:
    """The kind of a file with this name, or None if it is none that can be read. `format`: None if the name says it.

    >>> kind_of("web/a.ndjson.gz"), kind_of("src/a.py"), kind_of("src/a.py", "text")
    (FileKind(format='jsonl', compression='.gz'), None, FileKind(format='text', compression=''))
    """
    return _kind_of("." + name.lower().rpartition("/")[2].partition(".")[2], format)


@lru_cache(maxsize=1024)  # a corpus may have a million files
def _kind_of(stem: str, named_format: DocumentFormat | None) -> FileKind | None:
    """The kind of a file, by what follows the first dot of its name, in lower case."""
    compression = next((suffix for suffix in COMPRESSIONS if stem.endswith(suffix)), "")
    if stem.endswith(UNFINISHED):
        return None
    stem = stem.removesuffix(compression)
    format = named_format or next((format for suffix, format in _SUFFIXES.items() if stem.endswith(suffix)), None)
    if format is None or (compression and format in _NEVER_COMPRESSED):
        return None
    return FileKind(format, compression)


def known_suffixes() -> str:
    """What the names of files that can be read end with, in words."""
    plain = [suffix for suffix, format in _SUFFIXES.items() if format in _NEVER_COMPRESSED]
    others = [suffix for suffix, format in _SUFFIXES.items() if format not in _NEVER_COMPRESSED]
    return f"{', '.join(plain + others)} (the last {len(others)} also with {', '.join(COMPRESSIONS)} behind them)"
