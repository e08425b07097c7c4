"""The record of a document that cannot be read, or of a damaged shard, and the errors that name them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError

T = TypeVar("T")

N_LISTED_MAX = 20  # an error names at most this many bad documents and files
N_FOUND_MAX = 1000  # reading stops after this many in one file


class BadDocument(msgspec.Struct, frozen=True):
    """A bad document, or, if `row` is None, a damaged piece. `raw`: the document's bytes; None for a null document and for a piece.

    `row` counts from 0, and `line` (only of .jsonl and .csv files) from 1, both from the start of the shard. In the record of a
    unit both count from 0 and from the start of the piece with the index `piece`, so the record does not depend on where the piece
    lies in its shard. `setting`: the parameter, such as source.text_column, that names the column or key which is missing or of
    the wrong kind.
    """

    row: int | None
    line: int | None
    reason: str
    raw: bytes | None
    piece: int = 0
    setting: str | None = None

    @property
    def place(self) -> str:
        """Says in words in which line or row it is."""
        return f"row {self.row}" if self.line is None else f"line {self.line}"

    def moved(self, n_rows: int, n_lines: int, piece: int = 0) -> "BadDocument":
        """A copy with `n_rows` added to its row and `n_lines` to its line, for the piece with the index `piece`."""
        row = None if self.row is None else self.row + n_rows
        line = None if self.line is None else self.line + n_lines
        return BadDocument(row, line, self.reason, self.raw, piece, self.setting)


class PieceDamagedError(DamagedError):
    """A piece turned out to be damaged after some of its documents were processed.

    `rest`: the unit with that piece marked as damaged. The work on the unit must start again with `rest`.
    """

    def __init__(self, message: str, rest: Unit) -> None:
        self.rest = rest
        super().__init__(message)


class ColumnError(CorpusError):
    """A file or a document of it lacks the column or key that `setting` names, or has something else in it. `words`: the
    message without what to do. `setting`: several, joined by " and ", if several are missing."""

    code = "TM209"

    def __init__(self, words: str, advice: str, setting: str) -> None:
        self.words = words
        self.setting = setting
        super().__init__(f"{words} {advice}")


class Bad(NamedTuple):
    """A line of an error: what is wrong with a file, or with `n` of its documents. `setting`: see BadDocument; documents with the
    same one share a line."""

    words: str
    n: int = 1
    setting: str | None = None

    def __str__(self) -> str:
        more = "" if self.n < N_FOUND_MAX else " or more"
        return self.words if self.n == 1 else f"{self.words.removesuffix('.')} ({self.n:,}{more} such documents)."


class EnoughFound(Exception):
    """Ends the reading of a file in which N_FOUND_MAX bad documents were found."""


class BadInputError(CorpusError):
    """Several bad documents and files. `n`: how many were found. `first`: messages about the first ones of each file, by the
    file's name. `is_all`: false if there may be more."""

    def __init__(self, n: int, first: Mapping[str, Sequence[Bad]], is_all: bool) -> None:
        self.n = n
        self.first: dict[str, Sequence[Bad]] = listed(first)
        self.is_all = is_all
        lines, fix, settings = lines_of(first, n, is_all)
        is_column = bool(settings) and all(one.setting for some in first.values() for one in some)
        if is_column:
            where, head = settings, "the column or key that it names is missing or of the wrong kind:"
        else:
            where = ""
            head = f"{'' if is_all else 'at least '}{n:,} documents or files are bad:"
            fix += "\nCorrect them, or set source.on_bad_document or source.on_bad_shard to quarantine, which leaves them out."
        super().__init__(where, [head, *lines], fix, code="TM209" if is_column else "TM210")


def lines_of(first: Mapping[str, Sequence[Bad]], n: int, is_all: bool) -> tuple[list[str], str, str]:
    """The lines of an error: the first bad documents and files, and the number of the others. Also gives how to correct the
    settings to blame, and their names; both are empty if no setting is."""
    named = [bad for some in listed(first).values() for bad in some]
    lines = [f"  {bad}" for bad in named]
    if n_more := n - sum(bad.n for bad in named):
        lines.append(f"  and {'' if is_all else 'at least '}{n_more:,} more")
    settings = " and ".join(dict.fromkeys(name for bad in named if bad.setting for name in bad.setting.split(" and ")))
    if not settings:
        return lines, "", ""
    fix = f"Set {settings} in params.yaml, {whom(settings)}, to a column that they have, or correct the files."
    if settings.startswith("source."):
        fix += " Files with other columns can be a source of their own: see `sources`."
    return lines, fix, settings


def missing(what: str, names: Sequence[str], there: Iterable[str]) -> str:
    """Says which columns or keys are missing, and which there are. `what`: "column" or "key".

    >>> missing("key", ["text", "id"], ["a", "b"])
    "the keys 'text' and 'id' are missing; found the keys a, b."
    """
    are = f"the {what} {names[0]!r} is" if len(names) == 1 else f"the {what}s {' and '.join(map(repr, names))} are"
    return f"{are} missing; found the {what}s {', '.join(there) or '(none)'}."


def set_them(remedies: Mapping[str, str]) -> str:
    """How to correct the settings that name missing columns or keys. `remedies`: to what each is to be set.

    >>> set_them({"source.text_column": "to one of them", "source.id_column": "to null"})
    'Set source.text_column in params.yaml, which holds for all files, to one of them, and source.id_column to null'
    """
    (first, remedy), *more = remedies.items()
    others = "".join(f", and {name} {how}" for name, how in more)
    return f"Set {first} in params.yaml, {whom(first)}, {remedy}{others}"


def whom(settings: str) -> str:
    """Says to which files `source.KEY` or `sources.NAME.KEY` applies."""
    return f"which holds for all files{' of the source' if settings.startswith('sources.') else ''}"


def joined(of_file: Sequence[Bad], bad: Bad) -> list[Bad]:
    """Adds a line to those of a file, or counts it in one with the same setting."""
    for i, other in enumerate(of_file):
        if bad.setting and bad.setting == other.setting:
            return [*of_file[:i], other._replace(n=other.n + bad.n), *of_file[i + 1 :]]
    return [*of_file, bad]


def listed(messages: Mapping[str, Sequence[T]]) -> dict[str, Sequence[T]]:
    """The N_LISTED_MAX messages that an error shows, spread over as many files as possible: the first message of each file,
    then the second ones, and so on.

    >>> listed({"a": ["a 1", "a 2"], "b": ["b 1"]})
    {'a': ['a 1', 'a 2'], 'b': ['b 1']}
    """
    ranked = sorted((rank, i) for i, some in enumerate(messages.values()) for rank in range(len(some)))[:N_LISTED_MAX]
    n_of_file = Counter(i for _, i in ranked)
    return {name: some[: n_of_file[i]] for i, (name, some) in enumerate(messages.items()) if n_of_file[i]}
