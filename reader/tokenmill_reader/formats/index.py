"""index: which tokens make each packed sequence, in place of the tokens; the documents are in the other formats' files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.errors import ValidationError

if TYPE_CHECKING:
    import numpy.typing as npt

PIECES = ("part", "row", "start", "n_tokens")
SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("sequence", *PIECES)])
"""A row for each piece of a document, in the order of the sequences. `sequence`: from 0 in each file. `part`, `row`: the file
part-NNNNN of the split in every other format, and the document's row in it. `start`, `n_tokens`: the tokens of that document."""


class IndexFile(NamedTuple):
    """A file of the index. `bounds`: the first piece of each sequence, and the end. `columns`: int64, a value for each piece, in
    the order of PIECES."""

    bounds: npt.NDArray[np.int64]
    columns: list[npt.NDArray[np.int64]]


def read_index_file(path: Path) -> IndexFile:
    """Reads a file whole. Raises ValidationError if it is no such file."""
    try:
        table = read_table(path, partitioning=None).combine_chunks()
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "Run `tokenmill build --force`.") from None
    if not table.schema.equals(SCHEMA):
        raise ValidationError(
            path, f"expected the columns {', '.join(SCHEMA.names)}, each int64; found {table.schema.names}."
        )
    sequence = table["sequence"].to_numpy()
    steps = np.diff(sequence, prepend=-1)
    if (len(sequence) and not ((steps == 0) | (steps == 1)).all()) or (len(sequence) and sequence[0] != 0):
        raise ValidationError(f"{path}: sequence", "expected numbers from 0 that rise by 1; found others.")
    bounds: npt.NDArray[np.int64] = np.append(np.flatnonzero(steps == 1), len(sequence))
    return IndexFile(bounds, [table[name].to_numpy() for name in PIECES])
