"""Checks Parquet files of token ids before they are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.errors import ValidationError
from tokenmill_reader.parquet_pages import pages_of

_SURPLUS_MAX = 1_000_000  # ids or rows beyond those of the manifest, which are read


def check_counts(path: Path, n_documents: int, n_tokens: int) -> None:
    """Raises ValidationError if a dataset file has many more rows or ids than the manifest says, before any of them is decoded: a
    kilobyte can hold a billion equal ids. The numbers are those of the page headers, which pyarrow goes by. Checks of the rows find
    and name a few too many."""
    with reading(path), parquet_file(path) as file, path.open("rb") as pages:
        n_values_of: dict[str, int] = {}
        for j in range(file.metadata.num_columns):
            path_in_file = file.metadata.schema.column(j).path
            for i in range(file.num_row_groups if path_in_file.endswith(".list.element") else 0):
                of_chunk = pages_of(pages, file.metadata.row_group(i).column(j))
                n_values = sum(page.n_values for page in of_chunk if not page.is_dictionary)
                n_values_of[path_in_file] = n_values_of.get(path_in_file, 0) + n_values
        n_rows, n_ids = file.metadata.num_rows, max(n_values_of.values(), default=0)
    if (
        n_rows > n_documents + _SURPLUS_MAX or n_ids > n_tokens + n_documents + _SURPLUS_MAX
    ):  # an empty list counts as a value
        raise ValidationError(
            path,
            f"expected {n_documents:,} documents with {n_tokens:,} ids, as the manifest says; found {n_rows:,} with "
            f"{n_ids:,}, which were not loaded.",
            "Delete the dataset and build it again.",
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of reading in the block into ValidationError with the path."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(
            path, f"cannot be read: {str(error).rstrip('.')}.", "Delete the dataset and build it again."
        ) from None
