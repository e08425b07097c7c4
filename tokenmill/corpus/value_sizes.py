"""Measures the size of Arrow values with bytes of their own, because dictionaries and views share bytes among values."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_VALUE_BYTES = 16  # of a value without its text: at least this in Python, where a small dict has 184
_ROWS_MAX = 1 << 16  # measured at once
_OTHERS = {
    pa.string().id: pa.binary,
    pa.large_string().id: pa.large_binary,
    pa.string_view().id: pa.binary_view,
    pa.list_(pa.null()).id: pa.list_,
    pa.large_list(pa.null()).id: pa.large_list,
    pa.list_view(pa.null()).id: pa.list_view,
    pa.large_list_view(pa.null()).id: pa.large_list_view,
}
"""What makes the type with bytes of a type with texts, by its number."""


def is_shared(kind: pa.DataType) -> bool:
    """Whether values of this type, or nested ones, may share their bytes or have none."""
    types = pa.types
    is_view = types.is_string_view(kind) or types.is_binary_view(kind)
    is_list_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    if types.is_dictionary(kind) or types.is_null(kind) or is_view or is_list_view:
        return True
    return any(is_shared(kind.field(i).type) for i in range(kind.num_fields))


def check_values(array: pa.Array) -> None:
    """Raises pa.ArrowInvalid for a damaged array, but not for invalid UTF-8."""
    array.view(_of_bytes(array.type)).validate(full=True)


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with binary in place of strings."""
    types = pa.types
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _of_bytes(kind.value_type), kind.ordered)
    fields = [kind.field(i).with_type(_of_bytes(kind.field(i).type)) for i in range(kind.num_fields)]
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(_of_bytes(kind.key_type), kind.item_field.with_type(_of_bytes(kind.item_type)), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return _OTHERS[kind.id](*fields) if kind.id in _OTHERS else kind


def runs_within(columns: Sequence[pa.Array], n_bytes_max: int, n_rows_max: int) -> Iterator[tuple[int, int, int]]:
    """Cuts rows into runs of at most `n_bytes_max`. Yields each run's first row, number of rows and size in bytes; only a single
    row may be larger. Raises pa.ArrowIndexError for a wrong index of a dictionary."""
    n_rows = len(columns[0])
    for first in range(0, n_rows, _ROWS_MAX):
        sizes = sum(value_bytes(column.slice(first, _ROWS_MAX)) for column in columns)
        ends = np.cumsum(sizes)
        start = before = 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, before + n_bytes_max, side="right"))
            stop = min(max(stop, start + 1), start + n_rows_max)
            end = int(ends[stop - 1])
            yield first + start, stop - start, end - before
            start, before = stop, end


def value_bytes(array: pa.Array) -> npt.NDArray[np.int64]:
    """The size of each value of an array of any type that `check_columns` lets pass, int64, in bytes: that of the texts in it, and
    _VALUE_BYTES for each value."""
    kind, types = array.type, pa.types
    if not len(array):
        return np.zeros(0, np.int64)
    if types.is_dictionary(kind):
        return _taken(pa.array(value_bytes(array.dictionary)), array.indices)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        lengths = np.frombuffer(array.buffers()[1], "<i4")[4 * array.offset :: 4][: len(array)]
        return np.where(array.is_valid(), lengths, 0).astype(np.int64) + _VALUE_BYTES
    if types.is_struct(kind):
        inside = [value_bytes(array.field(i)) for i in range(kind.num_fields)]
        total: npt.NDArray[np.int64] = np.sum(inside, axis=0, dtype=np.int64) + np.full(len(array), _VALUE_BYTES)
        return total
    if kind.num_fields:
        return _list_bytes(array) + _VALUE_BYTES
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy()
        return np.asarray(lengths, np.int64) + _VALUE_BYTES
    return np.full(len(array), _VALUE_BYTES, np.int64)


def _list_bytes(array: pa.Array) -> npt.NDArray[np.int64]:
    """The size of the elements of each list, list view or map."""
    types = pa.types
    if types.is_fixed_size_list(array.type):
        n = array.type.list_size
        starts, lengths = (array.offset + np.arange(len(array))) * n, np.full(len(array), n)
    elif types.is_list_view(array.type) or types.is_large_list_view(array.type):
        starts, lengths = array.offsets.to_numpy().astype(np.int64), array.sizes.to_numpy()
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    lengths = np.where(array.is_valid(), lengths, 0)
    is_some = lengths > 0
    starts, stops = starts[is_some], (starts + lengths)[is_some]
    first = int(starts.min(initial=len(array.values)))
    elements = array.values.slice(first, int(stops.max(initial=first)) - first)
    ends = pa.array(np.append(0, np.cumsum(value_bytes(elements))))
    found = np.zeros(len(array), np.int64)
    found[is_some] = _taken(ends, pa.array(stops - first)) - _taken(ends, pa.array(starts - first))
    return found


def _taken(sizes: pa.Array, indices: pa.Array) -> npt.NDArray[np.int64]:
    """The size at each index, 0 for null."""
    found: npt.NDArray[np.int64] = pc.fill_null(sizes.take(indices), 0).to_numpy()
    return found
