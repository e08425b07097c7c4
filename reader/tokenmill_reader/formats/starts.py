"""Reads the file beside a part where there is one, which takes pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill_reader.errors import need_pyarrow
from tokenmill_reader.formats.items import STARTS_SUFFIX, Lists, Shape

if TYPE_CHECKING:
    import numpy.typing as npt


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
