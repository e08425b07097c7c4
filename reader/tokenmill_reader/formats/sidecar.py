"""Reads the file beside a part for what its format cannot hold: where segments of sequences start, and where items end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokenmill_reader.formats.arrow_file import read_arrow_file
from tokenmill_reader.formats.columns import list_values, schema_of
from tokenmill_reader.formats.items import STARTS_SUFFIX, Lists, Shape

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


def sidecar_columns(shape: Shape, with_lengths: bool) -> pa.Schema:
    """The columns of the file: none if there is nothing to keep, and then there is no file."""
    lengths = [pa.field("n_tokens", pa.int64(), nullable=False)] if with_lengths else []
    return pa.schema(lengths if shape.length is None else [*lengths, schema_of(shape).field("starts")])


def _combined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
