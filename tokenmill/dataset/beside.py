"""Reads further columns of a unit's documents from the shards, beside the texts, and finds the row of each document."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.config.sources import Reading
from tokenmill.corpus.bad_documents import BadDocument, ColumnError
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError


class Beside:
    """The values of a unit's documents. `reading`: how they are read. `value_of`: gives the strings that were read of a batch.
    `column`: names the column in errors. `advice`: what to do where a document has no value."""

    def __init__(
        self,
        unit: Unit,
        reading: Reading,
        value_of: Callable[[Batch], pa.LargeStringArray],
        limits: Limits,
        column: str,
        advice: str,
    ) -> None:
        self._unit, self._reading, self._value_of, self._limits = unit, reading, value_of, limits
        self._column, self._advice = column, advice
        self._piece = -1
        self._found: Iterator[Batch] = iter(())
        self._rows, self._values = np.empty(0, np.int64), pa.array([], pa.large_string())
        self._wanted = np.empty(0, np.int64)

    def of(self, batch: Batch) -> Iterator[pa.LargeStringArray]:
        """A value for each document of a batch, in order, as many at a time as a batch of them has: beside short texts they may be
        long. Batches come in the order of the documents. Raises CorpusError for a document without a value, and for a missing
        column."""
        for piece, documents in batch.by_piece():
            yield from self._of_piece(piece, documents)

    def _of_piece(self, piece: int, batch: Batch) -> Iterator[pa.LargeStringArray]:
        if piece != self._piece:
            self._piece, self._found = piece, self._read(piece)
            self._rows, self._values = np.empty(0, np.int64), pa.array([], pa.large_string())
        wanted = self._wanted = batch.rows().to_numpy()
        while len(wanted):
            n_known = int(np.searchsorted(wanted, self._rows[-1], side="right")) if len(self._rows) else 0
            batch_of_values = None if n_known else next(self._found, None)
            if batch_of_values is None:
                yield self._taken(wanted[: n_known or None])
                wanted = wanted[n_known or len(wanted) :]
            else:
                self._rows, self._values = batch_of_values.rows().to_numpy(), self._value_of(batch_of_values)

    def _taken(self, rows: npt.NDArray[np.int64]) -> pa.LargeStringArray:
        """The values of these rows."""
        positions = np.searchsorted(self._rows, rows)
        is_there = positions < len(self._rows)
        is_there[is_there] = self._rows[positions[is_there]] == rows[is_there]
        if not is_there.all():
            raise self._missing(int(rows[np.argmin(is_there)]), "expected a value; found none.")
        return self._values.take(pa.array(positions))

    def _read(self, piece: int) -> Iterator[Batch]:
        input_piece = self._unit.pieces[piece]
        if not input_piece.shard.kind.has_columns:
            raise CorpusError(
                input_piece.shard.name, f"a file of plain text has no column {self._column}.", self._advice
            )
        try:  # a missing value is reported when it is needed; other bad documents are left out anyway
            yield from read_batches(input_piece.shard, self._reading, input_piece.part, self._found_bad, self._limits)
        except ColumnError as error:
            raise CorpusError(f"{error.words} {self._advice}") from None

    def _found_bad(self, bad: BadDocument) -> None:
        """Raises CorpusError at once for a bad document whose value is needed; leaves other bad ones out."""
        at = int(np.searchsorted(self._wanted, bad.row or 0))
        if at < len(self._wanted) and self._wanted[at] == bad.row:
            raise self._missing(int(self._wanted[at]), bad.reason)

    def _missing(self, row: int, what: str) -> CorpusError:
        name = self._unit.pieces[self._piece].shard.name
        return CorpusError(f"{name}, row {row}: column {self._column}", what, self._advice)
