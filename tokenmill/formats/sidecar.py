"""The file beside a part for what its format cannot hold: where segments of sequences start, their sources, and where items end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.errors import ValidationError
from tokenmill.formats.arrow_file import new_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill_reader.formats.columns import SOURCE_IDS, schema_of
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Shape
from tokenmill_reader.formats.sidecar import read_source_ids, sidecar_columns

_ROWS_MAX = 1 << 16  # of a record batch
_VALUES_MAX = 1 << 20


@contextmanager
def new_sidecar(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = False, with_starts: bool = True
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that adds a batch of items to the file beside a new part. Makes no file if there is nothing to keep.

    `with_lengths`: keep the number of tokens of each item. `with_starts`: keep the starts of sequences."""
    columns = sidecar_columns(shape, with_lengths, with_starts)
    if not columns.names:
        yield lambda batch: None
        return
    lists = [field.name for field in columns if pa.types.is_list(field.type)]
    limited = lists[0] if lists else None
    path = folder / f"{stem}{STARTS_SUFFIX}"
    with new_arrow_file(path, columns) as write, even_batches(write, limited, _ROWS_MAX, _VALUES_MAX) as put:

        def add(batch: pa.RecordBatch) -> None:
            values = (
                {"n_tokens": pc.list_value_length(batch.column("input_ids")).cast(pa.int64())} if with_lengths else {}
            )
            values |= {name: batch.column(name) for name in lists}
            put(pa.RecordBatch.from_arrays([values[name] for name in columns.names], schema=columns))

        yield add


def with_source_ids(
    format: Format, folder: Path, stem: str, shape: Shape, items: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Adds the sources of the items that a format read, from the file beside a part that mixes some; a table has them itself.
    Raises ValidationError if that file has other items."""
    if not shape.has_sources or format.is_table:
        yield from items
        return
    path = folder / f"{stem}{STARTS_SUFFIX}"
    values, offsets = read_source_ids(path)
    kind = schema_of(shape).field(SOURCE_IDS)
    n_items = 0
    for batch in items:
        bounds = offsets[n_items : n_items + batch.num_rows + 1]
        n_items += batch.num_rows
        if len(bounds) <= batch.num_rows:
            break
        lists = pa.ListArray.from_arrays(
            pa.array((bounds - bounds[0]).astype(np.int32)), pa.array(values[bounds[0] : bounds[-1]]), type=kind.type
        )
        yield batch.append_column(kind, lists)
    if n_items != len(offsets) - 1:
        raise ValidationError(path, f"expected the sources of each item; found those of {len(offsets) - 1:,}.", REBUILD)
