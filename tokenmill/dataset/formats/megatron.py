"""megatron: the MMapIndexedDataset of Megatron-LM, `.bin` with the ids and `.idx` with where each sequence is.

The layout is that of `_IndexWriter` in megatron/core/datasets/indexed_dataset.py. An item is a sequence and a document of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.dataset.formats.batches import batches_of
from tokenmill.dataset.formats.files import Put, arrays, map_file, new_file, put_spooled, spool, values, whole_values
from tokenmill.dataset.formats.interface import STARTS_SUFFIX, Flat, Format, Shape
from tokenmill.dataset.formats.items import (
    REBUILD,
    check_segments,
    checked,
    flat_of,
    refuse_labels,
    refuse_over_int32,
)
from tokenmill.dataset.formats.sidecar import new_sidecar, read_sidecar
from tokenmill.errors import ValidationError

_DATA = ".bin"
_INDEX = ".idx"
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = np.dtype(
    [("magic", "V9"), ("version", "<u8"), ("type", "u1"), ("n_sequences", "<u8"), ("n_document_indices", "<u8")]
)
_INT32, _UINT16 = 4, 8  # codes of the types; there is none for uint32
_ARANGE = 1 << 17  # document indices made at a time


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_DATA}"
    n_items = 0
    with (
        new_file(path) as put,
        new_file(folder / f"{stem}{_INDEX}") as put_index,
        spool(folder) as (put_length, lengths),
        new_sidecar(folder, stem, shape) as add_starts,
    ):

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_items
            batch = checked(batch, shape, path, n_items)
            flat = flat_of(batch)
            put(flat.ids)  # those of uint32 are within int32, as refusal and the check see to
            put_length(np.diff(flat.offsets).astype("<i4"))  # a list has fewer than 2**31 values
            add_starts(batch)
            n_items += batch.num_rows

        yield add
        put_index(_header(shape, n_items).tobytes())
        put_spooled(put_index, lengths)
        _put_places(put_index, (block for block in arrays(lengths, "<i4")), _type(shape).itemsize)
        for start in range(0, n_items + 1, _ARANGE):
            put_index(np.arange(start, min(start + _ARANGE, n_items + 1), dtype="<i8"))


def _put_places(put: Put, lengths: Iterator[npt.NDArray[np.int32]], id_bytes: int) -> None:
    """Adds the byte offset of each sequence."""
    end = 0
    for block in lengths:
        ends = end + np.cumsum(block, dtype="<i8") * id_bytes
        put(ends - block.astype("<i8") * id_bytes)
        end = int(ends[-1])


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_flat(folder, stem, shape)[0], shape, folder / f"{stem}{_DATA}")


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    ids = whole_values(folder / f"{stem}{_DATA}", _type(shape))
    index = folder / f"{stem}{_INDEX}"
    lengths = _lengths(index, shape)
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] != ids.size:
        raise ValidationError(
            f"{folder / f'{stem}{_DATA}'}: expected {offsets[-1]:,} ids, as {index.name} says; found {ids.size:,}. {REBUILD}"
        )
    flat = Flat(ids, offsets, read_sidecar(folder, stem, shape)[1])
    check_segments(flat, shape, index)
    return [flat]


def _lengths(path: Path, shape: Shape) -> npt.NDArray[np.int32]:
    """The lengths of all sequences in tokens. Raises ValidationError if anything in the index does not fit."""
    found = map_file(path)
    if found.size < _HEADER.itemsize:
        raise ValidationError(f"{path}: expected a header of {_HEADER.itemsize} bytes; found {found.size:,}. {REBUILD}")
    header = found[: _HEADER.itemsize].view(_HEADER)[0]
    n = min(int(header["n_sequences"]), found.size)  # a false number is then told by the header that it makes
    if header.tobytes() != (expected := _header(shape, n)).tobytes():
        wrong = next(name for name in _HEADER.names or () if header[name] != expected[name])
        raise ValidationError(f"{path}: {wrong}: expected {expected[wrong]}; found {header[wrong]}. {REBUILD}")
    n_bytes = _HEADER.itemsize + n * 20 + 8
    if found.size != n_bytes:
        raise ValidationError(
            f"{path}: expected {n_bytes:,} bytes for {n:,} sequences; found {found.size:,}. {REBUILD}"
        )
    lengths: npt.NDArray[np.int32] = values(found, "<i4", _HEADER.itemsize, n)
    places = values(found, "<i8", _HEADER.itemsize + n * 4, n)
    documents = values(found, "<i8", _HEADER.itemsize + n * 12, n + 1)
    ends = np.cumsum(lengths, dtype=np.int64) * _type(shape).itemsize
    wrong_rows = (lengths < 0) | (places != np.append(0, ends)[:-1]) | (documents[:-1] != np.arange(n))
    if wrong_rows.any() or documents[-1] != n:
        row = int(np.argmax(np.append(wrong_rows, True)))
        raise ValidationError(
            f"{path}: item {row:,}: its length, place or document index does not follow the last. {REBUILD}"
        )
    return lengths


def _header(shape: Shape, n_items: int) -> np.void:
    code = _UINT16 if shape.ids == pa.uint16() else _INT32
    header: np.void = np.array([(_MAGIC, _VERSION, code, n_items, n_items + 1)], _HEADER)[0]
    return header


def _type(shape: Shape) -> "np.dtype[np.uint16] | np.dtype[np.int32]":
    return np.dtype("<u2") if shape.ids == pa.uint16() else np.dtype("<i4")


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refuse_labels(shape, "megatron") or refuse_over_int32(shape, "megatron")


MEGATRON = Format("megatron", (_DATA, _INDEX), _write, _read, _flat, _refusal, packed_suffixes=(STARTS_SUFFIX,))
