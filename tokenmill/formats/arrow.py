"""arrow: the rows as they are, uncompressed, so that the ids of each record batch can be mapped into memory as one array."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill.formats.arrow_file import new_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checking
from tokenmill_reader.formats.arrow_file import read_arrow_file, read_flat
from tokenmill_reader.formats.columns import columns
from tokenmill_reader.formats.items import ARROW_SUFFIX, Shape

_ROWS_MAX = 1 << 16  # of a record batch
_VALUES_MAX = 1 << 21  # token ids of a record batch: 4 or 8 MB, so that a file of gigabytes has some hundred


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{ARROW_SUFFIX}"
    kept = columns(shape)
    with new_arrow_file(path, kept) as write, even_batches(write, "input_ids", _ROWS_MAX, _VALUES_MAX) as put:
        yield checking(lambda batch: put(batch.select(kept.names)), shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{ARROW_SUFFIX}"
    n_items = 0
    for batch in read_arrow_file(path, columns(shape)):
        check_items(batch, shape, path, n_items)
        yield batch
        n_items += batch.num_rows


ARROW = Format("arrow", (ARROW_SUFFIX,), _write, _read, read_flat, lambda shape, file_bytes: None, is_table=True)
