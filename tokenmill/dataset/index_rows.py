"""Reads the document index of a dataset in parts, and writes it again for documents that have other numbers of tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.dataset.document_index import index_writer
from tokenmill.errors import ValidationError
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import naming


def index_rows(path: Path, wanted: range) -> pa.Table:
    """These rows of a document index. Raises ValidationError."""
    with _opened(path) as file:
        ends = accumulate((file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)), initial=0)
        bounds = list(pairwise(ends))
        groups = [i for i, (start, end) in enumerate(bounds) if start < wanted.stop and wanted.start < end]
        table: pa.Table = file.read_row_groups(groups)
        return table.slice(wanted.start - (bounds[groups[0]][0] if groups else 0), len(wanted))


def write_with_lengths(old: Path, new: Path, lengths: npt.NDArray[np.int64]) -> None:
    """Writes a document index again. `lengths`: the numbers of tokens that its documents have now. Raises ValidationError."""
    first_tokens = np.cumsum(lengths) - lengths
    n_rows = 0
    with _opened(old) as file, naming(new), index_writer(new, file.schema_arrow) as writer:
        for i in range(file.num_row_groups):
            rows = file.read_row_group(i)
            group = slice(n_rows, n_rows := n_rows + len(rows))
            writer.write_table(
                with_column(with_column(rows, "n_tokens", lengths[group]), "first_token", first_tokens[group])
            )


def with_column(rows: pa.Table, name: str, values: npt.NDArray[np.int64]) -> pa.Table:
    """The rows with other values in one of their columns."""
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), pa.array(values, pa.int64()))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Opens an index. Raises ValidationError for a file that is missing or cannot be read."""
    try:
        with parquet_file(path) as file:
            yield file
    except FileNotFoundError:
        raise ValidationError(path, "missing.", "Copy the tables of the dataset beside it.") from None
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise ValidationError(
            path, f"cannot be read: {error}.", "Copy the tables of the dataset beside it again."
        ) from None
