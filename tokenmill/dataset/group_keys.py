"""The groups of documents: hashes of the values of a column, such as the repository that a file of code is from."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tokenmill.corpus.bad_documents import BadDocument, ColumnError
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.units import Unit
from tokenmill.dataset.splits import group_keys
from tokenmill.errors import CorpusError

_ADVICE = "Set encode.split_group to a column that every document has, or to null."


class KnownGroups:
    """Groups that were read before. `keys`: the documents' group keys, in order."""

    def __init__(self, keys: pa.UInt64Array) -> None:
        self._keys, self._at = keys, 0

    def of(self, batch: Batch) -> pa.UInt64Array:
        """For each document of a batch, the first 8 bytes, little-endian, of the sha256 of its group's name in UTF-8.
        Batches come in the order of the documents."""
        start, self._at = self._at, self._at + len(batch.texts)
        return self._keys.slice(start, len(batch.texts))


class GroupKeys:
    """The groups of a unit's documents, read from the shards beside the texts: the column is read as ids are."""

    def __init__(self, unit: Unit, column: str, limits: Limits) -> None:
        self._unit, self._column, self._limits = unit, column, limits
        self._piece = -1
        self._found: Iterator[Batch] = iter(())
        self._rows, self._keys = np.empty(0, np.int64), np.empty(0, np.uint64)
        self._wanted = np.empty(0, np.int64)

    def of(self, batch: Batch) -> pa.UInt64Array:
        """The group keys as KnownGroups.of gives them, read from the shards. Raises CorpusError for a document without a group, and
        for a missing column."""
        found = [self._of_piece(piece, one) for piece, one in batch.by_piece()]
        return pa.concat_arrays([pa.array([], pa.uint64()), *found])

    def _of_piece(self, piece: int, batch: Batch) -> pa.UInt64Array:
        if piece != self._piece:
            self._piece, self._found = piece, self._read(piece)
            self._rows, self._keys = np.empty(0, np.int64), np.empty(0, np.uint64)
        wanted = self._wanted = batch.rows().to_numpy()
        if not len(wanted):
            return pa.array([], pa.uint64())
        while not len(self._rows) or self._rows[-1] < wanted[-1]:
            more = next(self._found, None)
            if more is None:
                break
            assert more.ids is not None
            is_used = self._rows >= wanted[0]
            self._rows = np.concatenate([self._rows[is_used], more.rows().to_numpy()])
            self._keys = np.concatenate([self._keys[is_used], group_keys(more.ids)])
        at = np.searchsorted(self._rows, wanted)
        is_there = at < len(self._rows)
        is_there[is_there] = self._rows[at[is_there]] == wanted[is_there]
        if not is_there.all():
            raise self._missing(int(wanted[np.argmin(is_there)]))
        return pa.array(self._keys[at], pa.uint64())

    def _read(self, piece: int) -> Iterator[Batch]:
        one, source = self._unit.pieces[piece], self._unit.source
        if not one.shard.kind.has_columns:
            raise CorpusError(one.shard.name, f"a file of plain text has no column {self._column!r}.", _ADVICE)
        reading = replace(source.reading, id_column=self._column)
        try:  # a missing group is reported when it is needed; other bad documents are left out anyway
            yield from read_batches(one.shard, reading, one.part, self._found_bad, self._limits)
        except ColumnError as error:
            raise CorpusError(f"{error.words} {_ADVICE}") from None

    def _found_bad(self, bad: BadDocument) -> None:
        """Raises CorpusError at once for a bad document whose group is needed; leaves other bad ones out."""
        at = int(np.searchsorted(self._wanted, bad.row or 0))
        if at < len(self._wanted) and self._wanted[at] == bad.row:
            raise self._missing(int(self._wanted[at]))

    def _missing(self, row: int) -> CorpusError:
        return CorpusError(
            f"{self._unit.pieces[self._piece].shard.name}, row {row}: column {self._column!r}",
            "expected the document's group, a string or an integer; found none.",
            _ADVICE,
        )


Groups = KnownGroups | GroupKeys
"""Either source of the documents' group keys."""
