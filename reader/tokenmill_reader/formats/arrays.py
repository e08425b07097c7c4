"""Maps files into memory as arrays, after checking that they are files of such values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.items import REBUILD
from tokenmill_reader.regular_files import open_regular

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Mask


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of a file, mapped into memory. Raises ValidationError if it is missing or no file."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
                return np.empty(0, np.uint8)
            return np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)
    except FileNotFoundError:
        raise ValidationError(path, "is missing.", REBUILD) from None


def values(found: npt.NDArray[np.uint8], type: npt.DTypeLike, start: int, n_values: int) -> npt.NDArray[Any]:
    """Values in a mapped file that is known to be long enough, without a copy."""
    return found[start : start + n_values * np.dtype(type).itemsize].view(type)


def whole_values(path: Path, type: npt.DTypeLike) -> npt.NDArray[Any]:
    """A file of values alone, mapped into memory. Raises ValidationError if its size is not a whole number of them."""
    content = map_file(path)
    if content.size % np.dtype(type).itemsize:
        raise ValidationError(
            path, f"expected values of {np.dtype(type).itemsize} bytes each; found {content.size:,} bytes.", REBUILD
        )
    return content.view(type)


def read_mask(path: Path, data: Path, n_ids: int) -> Mask:
    """A file with the loss mask of the ids in the file `data`, a byte for each. Raises ValidationError for another number of bytes,
    or for one that is neither 0 nor 1."""
    mask = map_file(path)
    if mask.size != n_ids:
        raise ValidationError(
            path, f"expected {n_ids:,} bytes, one for each id of {data.name}; found {mask.size:,}.", REBUILD
        )
    if (mask > 1).any():
        position = int(np.argmax(mask > 1))
        raise ValidationError(path, f"byte {position:,}: loss_mask: expected 0 or 1; found {mask[position]}.", REBUILD)
    return mask.view(np.int8)
