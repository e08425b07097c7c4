"""Files that begin with the number of items and their 32-bit offsets: the chunks of litdata and mds.

This header is known last, so the items are collected in an anonymous temporary file first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import ValidationError
from tokenmill.formats.files import arrays, new_file, put_spooled, spool
from tokenmill_reader.formats.arrays import map_file, values
from tokenmill_reader.formats.items import REBUILD

FILE_BYTES_MAX = 2**32 - 1


@contextmanager
def new_chunk(path: Path, config: bytes) -> Iterator[Callable[[Any, npt.NDArray[np.int64]], None]]:
    """Yields a function that adds items to a new file: their bytes, and how many of them each has.

    `config`: bytes between the offsets and the first item. Raises ValidationError if the file grows too large for its offsets.
    """
    n_items = n_bytes = 0
    with new_file(path) as put, spool(path.parent) as (put_item, items), spool(path.parent) as (put_size, sizes):

        def add(data: Any, item_bytes: npt.NDArray[np.int64]) -> None:
            nonlocal n_items, n_bytes
            n_items, n_bytes = n_items + item_bytes.size, n_bytes + int(item_bytes.sum())
            if _head_bytes(n_items, config) + n_bytes > FILE_BYTES_MAX:
                raise ValidationError(
                    path,
                    f"expected at most {FILE_BYTES_MAX:,} bytes, as its offsets have 32 bits; found more.",
                    "Set a smaller size of the files.",
                )
            put_item(data)
            put_size(item_bytes.astype("<u4"))

        yield add
        begin = _head_bytes(n_items, config)
        put(np.array([n_items, begin], "<u4"))
        for block in arrays(sizes, "<u4"):
            ends = begin + np.cumsum(block, dtype=np.int64)
            put(ends.astype("<u4"))
            begin = int(ends[-1])
        put(config)
        put_spooled(put, items)


def map_chunk(path: Path, config: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of a file, mapped into memory, and the offset of each item with the end of the last one.

    Raises ValidationError if the header is malformed, offsets decrease, or the file does not end with the last item.
    """
    content = map_file(path)
    n_items = int(values(content, "<u4", 0, 1)[0]) if content.size >= 8 else 0
    head_bytes = _head_bytes(n_items, config)
    if content.size < head_bytes:
        raise ValidationError(
            path,
            f"expected a head of {head_bytes:,} bytes for {n_items:,} items; found {content.size:,} bytes.",
            REBUILD,
        )
    offsets = values(content, "<u4", 4, n_items + 1).astype(np.int64)
    if content[head_bytes - len(config) : head_bytes].tobytes() != config:
        raise ValidationError(path, f"expected {config!r} after the offsets; found other bytes.", REBUILD)
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if offsets[0] != head_bytes or falls.size:
        row = int(falls[0]) if falls.size else 0
        raise ValidationError(path, f"item {row:,}: its offsets {offsets[row : row + 2].tolist()} are wrong.", REBUILD)
    if offsets[-1] != content.size:
        raise ValidationError(
            path, f"expected {offsets[-1]:,} bytes, as its offsets say; found {content.size:,}.", REBUILD
        )
    return content, offsets


def refuse_large_files(file_bytes: int, name: str) -> str | None:
    """Says why files of that many bytes cannot have 32-bit offsets, or None."""
    if file_bytes <= FILE_BYTES_MAX:
        return None
    return f"files of {name} must be under 4 GiB, as their offsets have 32 bits; {file_bytes:,} bytes are asked for"


def _head_bytes(n_items: int, config: bytes) -> int:
    return 4 + 4 * (n_items + 1) + len(config)
