"""Opens Parquet files so that damage is an error: pyarrow checks the checksums of pages only on request, and ends the
process over some damaged footers."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill_reader.parquet_pages import pages_of
from tokenmill_reader.regular_files import open_regular
from tokenmill_reader.thrift import structs_in

_VALUES_MIN = 10_000_000  # so many may be in any file: 80 MB
_VALUES_PER_BYTE_MAX = 100
_CODECS = range(8)


def parquet_file(source: Any, **options: Any) -> Any:
    """The pyarrow.parquet.ParquetFile of a path or a file object. Raises OSError for what is no regular file and, while it is
    read, for a wrong checksum, and pyarrow.ArrowInvalid for a damaged file."""
    import pyarrow.parquet as pq

    _expect_regular(source)
    with _checked_names():
        file = pq.ParquetFile(source, page_checksum_verification=True, **options)
    with open(source, "rb") if isinstance(source, (str, Path)) else nullcontext(source) as opened:  # noqa: PTH123
        _check_chunks(opened, file.metadata)
    return file


def read_table(path: Path, **options: Any) -> pa.Table:
    """Reads a table as pyarrow.parquet.read_table does. Raises as `parquet_file` does."""
    import pyarrow.parquet as pq

    _expect_regular(path)
    with _checked_names():
        metadata = pq.read_metadata(path)
        refuse_many(path, metadata.num_rows * metadata.num_columns)
        table = pq.read_table(path, page_checksum_verification=True, **options)
        _ = table.column_names  # pyarrow decodes them when they are asked for
    return table


def refuse_many(path: Path, n_values: int) -> None:
    """Raises pyarrow.ArrowInvalid for many more values than a file of this size has: a kilobyte can hold a billion equal ones."""
    n_bytes = path.stat().st_size
    if n_values > _VALUES_MIN + _VALUES_PER_BYTE_MAX * n_bytes:
        raise pa.ArrowInvalid(f"it would have {n_values:,} values in {n_bytes:,} bytes, and they were not loaded")


def n_list_values(path: Path) -> int:
    """The number of values in all lists of a file. Raises as `parquet_file` does."""
    with parquet_file(path) as file, path.open("rb") as pages:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
        return sum(page.n_values for chunk in chunks for page in pages_of(pages, chunk) if not page.is_dictionary)


@contextmanager
def _checked_names() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not UTF-8") from None
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "pyarrow opens no file in a folder whose name is not UTF-8") from None


def _check_chunks(file: Any, metadata: Any) -> None:
    """Raises pyarrow.ArrowInvalid for a codec or size statistics of a column chunk for which pyarrow 26.0.1 raises a C++ exception,
    which nothing catches. The fields are those of github.com/apache/parquet-format, parquet.thrift."""
    end = file.seek(0, os.SEEK_END)
    file.seek(end - 8)
    n_footer = int.from_bytes(file.read(4), "little")
    file.seek(end - 8 - n_footer)
    columns = [metadata.schema.column(j) for j in range(metadata.num_columns)]
    try:
        is_right = all(
            chunk.get(3, {}).get(4, 0) in _CODECS and _fit(chunk.get(3, {}).get(16) or {}, column)
            for group in structs_in(io.BytesIO(file.read(n_footer)), 4)
            for chunk, column in zip(group.get(1, ()), columns)
        )
    except (EOFError, ValueError, AttributeError, TypeError):
        is_right = False
    if not is_right:
        raise pa.ArrowInvalid("a codec or the size statistics in the footer are damaged")


def _fit(sizes: dict[int, Any], column: Any) -> bool:
    levels = ((2, column.max_repetition_level), (3, column.max_definition_level))
    are_histograms = all(len(sizes.get(field) or ()) in (0, level_max + 1) for field, level_max in levels)
    return are_histograms and (1 not in sizes or column.physical_type == "BYTE_ARRAY")


def _expect_regular(source: Any) -> None:
    """pyarrow opens a FIFO, and then waits for ever."""
    if isinstance(source, (str, Path)):
        os.close(open_regular(source))
