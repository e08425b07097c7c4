"""Reads Arrow record batches from a file that is mapped into memory: the streaming form of Arrow IPC, uncompressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrays import map_file
from tokenmill_reader.formats.columns import check_beside, flat_of, named
from tokenmill_reader.formats.columns import columns as columns_of
from tokenmill_reader.formats.items import ARROW_SUFFIX, REBUILD, Flat, Shape, check_segments

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # the marker at the end of a stream; without it a cut at a batch's end is not seen


def read_arrow_file(path: Path, columns: pa.Schema, are_some: bool = False) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, mapped into memory. `are_some`: the file may have further columns, which are left out. Raises
    ValidationError if it is not such a file, or has other columns."""
    content = map_file(path)
    if content[-len(_END) :].tobytes() != _END:
        raise ValidationError(path, "it is cut off, or is not an Arrow stream.", REBUILD)
    try:
        source = pa.BufferReader(pa.py_buffer(content))
        with pa.ipc.open_stream(source) as reader:
            columns_there = reader.schema
            if are_some:
                columns_there = pa.schema([field for field in reader.schema if field.name in columns.names])
            if not columns_there.equals(columns):
                raise ValidationError(
                    path, f"expected the columns {named(columns)}; found {named(reader.schema)}.", REBUILD
                )
            for whole in reader:
                batch = whole.select(columns.names) if are_some else whole
                batch.validate(full=True)
                if any(column.null_count for column in batch.columns):
                    raise ValidationError(path, "expected no nulls; found some.", REBUILD)
                yield batch
            if source.tell() != content.size:
                raise ValidationError(path, f"expected {source.tell():,} bytes; found {content.size:,}.", REBUILD)
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part of the format arrow, by record batch. Raises ValidationError for a file that is not as it should be."""
    path = folder / f"{stem}{ARROW_SUFFIX}"
    flats = []
    n_items = 0
    for batch in read_arrow_file(path, columns_of(shape)):
        one = flat_of(batch)
        check_beside(batch, one.offsets, path, n_items)
        check_segments(one, shape, path, n_items)
        flats.append(one)
        n_items += batch.num_rows
    return flats
