"""The record of a document that cannot be read, or of a damaged shard."""

import msgspec


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
