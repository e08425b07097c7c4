"""megatron: the MMapIndexedDataset of Megatron-LM, `.bin` with the ids and `.idx` with where each sequence is.

An item is a sequence and a document of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokenmill_reader.formats.arrays import whole_values
from tokenmill_reader.formats.items import Flat, Shape, check_segments
from tokenmill_reader.formats.megatron_index import INT32, UINT16, read_offsets
from tokenmill_reader.formats.starts import read_starts

DATA = ".bin"
INDEX = ".idx"


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
