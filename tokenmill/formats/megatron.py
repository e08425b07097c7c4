"""megatron: the MMapIndexedDataset of Megatron-LM, `.bin` with the ids and `.idx` with where each sequence is.

An item is a sequence and a document of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists, refuse_over_int32
from tokenmill.formats.megatron_index import new_index
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import STARTS_SUFFIX, Shape
from tokenmill_reader.formats.megatron import DATA, INDEX, read_flat, type_of


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{DATA}"
    with (
        new_file(path) as put,
        new_index(folder / f"{stem}{INDEX}", type_of(shape)) as put_lengths,
        new_sidecar(folder, stem, shape) as add_starts,
    ):

        def add(batch: pa.RecordBatch) -> None:
            flat = flat_of(batch)
            put(flat.ids)  # ids of uint32 fit int32; `refusal` and the check ensure it
            put_lengths(np.diff(flat.offsets))
            add_starts(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(read_flat(folder, stem, shape)[0], shape, folder / f"{stem}{DATA}")


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refuse_lists(shape, "megatron") or refuse_over_int32(shape, "megatron")


MEGATRON = Format("megatron", (DATA, INDEX), _write, _read, read_flat, _refusal, packed_suffixes=(STARTS_SUFFIX,))
