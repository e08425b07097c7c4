"""arrow: record batches of the rows, whose ids are mapped into memory as one array for each batch."""

from __future__ import annotations

from pathlib import Path

from tokenmill_reader.formats.arrow_file import read_arrow_file
from tokenmill_reader.formats.columns import check_beside, columns, flat_of
from tokenmill_reader.formats.items import ARROW_SUFFIX, Flat, Shape, check_segments


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part, by record batch. Raises ValidationError for a file that is not as it should be."""
    path = folder / f"{stem}{ARROW_SUFFIX}"
    flats = []
    n_items = 0
    for batch in read_arrow_file(path, columns(shape)):
        one = flat_of(batch)
        check_beside(batch, one.offsets, path, n_items)
        check_segments(one, shape, path, n_items)
        flats.append(one)
        n_items += batch.num_rows
    return flats
