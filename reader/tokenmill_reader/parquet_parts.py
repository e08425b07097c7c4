"""The parts of a dataset that are files of Parquet, whose row groups are read as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.columns import list_values
from tokenmill_reader.formats.items import Flat
from tokenmill_reader.formats.parquet import check_counts
from tokenmill_reader.formats.table import PARQUET_SUFFIX
from tokenmill_reader.open_parts import OTHER_CONTENT, Block, OpenPart, Place, block_of, open_part

_FILES_OPEN_MAX = 64
_GROUPS_HELD_MAX = 8  # row groups, of about 2 MB each
_IDS = "input_ids"


class ParquetParts:
    """Files of Parquet as parts. A block is a row group."""

    are_mapped = False

    def __init__(self, places: Sequence[Place], has_mask: bool = False) -> None:
        self.places = places
        self._needed = (_IDS, *["loss_mask"] * has_mask)
        self._file = lru_cache(_FILES_OPEN_MAX)(self._open_file)
        self._group = lru_cache(_GROUPS_HELD_MAX)(self._read_group)

    def open(self, i: int) -> OpenPart:
        """See Parts."""
        place, metadata = self.places[i], self._file(i).metadata
        check_counts(self._path(i), place.n_items, place.n_tokens)
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        schema = metadata.schema  # a column chunk's own path may be damaged
        wanted = [k for k in range(metadata.num_columns) if schema.column(k).path.split(".")[0] == _IDS]
        counts = [(group.num_rows, sum(group.column(k).num_values for k in wanted)) for group in groups]
        if sum(n_values for _, n_values in counts) != place.n_tokens:  # an empty list counts as a value
            counts = [(one.num_rows, len(self._group(i, k).ids)) for k, one in enumerate(groups)]
        return open_part(place, counts, partial(self._group, i))

    def _open_file(self, i: int) -> pq.ParquetFile:
        path = self._path(i)
        try:
            file = parquet_file(path, memory_map=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValidationError(path, f"cannot be read: {error}.", OTHER_CONTENT) from None
        if missing := [name for name in self._needed if name not in file.schema_arrow.names]:
            raise ValidationError(
                path, f"expected a column {missing[0]}; found {file.schema_arrow.names}.", OTHER_CONTENT
            )
        return file

    def _read_group(self, i: int, k: int) -> Block:
        file = self._file(i)
        names = [name for name in (_IDS, "starts", "labels", "loss_mask") if name in file.schema_arrow.names]
        try:
            table = file.read_row_group(k, columns=names, use_threads=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValidationError(self._path(i), f"row group {k} cannot be read: {error}.", OTHER_CONTENT) from None
        lists = {name: list_values(pa.concat_arrays(table[name].chunks)) for name in names}
        ids, offsets = lists[_IDS]
        labels, mask = (lists[one].values if one in lists else None for one in ("labels", "loss_mask"))
        if any(one is not None and len(one) != len(ids) for one in (labels, mask)):
            raise ValidationError(
                self._path(i),
                f"row group {k}: expected as many labels and values of the mask as ids; found others.",
                OTHER_CONTENT,
            )
        return block_of(Flat(ids, offsets, lists.get("starts"), labels, mask), ids.dtype)

    def _path(self, i: int) -> Path:
        return self.places[i].folder / f"{self.places[i].stem}{PARQUET_SUFFIX}"

    def __reduce__(self) -> tuple[Any, ...]:  # another process opens the files again
        return ParquetParts, (self.places, len(self._needed) > 1)
