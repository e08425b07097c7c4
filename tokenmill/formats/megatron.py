"""megatron: the MMapIndexedDataset of Megatron-LM, `.bin` with the ids and `.idx` with where each sequence is.

An item is a sequence and a document of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file, whole_values
from tokenmill.formats.interface import STARTS_SUFFIX, Flat, Format, Shape
from tokenmill.formats.item_checks import check_segments, checking, flat_of, refuse_lists, refuse_over_int32
from tokenmill.formats.megatron_index import INT32, UINT16, Type, new_index, read_offsets
from tokenmill.formats.sidecar import new_sidecar, read_sidecar

_DATA = ".bin"
_INDEX = ".idx"


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_DATA}"
    with (
        new_file(path) as put,
        new_index(folder / f"{stem}{_INDEX}", _type(shape)) as put_lengths,
        new_sidecar(folder, stem, shape) as add_starts,
    ):

        def add(batch: pa.RecordBatch) -> None:
            flat = flat_of(batch)
            put(flat.ids)  # ids of uint32 fit int32; `refusal` and the check ensure it
            put_lengths(np.diff(flat.offsets))
            add_starts(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_flat(folder, stem, shape)[0], shape, folder / f"{stem}{_DATA}")


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    data, index = folder / f"{stem}{_DATA}", folder / f"{stem}{_INDEX}"
    ids = whole_values(data, _type(shape))
    flat = Flat(ids, read_offsets(index, _type(shape), data, ids.size), read_sidecar(folder, stem, shape)[1])
    check_segments(flat, shape, index)
    return [flat]


def _type(shape: Shape) -> Type:
    return UINT16 if shape.ids == pa.uint16() else INT32


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refuse_lists(shape, "megatron") or refuse_over_int32(shape, "megatron")


MEGATRON = Format(
    "megatron", (_DATA, _INDEX), _write, _read, _flat, _refusal, packed_suffixes=(STARTS_SUFFIX,), keeps_ends=False
)
