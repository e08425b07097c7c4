"""Cuts items into batches at borders that depend only on the items, so equal items give equal files, however they arrive."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.formats.item_checks import check_ids
from tokenmill_reader.formats.columns import id_type_of, schema_of
from tokenmill_reader.formats.items import Flat, Shape

READ_ROWS_MAX = 1 << 14  # rows of a batch that a reader yields
READ_VALUES_MAX = 1 << 20  # token ids of such a batch, unless a single item has more
_TEXT_BYTES_MAX = (
    1 << 23
)  # ids and kept values that are held for a batch; rows may have as many bytes in them as in their texts


@contextmanager
def even_batches(
    write: Callable[[pa.RecordBatch], None], column: str | None, n_rows_max: int, n_values_max: int
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that takes batches of any size; `write` gets their rows in batches as large as the limits allow.

    `column`: the list column whose values are limited, if any; a row that has more is a batch of its own. The strings of a batch
    have at most 8 MiB. The last batch is written when the block ends well.
    """
    held: list[pa.RecordBatch] = []
    n_rows = n_values = n_bytes = 0

    def add(batch: pa.RecordBatch) -> None:
        nonlocal n_rows, n_values, n_bytes
        bytes_before = _string_offsets(batch)
        if column is None:
            offsets = np.zeros(batch.num_rows + 1, np.int64)
        else:
            offsets = batch.column(column).offsets.to_numpy().astype(np.int64)
        start = 0
        while start < batch.num_rows:
            end = cut(offsets, start, n_rows_max - n_rows, n_values_max - n_values, bool(held))
            end = min(end, cut(bytes_before, start, n_rows_max, _TEXT_BYTES_MAX - n_bytes, bool(held)))
            if end > start:
                held.append(batch.slice(start, end - start))
                n_rows, n_values = n_rows + end - start, n_values + int(offsets[end] - offsets[start])
                n_bytes += int(bytes_before[end] - bytes_before[start])
            if end < batch.num_rows:
                flush()
            start = end

    def flush() -> None:
        nonlocal n_rows, n_values, n_bytes
        write(pa.concat_batches(held))
        held.clear()
        n_rows = n_values = n_bytes = 0

    yield add
    if held:
        flush()


def _string_offsets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of all strings in front of each row, and in front of the end."""
    offsets = np.zeros(batch.num_rows + 1, np.int64)
    for values in batch.columns:
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            offsets[1:] += np.cumsum(pc.binary_length(values).fill_null(0).to_numpy(), dtype=np.int64)
    return offsets


def cut(
    offsets: npt.NDArray[np.int64], start: int, n_rows_max: int, n_values_max: int, may_be_none: bool = False
) -> int:
    """The end of the rows from `start` that fit the limits: at least one row, unless there may be none. `offsets`: where each row
    begins."""
    fitting = int(np.searchsorted(offsets, offsets[start] + n_values_max, side="right")) - 1
    end = min(fitting, start + n_rows_max, len(offsets) - 1)
    return max(end, start if may_be_none else start + 1)


def batches_of(
    flat: Flat,
    shape: Shape,
    place: Path,
    further_columns: Mapping[str, pa.Array] = MappingProxyType({}),
    n_before: int = 0,
) -> Iterator[pa.RecordBatch]:
    """The items of a part in bounded batches that share the mapped memory, with the `further_columns` of a table. `n_before`: the
    number of the first item. Raises ValidationError, with `place`, for an id over the tokenizer's largest."""
    schema = schema_of(shape)
    start, n_items = 0, len(flat.offsets) - 1
    while start < n_items:
        end = cut(flat.offsets, start, READ_ROWS_MAX, READ_VALUES_MAX)
        offsets = flat.offsets[start : end + 1]
        ids = flat.ids[offsets[0] : offsets[-1]]
        check_ids(Flat(ids, offsets - offsets[0]), shape, place, n_before + start)
        values = pa.Array.from_buffers(id_type_of(shape), len(ids), [None, pa.py_buffer(ids)])
        columns = {"input_ids": _lists(schema.field("input_ids").type, offsets, values)}
        if flat.starts is not None:
            of_starts = flat.starts.offsets[start : end + 1]
            starts = pa.array(flat.starts.values[of_starts[0] : of_starts[-1]])
            columns["starts"] = _lists(schema.field("starts").type, of_starts, starts)
        if flat.loss_mask is not None:
            mask = pa.array(flat.loss_mask[offsets[0] : offsets[-1]])
            columns["loss_mask"] = _lists(schema.field("loss_mask").type, offsets, mask)
        columns |= {name: column.slice(start, end - start) for name, column in further_columns.items()}
        fields = [field for field in schema if field.name in columns]
        yield pa.RecordBatch.from_arrays([columns[field.name] for field in fields], schema=pa.schema(fields))
        start = end


def _lists(type: pa.DataType, offsets: npt.NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    """An array of lists of these values, which are not copied. `offsets`: where each list begins, from that of the first on."""
    places = pa.py_buffer((offsets - offsets[0]).astype(np.int32))
    return pa.Array.from_buffers(type, len(offsets) - 1, [None, places], children=[values])
