"""The groups of documents: hashes of the values of a column, such as the repository that a file of code is from."""

from collections.abc import Callable

import pyarrow as pa

from tokenmill.config.sources import Column
from tokenmill.corpus.reader import Batch
from tokenmill.dataset.splits import group_keys

Groups = Callable[[Batch], pa.UInt64Array]
"""Gives for each document of a batch the first 8 bytes, little-endian, of the sha256 of its group's name in UTF-8. Batches come in
the order of the documents."""


def group_column(name: str | None) -> Column | None:
    """The column that encode.split_group names, if it does."""
    return None if name is None else Column(name, "encode.split_group")


def groups_read(column: Column | None) -> Groups | None:
    """Gives the groups of documents beside which this column was read."""
    return None if column is None else lambda batch: pa.array(group_keys(batch.columns[column]), pa.uint64())


def groups_known(keys: pa.UInt64Array) -> Groups:
    """Gives the groups of documents whose keys are known, in order."""
    n_given = 0

    def of(batch: Batch) -> pa.UInt64Array:
        nonlocal n_given
        start, n_given = n_given, n_given + len(batch.texts)
        return keys.slice(start, len(batch.texts))

    return of
