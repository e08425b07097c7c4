"""nanogpt: one `.bin` of uint16 ids for each split, without a header.

It is what data/openwebtext/prepare.py of karpathy/nanoGPT writes. Where documents end is not in such a file; the file beside
says it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.errors import ValidationError, need_pyarrow
from tokenmill_reader.formats.arrays import whole_values
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Flat, Lists, Shape, check_segments

if TYPE_CHECKING:
    import numpy.typing as npt

DATA = ".bin"


def read_flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    """The items of a part. Raises ValidationError for files that are not as they should be."""
    path = folder / f"{stem}{DATA}"
    return [items_of(whole_values(path, "<u2"), path, stem, shape)]


def items_of(ids: npt.NDArray[Any], path: Path, stem: str, shape: Shape) -> Flat:
    """The items whose ids are in the file `path`, which does not say where they end: the file beside does. Raises ValidationError
    if that file does not fit."""
    beside = path.parent / f"{stem}{STARTS_SUFFIX}"
    lengths, starts = read_lengths_and_starts(path.parent, stem, shape)
    if (lengths < 0).any():
        raise ValidationError(beside, f"item {int(np.argmax(lengths < 0)):,}: its length is negative.", REBUILD)
    offsets = np.append(np.int64(0), np.cumsum(lengths))
    if offsets[-1] != ids.size:
        raise ValidationError(
            path, f"expected {offsets[-1]:,} ids, as {beside.name} says; found {ids.size:,}.", REBUILD
        )
    found = Flat(ids, offsets, starts)
    check_segments(found, shape, path)
    return found


def read_starts(folder: Path, stem: str, shape: Shape) -> Lists | None:
    """The starts of sequences; None for documents, beside which there is no file. Raises ValidationError, and ParamsError without
    pyarrow."""
    return None if shape.length is None else read_lengths_and_starts(folder, stem, shape, with_lengths=False)[1]


def read_lengths_and_starts(
    folder: Path, stem: str, shape: Shape, with_lengths: bool = True
) -> tuple[npt.NDArray[np.int64], Lists | None]:
    """The number of tokens of each item (empty without `with_lengths`), and the starts of sequences. Raises as `read_starts`."""
    need_pyarrow(folder / f"{stem}{STARTS_SUFFIX}")
    from tokenmill_reader.formats.sidecar import read_sidecar

    return read_sidecar(folder, stem, shape, with_lengths)
