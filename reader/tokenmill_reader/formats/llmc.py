"""llmc: `.bin` of uint16 ids behind a header of 256 int32, which llm.c and modded-nanogpt read.

The layout is that of `write_datafile` in dev/data/data_common.py of karpathy/llm.c: a magic number, a version, the number of
ids, then zeros. Where documents end is not in such a file; the file beside says it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.arrays import map_file
from tokenmill_reader.formats.items import INT32_MAX, REBUILD, Flat, Shape
from tokenmill_reader.formats.nanogpt import items_of

if TYPE_CHECKING:
    import numpy.typing as npt

DATA = ".bin"
HEADER_BYTES = 1024

_MAGIC = 20240520
_VERSION = 1


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part. Raises ValidationError for files that are not as they should be."""
    path = folder / f"{stem}{DATA}"
    content = map_file(path)
    n_ids = max(content.size - HEADER_BYTES, 0) // 2
    if content.size != HEADER_BYTES + 2 * n_ids or n_ids > INT32_MAX:
        raise ValidationError(
            path, f"expected a header of {HEADER_BYTES:,} bytes and ids of 2; found {content.size:,} bytes.", REBUILD
        )
    header, expected = content[:HEADER_BYTES].view("<i4"), header_of(n_ids)
    if not np.array_equal(header, expected):
        at = int(np.argmax(header != expected))
        raise ValidationError(path, f"header: expected {expected[at]} as value {at}; found {header[at]}.", REBUILD)
    return [items_of(content[HEADER_BYTES:].view("<u2"), path, stem, shape)]


def header_of(n_ids: int) -> npt.NDArray[Any]:
    """The 256 values before so many ids, int32."""
    header = np.zeros(HEADER_BYTES // 4, "<i4")
    header[:3] = _MAGIC, _VERSION, n_ids
    return header
