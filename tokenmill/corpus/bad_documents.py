"""The record of a document that cannot be read, or of a damaged shard, and the errors that name them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError

N_LISTED_MAX = 20  # bad documents and files that an error names


class BadDocument(msgspec.Struct, frozen=True):
    """What is no document, with its bytes (None: it is null); with `row` None, a piece that is damaged.

    `row` counts from 0 and `line`, of a .jsonl, from 1, both from the start of the shard. In the record of a unit both are
    counted from the start of the piece with the index `piece`, from 0: where that is in its shard is not of the unit.
    """

    row: int | None
    line: int | None
    reason: str
    raw: bytes | None
    piece: int = 0

    def moved(self, n_rows: int, n_lines: int, piece: int = 0) -> "BadDocument":
        """The same, seen from a place so many rows and lines before."""
        row = None if self.row is None else self.row + n_rows
        line = None if self.line is None else self.line + n_lines
        return BadDocument(row, line, self.reason, self.raw, piece)


class PieceDamagedError(DamagedError):
    """A piece turned out damaged after documents of it were given out. `rest`: the unit without that piece, which the work is
    to be done of again from the start."""

    def __init__(self, message: str, rest: Unit) -> None:
        self.rest = rest
        super().__init__(message)


class BadInputError(CorpusError):
    """Several bad documents and files. `n`: how many were found; `first`: what is wrong with the first of each file, by its name;
    `is_all`: false where there may be more."""

    code = "TM210"

    def __init__(self, n: int, first: Mapping[str, Sequence[str]], is_all: bool) -> None:
        self.n = n
        self.first: dict[str, Sequence[str]] = listed(first)
        self.is_all = is_all
        at_least = "" if is_all else "at least "
        lines = [f"  {one}" for some in self.first.values() for one in some]
        more = [f"  and {at_least}{n - len(lines):,} more"] if n > len(lines) else []
        super().__init__(
            "\n".join(
                [
                    f"{at_least}{n:,} documents or files are bad:",
                    *lines,
                    *more,
                    "Mend them, or set source.on_bad_document or source.on_bad_shard to quarantine, which leaves them out.",
                ]
            )
        )


def listed(found: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Those to name: of as many files as can be, the first of each file before the second of any.

    >>> listed({"a": ["a 1", "a 2"], "b": ["b 1"]})
    {'a': ['a 1', 'a 2'], 'b': ['b 1']}
    """
    ranked = sorted((rank, i) for i, some in enumerate(found.values()) for rank in range(len(some)))[:N_LISTED_MAX]
    n_of_file = Counter(i for _, i in ranked)
    return {name: some[: n_of_file[i]] for i, (name, some) in enumerate(found.items()) if n_of_file[i]}
