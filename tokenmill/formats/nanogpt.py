"""nanogpt: one `.bin` of uint16 ids for each split, without a header.

It is what data/openwebtext/prepare.py of karpathy/nanoGPT writes. Where documents end is not in such a file; the file beside
says it, so that the dataset can be checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists, refuse_over_uint16
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import STARTS_SUFFIX, Shape
from tokenmill_reader.formats.nanogpt import DATA, read_flat


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{DATA}"
    with new_file(path) as put, new_sidecar(folder, stem, shape, with_lengths=True) as add_lengths:

        def add(batch: pa.RecordBatch) -> None:
            put(flat_of(batch).ids)
            add_lengths(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(read_flat(folder, stem, shape)[0], shape, folder / f"{stem}{DATA}")


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refuse_over_uint16(shape, "nanogpt") or refuse_lists(shape, "nanogpt")


NANOGPT = Format("nanogpt", (DATA, STARTS_SUFFIX), _write, _read, read_flat, _refusal, one_file=True)
