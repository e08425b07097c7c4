"""Reads the headers of the pages in a Parquet file, which say what the file's own footer may not say rightly."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from tokenmill_reader.thrift import read_struct

_HEADER_BYTES = 1 << 12  # bytes read for a page header; nearly always enough
_HEADER_BYTES_MAX = 1 << 26  # a header contains the page's least and largest value
_RLE = 3


class Page(NamedTuple):
    """A page, as its header tells it. `n_bytes`: the larger of its sizes, compressed or not. `begins_inside`: whether its first
    value belongs to a row before it. `n_levels`: the bytes of uncompressed repetition levels in front; None: they are compressed;
    -1: unreadable."""

    n_bytes: int
    n_values: int
    n_rows: int
    begins_inside: bool
    is_dictionary: bool
    encoding: int
    start: int
    n_compressed: int
    n_uncompressed: int
    n_levels: int | None


def pages_of(file: IO[bytes], column: Any) -> Iterator[Page]:
    """The pages of a column chunk, as if each value were a row. A malformed header ends the pages, because reading the file will
    report what is wrong."""
    start = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        start = min(start, column.dictionary_page_offset)
    end = start + column.total_compressed_size
    while start < end:
        found = _page_header(file, start)
        if found is None:
            return
        fields, n_header = found
        n_bytes, n_compressed = fields.get(2), fields.get(3)
        if not isinstance(n_bytes, int) or not isinstance(n_compressed, int) or n_compressed < 0:
            return
        first, dictionary, second = (fields[id] if isinstance(fields.get(id), dict) else {} for id in (5, 7, 8))
        n_values = (first or dictionary or second).get(1, 0)
        encoding, n_levels = first.get(2, 0), None if first.get(4) == _RLE else -1
        if second:
            encoding, n_levels = second.get(4, 0), second.get(6, 0)
        if not (
            isinstance(n_values, int) and isinstance(encoding, int) and (n_levels is None or isinstance(n_levels, int))
        ):
            return
        if n_values < 0:
            return
        n_rows = 0 if dictionary else n_values
        sizes = (n_compressed, n_bytes, n_levels)
        start += n_header
        yield Page(max(n_bytes, n_compressed), n_values, n_rows, False, bool(dictionary), encoding, start, *sizes)
        start += n_compressed


def _page_header(file: IO[bytes], start: int) -> tuple[dict[int, Any], int] | None:
    n_bytes = _HEADER_BYTES
    while n_bytes <= _HEADER_BYTES_MAX:
        file.seek(start)
        data = io.BytesIO(file.read(n_bytes))
        try:
            return read_struct(data), data.tell()
        except EOFError:
            n_bytes *= 16
        except ValueError:
            return None
    return None
