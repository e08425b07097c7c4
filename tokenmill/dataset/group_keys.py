"""The groups of documents: hashes of the values of a column, such as the repository that a file of code is from."""

from dataclasses import replace

import pyarrow as pa

from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.dataset.beside import Beside
from tokenmill.dataset.splits import group_keys

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
        expected = "expected the document's group, a string or an integer; found none."
        reading = replace(unit.source.reading, id_column=column)
        self._beside = Beside(unit, reading, _ids, limits, repr(column), expected, _ADVICE)

    def of(self, batch: Batch) -> pa.UInt64Array:
        """The group keys as KnownGroups.of gives them, read from the shards. Raises CorpusError for a document without a group, and
        for a missing column."""
        keys = [pa.array(group_keys(values), pa.uint64()) for values in self._beside.of(batch)]
        return pa.concat_arrays([pa.array([], pa.uint64()), *keys])


def _ids(batch: Batch) -> pa.LargeStringArray:
    assert batch.ids is not None
    return batch.ids


Groups = KnownGroups | GroupKeys
"""Either source of the documents' group keys."""
