"""megatron: the MMapIndexedDataset of Megatron-LM, `.bin` with the ids and `.idx` with where each sequence is.

The layout is that of `_IndexWriter` in megatron/core/datasets/indexed_dataset.py. Each sequence is a document of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrays import map_file, values, whole_values
from tokenmill_reader.formats.items import REBUILD, Flat, Shape, check_segments
from tokenmill_reader.formats.nanogpt import read_starts

if TYPE_CHECKING:
    import numpy.typing as npt

DATA = ".bin"
INDEX = ".idx"
UINT16: np.dtype[Any] = np.dtype("<u2")
INT32: np.dtype[Any] = np.dtype("<i4")

_CODES = {UINT16: 8, INT32: 4}  # of the types; there is none for uint32
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
HEADER = np.dtype(
    [("magic", "V9"), ("version", "<u8"), ("type", "u1"), ("n_sequences", "<u8"), ("n_document_indices", "<u8")]
)


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part. Raises ValidationError for files that are not as they should be."""
    data, index = folder / f"{stem}{DATA}", folder / f"{stem}{INDEX}"
    ids = whole_values(data, type_of(shape))
    found = Flat(ids, read_offsets(index, type_of(shape), data, ids.size), read_starts(folder, stem, shape))
    check_segments(found, shape, index)
    return [found]


def type_of(shape: Shape) -> np.dtype[Any]:
    """The type of the ids in the file: Megatron has none for uint32."""
    return UINT16 if shape.ids.itemsize == 2 else INT32


def read_offsets(path: Path, type: np.dtype[Any], data: Path, n_values: int) -> npt.NDArray[np.int64]:
    """Where each sequence begins, in values, with the end of the last. `data`: the indexed file of `n_values` values. Raises
    ValidationError if anything in the index does not fit."""
    lengths = _lengths(path, type)
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] != n_values:
        raise ValidationError(data, f"expected {offsets[-1]:,} ids, as {path.name} says; found {n_values:,}.", REBUILD)
    return offsets


def _lengths(path: Path, type: np.dtype[Any]) -> npt.NDArray[np.int32]:
    """The lengths of all sequences. Raises ValidationError if anything in the index does not fit."""
    content = map_file(path)
    if content.size < HEADER.itemsize:
        raise ValidationError(path, f"expected a header of {HEADER.itemsize} bytes; found {content.size:,}.", REBUILD)
    header = content[: HEADER.itemsize].view(HEADER)[0]
    n = min(int(header["n_sequences"]), content.size)  # a wrong number gives another header, which is compared
    if header.tobytes() != (expected := header_of(type, n)).tobytes():
        wrong = next(name for name in HEADER.names or () if header[name] != expected[name])
        raise ValidationError(f"{path}: {wrong}", f"expected {expected[wrong]}; found {header[wrong]}.", REBUILD)
    n_bytes = HEADER.itemsize + n * 20 + 8
    if content.size != n_bytes:
        raise ValidationError(path, f"expected {n_bytes:,} bytes for {n:,} sequences; found {content.size:,}.", REBUILD)
    lengths: npt.NDArray[np.int32] = values(content, "<i4", HEADER.itemsize, n)
    places = values(content, "<i8", HEADER.itemsize + n * 4, n)
    documents = values(content, "<i8", HEADER.itemsize + n * 12, n + 1)
    ends = np.cumsum(lengths, dtype=np.int64) * type.itemsize
    wrong_rows = (lengths < 0) | (places != np.append(0, ends)[:-1]) | (documents[:-1] != np.arange(n))
    if wrong_rows.any() or documents[-1] != n:
        row = int(np.argmax(np.append(wrong_rows, True)))
        raise ValidationError(
            path, f"item {row:,}: its length, place or document index does not follow the last.", REBUILD
        )
    return lengths


def header_of(type: np.dtype[Any], n_items: int) -> np.void:
    """The header of an index of so many items."""
    header: np.void = np.array([(_MAGIC, _VERSION, _CODES[type], n_items, n_items + 1)], HEADER)[0]
    return header
