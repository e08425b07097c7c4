"""The bytes of .parquet pages that a reader must load at once, from the page headers.

pyarrow tells only the size of a column chunk, which contains pages. That bound is too coarse: pyarrow by default writes 11,840
English documents as one chunk of 64.1 MB with pages of at most 5.9 MB, and a row group of its default 1,048,576 rows takes
gigabytes. With run.memory_mb_max 4096 and two workers (160 MB a page), a bound on chunks would refuse such a file from 30,000
documents on. A chunk's average page size does not help: one page of a few long documents may be in a chunk of short ones.
"""

from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import pyarrow as pa

from tokenmill.corpus.limits import HELD_OF_A_BLOCK, Limits
from tokenmill.corpus.repetition_levels import RowLengths
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard
from tokenmill_reader.parquet_pages import Page, pages_of

_VALUE_BYTES = 16  # what a list's element takes in memory in addition to its text: levels, offset and index
_DELTA = 7  # the encoding DELTA_BYTE_ARRAY: values repeat the beginning of the one before
_DELTAS = (6, _DELTA)  # with DELTA_LENGTH_BYTE_ARRAY, encodings whose lengths are decoded for a whole page
_SMALLER_PAGES = "write the file with smaller pages or documents"


class AtOnce(NamedTuple):
    """How to read a file: `n_rows` at once, and the columns of these paths as dictionaries, which stay as small as in the file."""

    n_rows: int
    dictionaries: list[str]


class _Chunk(NamedTuple):
    """A column chunk. `longest`: the largest possible value in bytes, if values may be longer than their share of a page; else 0.
    `row_values`: the most values of a row. `level_max`: the largest repetition level; 0 outside of lists."""

    path: str
    compression: str
    pages: list[Page]
    dictionary_bytes: int
    longest: int
    n_values: int
    row_values: int
    level_max: int

    @property
    def row_bytes(self) -> int:
        """The most bytes that a row decodes to, besides those of its pages."""
        return self.row_values * (self.longest + _VALUE_BYTES * (self.level_max > 0))


def rows_within(
    shard: Shard, metadata: Any, groups: Sequence[int], names: Sequence[str], limits: Limits, n_rows: int
) -> AtOnce:
    """How many rows of a .parquet file, up to `n_rows`, can be read at once: any such run of rows decodes to at most
    `limits.block_bytes_max` bytes, as do the pages with some of them. Raises CorpusError if a single page or row has more.

    The sizes come from the pages' own headers (github.com/apache/parquet-format, PageHeader), because averages mislead. A value of
    a dictionary, or one that repeats the beginning of the value before, may be as long as its page. The rows of lists are counted
    in the pages where a column chunk may be too large.
    """
    assert limits.block_bytes_max is not None
    block_bytes_max = limits.block_bytes_max
    dictionaries: dict[str, None] = {}
    first_row = sum(metadata.row_group(i).num_rows for i in range(groups[0] if groups else 0))
    with open_shard(shard) as file:
        for i in groups:
            where = f"{shard.name}, row group {i}"
            group = metadata.row_group(i)
            chunks = []
            for j in range(group.num_columns):
                leaf = metadata.schema.column(j)
                if is_of(leaf.path, names):
                    chunks.append(_chunk(file, group.column(j), leaf, where, first_row, limits))
            lists = [chunk for chunk in chunks if chunk.level_max]
            others = [chunk for chunk in chunks if not chunk.level_max]
            row_bytes = max((chunk.row_bytes for chunk in others), default=0)
            if sum(chunk.row_bytes + sum(page.n_bytes for page in chunk.pages) for chunk in lists) > block_bytes_max:
                lists = [_with_rows(file, chunk) for chunk in lists]
                if sum(chunk.row_bytes for chunk in lists) > block_bytes_max:
                    kept = [
                        chunk.path
                        for chunk in lists
                        if chunk.dictionary_bytes and _can_stay_dictionary(chunk.path, metadata, groups)
                    ]
                    dictionaries |= dict.fromkeys(kept)
                    lists = [chunk._replace(longest=0) if chunk.path in kept else chunk for chunk in lists]
                of_lists = sum(chunk.row_bytes for chunk in lists)
                limits.check_block(of_lists, f"{where}: the longest row, decoded,", "cut the document")
                row_bytes = max(row_bytes, of_lists)
            n_rows = min(n_rows, block_bytes_max // max(row_bytes, 1))
            pages = [chunk.pages for chunk in [*lists, *others]]
            while n_rows > 1 and sum(_most_bytes(some, n_rows) for some in pages) > block_bytes_max:
                n_rows = (n_rows + 1) // 2
            n_held = sum(_most_bytes(some, 1) for some in pages) + sum(chunk.dictionary_bytes for chunk in chunks)
            which = "what may have to be loaded for one row"
            limits.check_block(n_held, f"{where}: {which}", _SMALLER_PAGES, HELD_OF_A_BLOCK)
            first_row += group.num_rows
    return AtOnce(n_rows, list(dictionaries))


def _chunk(file: IO[bytes], column: Any, leaf: Any, where: str, row: int, limits: Limits) -> _Chunk:
    """Reads a column chunk's pages; of lists, all values may be in one row. `row`: its first row. Raises CorpusError for a page
    that is too large."""
    all_pages = list(pages_of(file, column))
    path, level_max = leaf.path, leaf.max_repetition_level  # a damaged chunk may have another path
    for k, page in enumerate(all_pages):
        which = f"page {k} of column {path!r}" if level_max else f"the page of column {path!r} from row {row} on"
        is_decoded = page.is_dictionary or page.encoding in _DELTAS
        n_bytes = max(page.n_bytes, 4 * page.n_values * is_decoded)  # the lengths of all values
        limits.check_block(n_bytes, f"{where}: {which}", _SMALLER_PAGES)
        row += page.n_rows
    pages = [page for page in all_pages if not page.is_dictionary]
    dictionary_bytes = max((page.n_bytes for page in all_pages if page.is_dictionary), default=0)
    longest = 0
    if leaf.physical_type == "BYTE_ARRAY":
        longest = max([dictionary_bytes, *(page.n_bytes for page in pages if page.encoding == _DELTA)])
    n_values = sum(page.n_values for page in pages)
    row_values = n_values if level_max else 1
    return _Chunk(path, column.compression, pages, dictionary_bytes, longest, n_values, row_values, level_max)


def _can_stay_dictionary(path: str, metadata: Any, groups: Sequence[int]) -> bool:
    """Whether pyarrow 26 can read a column as a dictionary: byte arrays in supported encodings."""
    of_path = [j for j in range(metadata.num_columns) if metadata.schema.column(j).path == path]
    columns = [metadata.row_group(i).column(j) for i in groups for j in of_path]
    deltas = {"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"}
    return all(one.physical_type == "BYTE_ARRAY" and not deltas & set(one.encodings) for one in columns)


def _with_rows(file: IO[bytes], chunk: _Chunk) -> _Chunk:
    """The column chunk with the rows that begin in each page of it, and the values of its longest row."""
    lengths = RowLengths(chunk.level_max)
    pages = []
    for page in chunk.pages:
        n_rows, begins_inside = lengths.add(_levels(file, page, chunk.compression), page.n_values)
        pages.append(page._replace(n_rows=n_rows, begins_inside=begins_inside))
    return chunk._replace(pages=pages, row_values=lengths.longest)


def _levels(file: IO[bytes], page: Page, compression: str) -> bytes:
    """The repetition levels of a page; empty if they cannot be read."""
    file.seek(page.start)
    if page.n_levels is not None:
        return file.read(max(page.n_levels, 0))
    data = file.read(page.n_compressed)
    if compression != "UNCOMPRESSED":
        codec = "lz4_raw" if compression == "LZ4" else compression.lower()
        try:
            data = pa.decompress(data, page.n_uncompressed, codec, asbytes=True)
        except (OSError, ValueError, pa.ArrowException):
            return b""
    return data[4 : 4 + int.from_bytes(data[:4], "little")]


def is_of(path: str, names: Sequence[str]) -> bool:
    """Whether a column chunk's path is that of one of these columns, or of a field inside one.

    >>> is_of("messages.list.element.role", ["messages"]), is_of("text", ["texts"])
    (True, False)
    """
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _most_bytes(pages: Sequence[Page], n_rows: int) -> int:
    """The largest size, over all runs of `n_rows` consecutive rows, of the pages that contain some of them."""
    most = held = rows = last = 0
    for first, page in enumerate(pages):
        # The run begins at the last row of this page. `rows` counts the rows of the pages after it.
        while last < len(pages) and (
            last <= first or rows < n_rows - 1 or (rows == n_rows - 1 and pages[last].begins_inside)
        ):
            held += pages[last].n_bytes
            rows += pages[last].n_rows if last > first else 0
            last += 1
        most = max(most, held)
        held -= page.n_bytes
        rows -= pages[first + 1].n_rows if first + 1 < last else 0
    return most
