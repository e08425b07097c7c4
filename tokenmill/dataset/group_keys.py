"""The groups of documents: hashes of the values of a column, such as the repository that a file of code is from."""

import pyarrow as pa

from tokenmill.config.sources import Column
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.dataset.splits import group_keys
from tokenmill.errors import CorpusError

_ADVICE = "Set encode.split_group to a column that every document has, or to null."


def group_columns(name: str | None) -> tuple[Column, ...]:
    """What is read beside documents for encode.split_group. `name`: the column; None: nothing."""
    return () if name is None else (Column(name, "encode.split_group", is_needed=False),)


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
    """The groups of a unit's documents, which were read beside them."""

    def __init__(self, unit: Unit, column: str) -> None:
        self._unit, self._column = unit, column

    def of(self, batch: Batch) -> pa.UInt64Array:
        """The group keys as KnownGroups.of gives them. Raises CorpusError for a document without a group."""
        names = batch.columns[self._column]
        if names.null_count:
            raise self._missing(batch, names.is_null().index(True).as_py())
        return pa.array(group_keys(names), pa.uint64())

    def _missing(self, batch: Batch, i: int) -> CorpusError:
        shard, row = self._unit.pieces[batch.piece(i)].shard, batch.rows()[i].as_py()
        if not shard.kind.has_columns:
            return CorpusError(shard.name, f"a file of plain text has no column {self._column!r}.", _ADVICE)
        what = "expected the document's group, a string or an integer; found none."
        return CorpusError(f"{shard.name}, row {row}: column {self._column!r}", what, _ADVICE)


Groups = KnownGroups | GroupKeys
"""Either source of the documents' group keys."""
