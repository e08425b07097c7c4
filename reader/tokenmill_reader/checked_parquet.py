"""Opens Parquet files so that the checksums of their pages are checked, where they have any. pyarrow reads on without that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill_reader.regular_files import open_regular


def parquet_file(source: Any, **options: Any) -> Any:
    """The pyarrow.parquet.ParquetFile of a path or a file object. Raises OSError for a path that is no regular file, and
    pyarrow.ArrowInvalid for a damaged file. A page whose checksum is wrong raises OSError when it is read."""
    import pyarrow.parquet as pq

    _expect_regular(source)
    with _checked_names():
        return pq.ParquetFile(source, page_checksum_verification=True, **options)


def read_table(path: Path, **options: Any) -> pa.Table:
    """Reads a table as pyarrow.parquet.read_table does. Raises OSError for a path that is no regular file, and for a wrong
    checksum, and pyarrow.ArrowInvalid for a damaged file."""
    import pyarrow.parquet as pq

    _expect_regular(path)
    with _checked_names():
        table = pq.read_table(path, page_checksum_verification=True, **options)
        _ = table.column_names  # pyarrow decodes them when they are asked for
    return table


@contextmanager
def _checked_names() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not UTF-8") from None


def _expect_regular(source: Any) -> None:
    """pyarrow opens a FIFO, and then waits for ever."""
    if isinstance(source, (str, Path)):
        os.close(open_regular(source))
