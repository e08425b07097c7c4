"""datatrove: `.ds` with the ids, `.ds.index` with where documents end, `.ds.metadata` with how many there are of which size.

The layout is that of `TokenizedFile` in src/datatrove/pipeline/tokens/tokenizer.py. The index of packed sequences has the ends of
their segments, which are the documents or parts of them; the file beside says how many segments a sequence has.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import map_file, new_file, whole_values
from tokenmill.formats.interface import STARTS_SUFFIX, Flat, Format, Shape
from tokenmill.formats.item_checks import (
    REBUILD,
    check_segments,
    checking,
    flat_of,
    numpy_type,
    refuse_lists,
    segment_ends,
)
from tokenmill.formats.sidecar import new_sidecar, read_sidecar

_DATA = ".ds"
_INDEX = ".ds.index"
_METADATA = ".ds.metadata"
_PREFIXES = ("", "k", "M", "G", "T", "P")


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_DATA}"
    n_tokens = 0
    with (
        new_file(path) as put,
        new_file(folder / f"{stem}{_INDEX}") as put_ends,
        new_sidecar(folder, stem, shape) as add_starts,
    ):

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_tokens
            flat = flat_of(batch)
            put(flat.ids)
            put_ends((n_tokens + segment_ends(flat)).astype("<u8"))
            add_starts(batch)
            n_tokens += int(flat.offsets[-1])

        yield checking(add, shape, path)
    with new_file(folder / f"{stem}{_METADATA}") as put:
        put(_metadata(shape, n_tokens).encode())


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_flat(folder, stem, shape)[0], shape, folder / f"{stem}{_DATA}")


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    path = folder / f"{stem}{_DATA}"
    ids = whole_values(path, numpy_type(shape))
    _check_metadata(folder / f"{stem}{_METADATA}", _metadata(shape, ids.size))
    index = folder / f"{stem}{_INDEX}"
    ends = np.append(np.int64(0), whole_values(index, "<u8").view("<i8"))
    falls = np.flatnonzero(np.diff(ends) < 0)
    if falls.size:
        raise ValidationError(index, f"item {falls[0]:,} ends before it begins.", REBUILD)
    if ends[-1] != ids.size:
        raise ValidationError(path, f"expected {ends[-1]:,} ids, as {index.name} says; found {ids.size:,}.", REBUILD)
    _, starts = read_sidecar(folder, stem, shape)
    if starts is None:
        return [Flat(ids, ends)]
    n_segments = starts.offsets.to_numpy().astype(np.int64)
    if n_segments[-1] != ends.size - 1:
        raise ValidationError(
            index,
            f"expected {n_segments[-1]:,} segments, as {stem}{STARTS_SUFFIX} says; found {ends.size - 1:,}.",
            REBUILD,
        )
    flat = Flat(ids, ends[n_segments], starts)
    check_segments(flat, shape, index)
    if not np.array_equal(segment_ends(flat), ends[1:]):
        raise ValidationError(index, f"its ends are not those of {stem}{STARTS_SUFFIX}.", REBUILD)
    return [flat]


def _check_metadata(path: Path, expected: str) -> None:
    found = map_file(path).tobytes().decode("utf-8", "replace")
    if found != expected:
        raise ValidationError(path, f"expected {expected!r}; found {found[:200]!r}.", REBUILD)


def _metadata(shape: Shape, n_tokens: int) -> str:
    """The text of .ds.metadata: the tokenizer with the bytes per id, the number of tokens, and that number for people."""
    return f"{shape.tokenizer_digest}|{numpy_type(shape).itemsize}\n{n_tokens}\n{_metric(n_tokens)}"


def _metric(n_tokens: int) -> str:
    """Three digits with a unit, in which T without a prefix is a token, as datatrove writes it.

    >>> _metric(0), _metric(999), _metric(1000), _metric(12345), _metric(999_999)
    ('0.00 T', '999 T', '1.00 kT', '12.3 kT', '1.00 MT')
    """
    exponent = int(f"{n_tokens:.2e}".rpartition("e")[2])  # of the number rounded to three digits
    thousands = exponent // 3
    return f"{n_tokens / 1000**thousands:.{2 - exponent % 3}f} {_PREFIXES[thousands]}T"


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if "|" in shape.tokenizer_digest:
        return "datatrove's metadata cannot hold the name of a tokenizer with a | in it"
    return refuse_lists(shape, "datatrove")


DATATROVE = Format(
    "datatrove",
    (_DATA, _INDEX, _METADATA),
    _write,
    _read,
    _flat,
    _refusal,
    packed_suffixes=(STARTS_SUFFIX,),
    keeps_ends=False,
)
