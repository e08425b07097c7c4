"""The file beside a part for what its format cannot hold: where segments of sequences start, and where items end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.formats.arrow_file import new_arrow_file, read_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import STARTS_SUFFIX, Shape

_ROWS_MAX = 1 << 16  # of a record batch
_VALUES_MAX = 1 << 20


@contextmanager
def new_sidecar(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a batch of items to the file beside a new part. Makes no file if there is nothing to keep.

    `with_lengths`: keep the number of tokens of each item."""
    columns = _columns(shape, with_lengths)
    if not columns.names:
        yield lambda batch: None
        return
    limited = "starts" if "starts" in columns.names else None
    path = folder / f"{stem}{STARTS_SUFFIX}"
    with new_arrow_file(path, columns) as write, even_batches(write, limited, _ROWS_MAX, _VALUES_MAX) as put:

        def add(batch: pa.RecordBatch) -> None:
            found = (
                {"n_tokens": pc.list_value_length(batch.column("input_ids")).cast(pa.int64())} if with_lengths else {}
            )
            if limited:
                found["starts"] = batch.column("starts")
            put(pa.RecordBatch.from_arrays([found[name] for name in columns.names], schema=columns))

        yield add


def read_sidecar(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = False
) -> tuple[npt.NDArray[np.int64], pa.ListArray | None]:
    """The number of tokens of each item (empty without `with_lengths`), and the starts of sequences (None for documents). Raises
    ValidationError."""
    columns = _columns(shape, with_lengths)
    if not columns.names:
        return np.empty(0, np.int64), None
    table = pa.Table.from_batches(read_arrow_file(folder / f"{stem}{STARTS_SUFFIX}", columns), schema=columns)
    lengths = table.column("n_tokens").to_numpy() if with_lengths else np.empty(0, np.int64)
    return lengths, table.column("starts").combine_chunks() if shape.length else None


def _columns(shape: Shape, with_lengths: bool) -> pa.Schema:
    lengths = [pa.field("n_tokens", pa.int64(), nullable=False)] if with_lengths else []
    return pa.schema(lengths if shape.length is None else [*lengths, shape.schema.field("starts")])
