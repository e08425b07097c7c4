"""datatrove: `.ds` with the ids, `.ds.index` with where documents end, `.ds.metadata` with how many there are of which size, and of
conversations `.ds.loss` with a byte for each id: 1 where it is to be learned, else 0.

The layout is that of `TokenizedFile` in src/datatrove/pipeline/tokens/tokenizer.py. The index of packed sequences has the ends of
their segments, which are the documents or parts of them; the file beside says how many segments a sequence has.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrays import map_file, read_mask, whole_values
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Flat, Shape, check_segments, segment_ends
from tokenmill_reader.formats.nanogpt import read_starts

DATA = ".ds"
INDEX = ".ds.index"
METADATA = ".ds.metadata"
MASK = ".ds.loss"
_PREFIXES = ("", "k", "M", "G", "T", "P")


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part. Raises ValidationError for files that are not as they should be."""
    path = folder / f"{stem}{DATA}"
    ids = whole_values(path, shape.ids)
    _check_metadata(folder / f"{stem}{METADATA}", metadata_of(shape, ids.size))
    index = folder / f"{stem}{INDEX}"
    ends = np.append(np.int64(0), whole_values(index, "<u8").view("<i8"))
    falls = np.flatnonzero(np.diff(ends) < 0)
    if falls.size:
        raise ValidationError(index, f"item {falls[0]:,} ends before it begins.", REBUILD)
    if ends[-1] != ids.size:
        raise ValidationError(path, f"expected {ends[-1]:,} ids, as {index.name} says; found {ids.size:,}.", REBUILD)
    mask = read_mask(folder / f"{stem}{MASK}", path, ids.size) if shape.has_mask else None
    starts = read_starts(folder, stem, shape)
    if starts is None:
        return [Flat(ids, ends, loss_mask=mask)]
    n_segments = starts.offsets
    if n_segments[-1] != ends.size - 1:
        raise ValidationError(
            index,
            f"expected {n_segments[-1]:,} segments, as {stem}{STARTS_SUFFIX} says; found {ends.size - 1:,}.",
            REBUILD,
        )
    items = Flat(ids, ends[n_segments], starts, loss_mask=mask)
    check_segments(items, shape, index)
    if not np.array_equal(segment_ends(items), ends[1:]):
        raise ValidationError(index, f"its ends are not those of {stem}{STARTS_SUFFIX}.", REBUILD)
    return [items]


def _check_metadata(path: Path, expected: str) -> None:
    found = map_file(path).tobytes().decode("utf-8", "replace")
    if found != expected:
        raise ValidationError(path, f"expected {expected!r}; found {found[:200]!r}.", REBUILD)


def metadata_of(shape: Shape, n_tokens: int) -> str:
    """The text of .ds.metadata: the tokenizer with the bytes per id, the number of tokens, and that number for people."""
    return f"{shape.tokenizer_digest}|{shape.ids.itemsize}\n{n_tokens}\n{_metric(n_tokens)}"


def _metric(n_tokens: int) -> str:
    """Three digits with a unit, in which T without a prefix is a token, as datatrove writes it."""
    exponent = int(f"{n_tokens:.2e}".rpartition("e")[2])  # of the number rounded to three digits
    thousands = exponent // 3
    return f"{n_tokens / 1000**thousands:.{2 - exponent % 3}f} {_PREFIXES[thousands]}T"
