"""mds: shards of MosaicML's streaming, and an `index.json` for all of them.

The layout is that of streaming/base/format/mds/: writer.py and encodings.py. The ids are the column `tokens`, as llm-foundry
expects; int32 where they are not uint16, since torch computes little with uint32.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import READ_ROWS_MAX, READ_VALUES_MAX, cut
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checked, may_be_empty, refuse_over_int32
from tokenmill.formats.offsets32 import map_chunk, new_chunk, refuse_large_files
from tokenmill_reader.formats.columns import columns, list_values, schema_of
from tokenmill_reader.formats.items import REBUILD, Shape

_SHARD = ".mds"
_INDEX = "index.json"
_VERSION = 2
_SIZE_BYTES = 4  # the width of a column's size, if its values differ in size
_TOKENS = "tokens"
_SHAPE_TYPES = ("<u1", "<u2", "<u4")  # the types of an array's length, by code

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_SHARD}"
    config = json.dumps(_config(shape), sort_keys=True).encode()
    n_items = 0
    with new_chunk(path, config) as put:

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_items
            batch = checked(batch, shape, path, n_items)
            empty = pc.equal(pc.list_value_length(batch.column("input_ids")), 0)
            if pc.any(empty).as_py():
                raise ValidationError(
                    path,
                    f"item {n_items + pc.index(empty, True).as_py():,}: expected a token, as mds holds no empty "
                    "arrays; found none.",
                    "Let an id begin or end every document, or choose another format.",
                )
            put(*_samples(batch, shape))
            n_items += batch.num_rows

        yield add


def _samples(batch: pa.RecordBatch, shape: Shape) -> tuple[memoryview, Offsets]:
    """The concatenated samples and the bytes of each; a sample has the sizes of its columns, then their values."""
    sizes: list[Offsets] = []
    parts: list[pa.LargeBinaryArray] = []
    for name, encoding in _encodings(shape).items():
        column = batch.column("input_ids" if name == _TOKENS else name)
        if encoding == "int":
            parts.append(_fixed(column.to_numpy().astype("<i8")))
        elif encoding == "str":
            parts.append(column.cast(pa.large_binary()))
            sizes.append(pc.binary_length(column).to_numpy().astype(np.int64))
        else:
            parts += (column_parts := _array_parts(column))
            sizes.append(sum(pc.binary_length(part).to_numpy() for part in column_parts))
    head = _fixed(np.stack(sizes, axis=1).astype("<u4"))
    samples = pc.binary_join_element_wise(head, *parts, pa.scalar(b"", pa.large_binary()))
    n_bytes = pc.binary_length(samples).to_numpy()
    return memoryview(samples.buffers()[2] or b"")[: n_bytes.sum()], n_bytes  # the buffer may be larger


def _array_parts(lists: pa.ListArray) -> list[pa.LargeBinaryArray]:
    """The encoded arrays: a byte with the number of dimensions and the type code of the length, then the length in that type, then
    the values."""
    numbers, offsets = list_values(lists)
    lengths = np.diff(offsets)
    codes = np.searchsorted((1 << 8, 1 << 16), lengths, side="right")
    ends = np.cumsum(np.append(0, 1 + (1 << codes)))
    heads = np.empty(ends[-1], np.uint8)
    heads[ends[:-1]] = 1 << 2 | codes
    for code, type in enumerate(_SHAPE_TYPES):
        rows = np.flatnonzero(codes == code)
        places = ends[rows][:, None] + 1 + np.arange(1 << code)
        heads[places] = lengths[rows].astype(type).view(np.uint8).reshape(places.shape)
    return [_binary(heads, ends), _binary(numbers, offsets * numbers.itemsize)]


def _fixed(rows: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """The bytes of each row of an array."""
    return _binary(rows, np.arange(len(rows) + 1, dtype=np.int64) * (rows.nbytes // max(len(rows), 1)))


def _binary(data: npt.NDArray[Any], offsets: Offsets) -> pa.LargeBinaryArray:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{_SHARD}"
    content, offsets = map_chunk(path, json.dumps(_config(shape), sort_keys=True).encode())
    start = 0
    while start < len(offsets) - 1:
        end = cut(offsets, start, READ_ROWS_MAX, READ_VALUES_MAX * shape.ids.itemsize)
        batch = _decoded(content, offsets[start : end + 1], shape, path, start)
        check_items(batch, shape, path, start)
        yield batch
        start = end


def _decoded(content: Bytes, offsets: Offsets, shape: Shape, path: Path, n_before: int) -> pa.RecordBatch:
    """The samples between these offsets. Raises ValidationError if their columns do not fill them."""

    def check(right: npt.NDArray[np.bool_], what: str) -> None:
        if not right.all():
            row = n_before + int(np.argmin(right))
            raise ValidationError(path, f"item {row:,}: {what} does not fit its sample.", REBUILD)

    encodings = _encodings(shape)
    variable = [name for name, encoding in encodings.items() if encoding != "int"]
    positions, ends = offsets[:-1], offsets[1:]
    head_bytes = _SIZE_BYTES * len(variable)
    check(ends - positions >= head_bytes, "the head")
    sizes = _gathered(content, positions, head_bytes).view("<u4").astype(np.int64)
    positions = positions + head_bytes
    columns_found: dict[str, pa.Array] = {}
    for name, encoding in encodings.items():
        size = sizes[:, variable.index(name)] if name in variable else np.full(len(positions), 8)
        check(positions + size <= ends, name)
        if encoding == "int":
            columns_found[name] = pa.array(_gathered(content, positions, 8).view("<i8")[:, 0])
        elif encoding == "str":
            columns_found[name] = _text(_taken(content, positions, positions + size), path, n_before)
        else:
            check(size >= 2, name)
            codes = content[positions].astype(np.int64) - (1 << 2)
            check((codes >= 0) & (codes < len(_SHAPE_TYPES)), name)
            begin = positions + 1 + (1 << codes)
            check(begin <= positions + size, name)
            type = schema_of(shape).field("input_ids" if name == _TOKENS else name).type
            lengths = _lengths(content, positions + 1, codes)
            check(begin + lengths * type.value_type.byte_width == positions + size, name)
            columns_found["input_ids" if name == _TOKENS else name] = _lists(
                _taken(content, begin, positions + size), lengths, type
            )
        positions = positions + size
    check(positions == ends, "the end")
    kept = columns(shape)
    return pa.RecordBatch.from_arrays([columns_found[name] for name in kept.names], schema=kept)


def _lengths(content: Bytes, positions: Offsets, codes: Offsets) -> Offsets:
    """Reads the lengths of arrays, each in the type of its code."""
    lengths = np.zeros(len(positions), np.int64)
    for code, type in enumerate(_SHAPE_TYPES):
        rows = codes == code
        lengths[rows] = _gathered(content, positions[rows], 1 << code).view(type)[:, 0]
    return lengths


def _gathered(found: Bytes, at: Offsets, n_bytes: int) -> Bytes:
    """The `n_bytes` bytes at each position, as rows."""
    rows: Bytes = found[at[:, None] + np.arange(n_bytes)]
    return rows


def _taken(found: Bytes, begins: Offsets, ends: Offsets) -> pa.LargeBinaryArray:
    """The bytes from each begin to its end, a value for each."""
    places = np.stack([begins, ends], axis=1).ravel()
    return _binary(found, places).take(pa.array(np.arange(0, len(places), 2)))


def _text(names: pa.LargeBinaryArray, path: Path, n_before: int) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ValidationError(path, f"items from {n_before:,}: the id is no text: {error}.", REBUILD) from None


def _lists(data: pa.LargeBinaryArray, lengths: Offsets, type: pa.DataType) -> pa.ListArray:
    values = pa.Array.from_buffers(type.value_type, int(lengths.sum()), [None, data.buffers()[2]])
    offsets = pa.py_buffer(np.append(0, np.cumsum(lengths)).astype(np.int32))
    return pa.Array.from_buffers(type, len(lengths), [None, offsets], children=[values])


def _encodings(shape: Shape) -> dict[str, str]:
    """The columns in the order of their names, with how each is encoded."""
    encodings = {}
    for field in columns(shape):
        if pa.types.is_list(field.type):
            type = field.type.value_type
            encodings[field.name] = f"ndarray:{'int32' if type == pa.uint32() else type}"
        else:
            encodings[field.name] = "str" if field.type == pa.string() else "int"
    encodings[_TOKENS] = encodings.pop("input_ids")
    return dict(sorted(encodings.items()))


def _config(shape: Shape) -> dict[str, Any]:
    encodings = _encodings(shape)
    return {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "column_sizes": [8 if encoding == "int" else None for encoding in encodings.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": _VERSION,
    }


def _finish(folder: Path, stems: Sequence[str], shape: Shape) -> None:
    """Writes index.json."""
    config = _config(shape)
    shards = []
    for stem in stems:
        path = folder / f"{stem}{_SHARD}"
        found, offsets = map_chunk(path, json.dumps(config, sort_keys=True).encode())
        raw = {"basename": path.name, "bytes": found.size, "hashes": {}}
        shards.append({**config, "raw_data": raw, "samples": len(offsets) - 1, "zip_data": None})
    with new_file(folder / _INDEX) as put:
        put(json.dumps({"shards": shards, "version": _VERSION}, sort_keys=True).encode())


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if may_be_empty(shape):
        return "mds holds no documents without tokens; set encode.end_of_document or encode.begin_of_document"
    return refuse_over_int32(shape, "mds") or refuse_large_files(file_bytes, "mds")


MDS = Format("mds", (_SHARD,), _write, _read, None, _refusal, _finish, shared=(_INDEX,), is_table=True)
