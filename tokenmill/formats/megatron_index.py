"""The index of an MMapIndexedDataset of Megatron-LM: how long each sequence is, and where it begins.

The layout is that of `_IndexWriter` in megatron/core/datasets/indexed_dataset.py. Each sequence is a document of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.formats.files import Put, arrays, new_file, put_spooled, spool
from tokenmill_reader.formats.megatron import header_of

_ARANGE = 1 << 17  # document indices made at a time


@contextmanager
def new_index(path: Path, type: np.dtype[Any]) -> Iterator[Callable[[npt.NDArray[np.int64]], None]]:
    """Yields a function that adds the lengths of sequences, in values of `type`, to a new index."""
    n_items = 0
    with new_file(path) as put, spool(path.parent) as (put_length, lengths):

        def add(some: npt.NDArray[np.int64]) -> None:
            nonlocal n_items
            put_length(some.astype("<i4"))  # a sequence has fewer than 2**31 values
            n_items += some.size

        yield add
        put(header_of(type, n_items).tobytes())
        put_spooled(put, lengths)
        _put_places(put, (block for block in arrays(lengths, "<i4")), type.itemsize)
        for start in range(0, n_items + 1, _ARANGE):
            put(np.arange(start, min(start + _ARANGE, n_items + 1), dtype="<i8"))


def _put_places(put: Put, lengths: Iterator[npt.NDArray[np.int32]], id_bytes: int) -> None:
    """Adds the byte offset of each sequence."""
    end = 0
    for block in lengths:
        ends = end + np.cumsum(block, dtype="<i8") * id_bytes
        put(ends - block.astype("<i8") * id_bytes)
        end = int(ends[-1])
