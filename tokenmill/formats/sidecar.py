"""The file beside a part for what its format cannot hold: where segments of sequences start, and where items end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.formats.arrow_file import new_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill_reader.formats.items import STARTS_SUFFIX, Shape
from tokenmill_reader.formats.sidecar import sidecar_columns

_ROWS_MAX = 1 << 16  # of a record batch
_VALUES_MAX = 1 << 20


@contextmanager
def new_sidecar(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a batch of items to the file beside a new part. Makes no file if there is nothing to keep.

    `with_lengths`: keep the number of tokens of each item."""
    columns = sidecar_columns(shape, with_lengths)
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
