"""The rows of the document index by the numbers of the documents; one row group is read at a time."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import ValidationError
from tokenmill.features.view.locate import reading
from tokenmill_reader.array_types import Longs
from tokenmill_reader.checked_parquet import parquet_file

_GROUPS_HELD_MAX = 4
_SCAN_ROWS_MAX = 1 << 22  # that one search for an id reads


class DocumentIndex:
    """The document index by number. Raises ValidationError if it has another number of documents than the dataset."""

    def __init__(self, path: Path, n_documents: int) -> None:
        self._path = path
        with reading(path):
            self._file: pq.ParquetFile = parquet_file(path)
            metadata = self._file.metadata
        if metadata.num_rows != n_documents:
            raise ValidationError(
                path,
                f"expected {n_documents:,} documents, as the manifest says; found {metadata.num_rows:,}.",
                "Copy the tables of this dataset beside it, or run `tokenmill build`.",
            )
        sizes = (metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
        self._firsts: list[int] = [*accumulate(sizes, initial=0)][:-1]
        self._group = lru_cache(_GROUPS_HELD_MAX)(self._read_group)

    def rows(self, numbers: range) -> list[dict[str, Any]]:
        """The columns of the index for each of these documents."""
        return [{**column, "sha256": column["sha256"].hex()} for column in self.columns(numbers).to_pylist()]

    def columns(self, numbers: range, names: Sequence[str] | None = None) -> pa.Table:
        """The index of these documents: all columns, or those of `names` that it has."""
        tables = [self._file.schema_arrow.empty_table().select(self._names(names))]
        first = numbers.start
        while first < numbers.stop:
            group = bisect_right(self._firsts, first) - 1
            rows = self._group(group, self._names(names)).slice(first - self._firsts[group], numbers.stop - first)
            if not len(rows):
                raise ValidationError(
                    self._path,
                    f"row group {group} has fewer rows than its footer says.",
                    "Copy the tables of this dataset beside it, or run `tokenmill build`.",
                )
            tables.append(rows)
            first += len(rows)
        return pa.concat_tables(tables)

    def lengths(self) -> Iterator[tuple[Longs, Longs]]:
        """The numbers of the documents, and their numbers of tokens, a row group at a time."""
        for group, first in enumerate(self._firsts):
            lengths = self._group(group, ("n_tokens",))["n_tokens"].to_numpy()
            yield np.arange(first, first + len(lengths)), lengths

    def with_id(self, id: str, first: int) -> tuple[list[int], int | None]:
        """The numbers of the documents with this id from the document number `first` on, and the number at which a further search
        goes on; None at the end."""
        documents: list[int] = []
        for group in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._firsts)):
            start = self._firsts[group]
            if start > first + _SCAN_ROWS_MAX:
                return documents, start
            ids = self._group(group, ("id",))["id"]
            is_row = pa.types.is_integer(ids.type)
            value = (int(id) if id.isdecimal() and len(id) < 19 else -1) if is_row else id
            places = pc.indices_nonzero(pc.equal(ids, value)).to_pylist()
            documents += [start + k for k in places if start + k >= first]
        return documents, None

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        return tuple(name for name in self._file.schema_arrow.names if names is None or name in names)

    def _read_group(self, group: int, names: tuple[str, ...]) -> pa.Table:
        with reading(self._path):
            return self._file.read_row_group(group, columns=list(names))
