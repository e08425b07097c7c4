"""The record of a document that cannot be read, or of a damaged shard, and the errors that name them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError

N_LISTED_MAX = 20  # bad documents and files that an error names


class BadDocument(msgspec.Struct, frozen=True):
    """A bad document, or, if `row` is None, a damaged piece. `raw`: the document's bytes; None for a null document and for a piece.

    `row` counts from 0, and `line` (only of a .jsonl file) from 1, both from the start of the shard. In the record of a unit
    both count from 0 and from the start of the piece with the index `piece`, so the record does not depend on where the piece
    lies in its shard.
    """

    row: int | None
    line: int | None
    reason: str
    raw: bytes | None
    piece: int = 0

    def moved(self, n_rows: int, n_lines: int, piece: int = 0) -> "BadDocument":
        """The same record with `n_rows` added to its row and `n_lines` to its line, for the piece with the index `piece`."""
        row = None if self.row is None else self.row + n_rows
        line = None if self.line is None else self.line + n_lines
        return BadDocument(row, line, self.reason, self.raw, piece)


class PieceDamagedError(DamagedError):
    """A piece turned out to be damaged after some of its documents were processed.

    `rest`: the unit with that piece marked as damaged. The work on the unit must start again with `rest`.
    """

    def __init__(self, message: str, rest: Unit) -> None:
        self.rest = rest
        super().__init__(message)


class BadInputError(CorpusError):
    """Several bad documents and files. `n`: how many were found. `first`: messages about the first ones of each file, by the
    file's name. `is_all`: false if there may be more."""

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
    """The N_LISTED_MAX messages that an error shows, spread over as many files as possible: the first message of each file,
    then the second ones, and so on.

    >>> listed({"a": ["a 1", "a 2"], "b": ["b 1"]})
    {'a': ['a 1', 'a 2'], 'b': ['b 1']}
    """
    ranked = sorted((rank, i) for i, some in enumerate(found.values()) for rank in range(len(some)))[:N_LISTED_MAX]
    n_of_file = Counter(i for _, i in ranked)
    return {name: some[: n_of_file[i]] for i, (name, some) in enumerate(found.items()) if n_of_file[i]}
