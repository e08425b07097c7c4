"""Reads the file beside a part for what its format cannot hold: where segments of sequences start, and where items end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokenmill_reader.checked_parquet import n_list_values, read_table, refuse_many
from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrow_file import read_arrow_file
from tokenmill_reader.formats.columns import SOURCE_IDS, list_of, list_values, schema_of
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Lists, Shape

if TYPE_CHECKING:
    import numpy.typing as npt


def read_sidecar(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = False
) -> tuple[npt.NDArray[np.int64], Lists | None]:
    """The number of tokens of each item (empty without `with_lengths`), and the starts of sequences (None for documents). Raises
    ValidationError."""
    columns = sidecar_columns(shape, with_lengths)
    if not columns.names:
        return np.empty(0, np.int64), None
    table = pa.Table.from_batches(read_arrow_file(folder / f"{stem}{STARTS_SUFFIX}", columns), schema=columns)
    lengths = table.column("n_tokens").to_numpy() if with_lengths else np.empty(0, np.int64)
    starts = list_values(_combined(table.column("starts"))) if shape.length else None
    return lengths, starts


def sidecar_columns(shape: Shape, with_lengths: bool, with_starts: bool = True) -> pa.Schema:
    """The columns of the file: none if there is nothing to keep, and then there is no file. `with_starts`: the format itself does
    not say where segments start."""
    kept = [name for name in ("starts" * with_starts, SOURCE_IDS) if name in schema_of(shape).names]
    lengths = [pa.field("n_tokens", pa.int64(), nullable=False)] if with_lengths else []
    return pa.schema([*lengths, *(schema_of(shape).field(name) for name in kept)])


def read_source_ids(path: Path) -> Lists:
    """The numbers of the sources of each item, in a file of Arrow that has them. Raises ValidationError."""
    columns = pa.schema([list_of(SOURCE_IDS, pa.int32())])
    table = pa.Table.from_batches(read_arrow_file(path, columns, are_some=True), schema=columns)
    return list_values(_combined(table.column(SOURCE_IDS)))


def read_source_ids_of_parquet(path: Path) -> Lists:
    """The numbers of the sources of each item, in a file of Parquet. Raises ValidationError."""
    try:
        refuse_many(path, n_list_values(path))
        table = read_table(path, columns=[SOURCE_IDS], partitioning=None)
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None
    if table.schema.types != [list_of(SOURCE_IDS, pa.int32()).type] or table.column(0).null_count:
        raise ValidationError(path, f"expected a column {SOURCE_IDS}, lists of int32; found {table.schema}.", REBUILD)
    return list_values(_combined(table.column(0)))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
