"""nanogpt: one `.bin` of uint16 ids for each split, without a header.

It is what data/openwebtext/prepare.py of karpathy/nanoGPT writes. Where documents end is not in such a file; the file beside
says it, so that the dataset can be checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file, whole_values
from tokenmill.formats.interface import STARTS_SUFFIX, Flat, Format, Shape
from tokenmill.formats.item_checks import REBUILD, check_segments, checking, flat_of, refuse_lists
from tokenmill.formats.sidecar import new_sidecar, read_sidecar

_DATA = ".bin"


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_DATA}"
    with new_file(path) as put, new_sidecar(folder, stem, shape, with_lengths=True) as add_lengths:

        def add(batch: pa.RecordBatch) -> None:
            put(flat_of(batch).ids)
            add_lengths(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_flat(folder, stem, shape)[0], shape, folder / f"{stem}{_DATA}")


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    path = folder / f"{stem}{_DATA}"
    beside = folder / f"{stem}{STARTS_SUFFIX}"
    ids = whole_values(path, "<u2")
    lengths, starts = read_sidecar(folder, stem, shape, with_lengths=True)
    if (lengths < 0).any():
        raise ValidationError(beside, f"item {int(np.argmax(lengths < 0)):,}: its length is negative.", REBUILD)
    offsets = np.append(np.int64(0), np.cumsum(lengths))
    if offsets[-1] != ids.size:
        raise ValidationError(
            path, f"expected {offsets[-1]:,} ids, as {beside.name} says; found {ids.size:,}.", REBUILD
        )
    flat = Flat(ids, offsets, starts)
    check_segments(flat, shape, path)
    return [flat]


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if shape.ids != pa.uint16():
        return (
            f"nanogpt holds ids up to {2**16 - 1:,}; the tokenizer's largest is {shape.id_max:,}; choose another format"
        )
    return refuse_lists(shape, "nanogpt")


NANOGPT = Format("nanogpt", (_DATA, STARTS_SUFFIX), _write, _read, _flat, _refusal, one_file=True, keeps_ends=False)
