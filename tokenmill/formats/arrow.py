"""arrow: the rows as they are, uncompressed, so that the ids of each record batch can be mapped into memory as one array."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill.formats.arrow_file import new_arrow_file, read_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Flat, Format, Shape
from tokenmill.formats.item_checks import check_beside, check_items, check_segments, checking, columns, flat_of

_SUFFIX = ".arrow"
_ROWS_MAX = 1 << 16  # of a record batch
_VALUES_MAX = 1 << 21  # token ids of a record batch: 4 or 8 MB, so that a file of gigabytes has some hundred


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_SUFFIX}"
    kept = columns(shape)
    with new_arrow_file(path, kept) as write, even_batches(write, "input_ids", _ROWS_MAX, _VALUES_MAX) as put:
        yield checking(lambda batch: put(batch.select(kept.names)), shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{_SUFFIX}"
    n_items = 0
    for batch in read_arrow_file(path, columns(shape)):
        check_items(batch, shape, path, n_items)
        yield batch
        n_items += batch.num_rows


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    path = folder / f"{stem}{_SUFFIX}"
    flats = []
    n_items = 0
    for batch in read_arrow_file(path, columns(shape)):
        flat = flat_of(batch)
        check_beside(batch, flat.offsets, path, n_items)
        check_segments(flat, shape, path, n_items)
        flats.append(flat)
        n_items += batch.num_rows
    return flats


ARROW = Format("arrow", (_SUFFIX,), _write, _read, _flat, lambda shape, file_bytes: None)
