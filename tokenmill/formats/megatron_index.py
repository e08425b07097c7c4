"""The index of an MMapIndexedDataset of Megatron-LM: how long each sequence is, and where it begins.

The layout is that of `_IndexWriter` in megatron/core/datasets/indexed_dataset.py. Each sequence is a document of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.errors import ValidationError
from tokenmill.formats.files import Put, arrays, map_file, new_file, put_spooled, spool, values
from tokenmill.formats.item_checks import REBUILD

UINT16: "np.dtype[np.uint16]" = np.dtype("<u2")
INT32: "np.dtype[np.int32]" = np.dtype("<i4")

_CODES = {UINT16: 8, INT32: 4}  # of the types; there is none for uint32
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = np.dtype(
    [("magic", "V9"), ("version", "<u8"), ("type", "u1"), ("n_sequences", "<u8"), ("n_document_indices", "<u8")]
)
_ARANGE = 1 << 17  # document indices made at a time

Type = np.dtype[np.uint16] | np.dtype[np.int32]


@contextmanager
def new_index(path: Path, type: Type) -> Iterator[Callable[[npt.NDArray[np.int64]], None]]:
    """Yields a function that adds the lengths of sequences, in values of `type`, to a new index."""
    n_items = 0
    with new_file(path) as put, spool(path.parent) as (put_length, lengths):

        def add(some: npt.NDArray[np.int64]) -> None:
            nonlocal n_items
            put_length(some.astype("<i4"))  # a sequence has fewer than 2**31 values
            n_items += some.size

        yield add
        put(_header(type, n_items).tobytes())
        put_spooled(put, lengths)
        _put_places(put, (block for block in arrays(lengths, "<i4")), type.itemsize)
        for start in range(0, n_items + 1, _ARANGE):
            put(np.arange(start, min(start + _ARANGE, n_items + 1), dtype="<i8"))


def _put_places(put: Put, lengths: Iterator[npt.NDArray[np.int32]], id_bytes: int) -> None:
    """Adds the byte offset of each sequence."""
    end = 0
    for block in lengths:
        ends = end + np.cumsum(block, dtype="<i8") * id_bytes
        put(ends - block.astype("<i8") * id_bytes)
        end = int(ends[-1])


def read_offsets(path: Path, type: Type, data: Path, n_values: int) -> npt.NDArray[np.int64]:
    """Where each sequence begins, in values, with the end of the last. `data`: the indexed file of `n_values` values. Raises
    ValidationError if anything in the index does not fit."""
    lengths = _lengths(path, type)
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] != n_values:
        raise ValidationError(data, f"expected {offsets[-1]:,} ids, as {path.name} says; found {n_values:,}.", REBUILD)
    return offsets


def _lengths(path: Path, type: Type) -> npt.NDArray[np.int32]:
    """The lengths of all sequences. Raises ValidationError if anything in the index does not fit."""
    found = map_file(path)
    if found.size < _HEADER.itemsize:
        raise ValidationError(path, f"expected a header of {_HEADER.itemsize} bytes; found {found.size:,}.", REBUILD)
    header = found[: _HEADER.itemsize].view(_HEADER)[0]
    n = min(int(header["n_sequences"]), found.size)  # a wrong number gives another header, which is compared
    if header.tobytes() != (expected := _header(type, n)).tobytes():
        wrong = next(name for name in _HEADER.names or () if header[name] != expected[name])
        raise ValidationError(f"{path}: {wrong}", f"expected {expected[wrong]}; found {header[wrong]}.", REBUILD)
    n_bytes = _HEADER.itemsize + n * 20 + 8
    if found.size != n_bytes:
        raise ValidationError(path, f"expected {n_bytes:,} bytes for {n:,} sequences; found {found.size:,}.", REBUILD)
    lengths: npt.NDArray[np.int32] = values(found, "<i4", _HEADER.itemsize, n)
    places = values(found, "<i8", _HEADER.itemsize + n * 4, n)
    documents = values(found, "<i8", _HEADER.itemsize + n * 12, n + 1)
    ends = np.cumsum(lengths, dtype=np.int64) * type.itemsize
    wrong_rows = (lengths < 0) | (places != np.append(0, ends)[:-1]) | (documents[:-1] != np.arange(n))
    if wrong_rows.any() or documents[-1] != n:
        row = int(np.argmax(np.append(wrong_rows, True)))
        raise ValidationError(
            path, f"item {row:,}: its length, place or document index does not follow the last.", REBUILD
        )
    return lengths


def _header(type: Type, n_items: int) -> np.void:
    header: np.void = np.array([(_MAGIC, _VERSION, _CODES[type], n_items, n_items + 1)], _HEADER)[0]
    return header
