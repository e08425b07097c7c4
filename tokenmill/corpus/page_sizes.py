"""The bytes of .parquet pages that a reader must load at once, from the page headers.

pyarrow tells only the size of a column chunk, which contains pages. That bound is too coarse: pyarrow by default writes 11,840
English documents as one chunk of 64.1 MB with pages of at most 5.9 MB, and a row group of its default 1,048,576 rows takes
gigabytes. With run.memory_mb_max 4096 and two workers (160 MB a page), a bound on chunks would refuse such a file from 30,000
documents on. A chunk's average page size does not help: one page of a few long documents may be in a chunk of short ones.
"""

import io
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from tokenmill.corpus.limits import Limits
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.thrift import read_struct

_HEADER_BYTES = 1 << 12  # bytes read for a page header; nearly always enough
_HEADER_BYTES_MAX = 1 << 26  # a header contains the page's least and largest value


class _Page(NamedTuple):
    n_bytes: int
    n_rows: int
    is_dictionary: bool


def rows_within(
    shard: Shard, metadata: Any, groups: Sequence[int], names: Sequence[str], limits: Limits, n_rows: int
) -> int:
    """The number of rows of a .parquet file, up to `n_rows`, that can be read at once: for any such run of rows, the pages with
    some of them have at most `limits.block_bytes_max` bytes. Raises CorpusError if a single page has more.

    The sizes come from the pages' own headers (github.com/apache/parquet-format, PageHeader), because averages mislead. Where a
    page of lists does not say how many rows it has, one is assumed, so that fewer rows are read at once than could be.
    """
    assert limits.block_bytes_max is not None
    first_row = sum(metadata.row_group(i).num_rows for i in range(groups[0] if groups else 0))
    with open_shard(shard) as file:
        for i in groups:
            group = metadata.row_group(i)
            chunks: list[list[_Page]] = []
            for j in range(group.num_columns):
                column, path = group.column(j), metadata.schema.column(j).path  # a damaged chunk may have another path
                if not is_of(path, names):
                    continue
                is_list = metadata.schema.column(j).max_repetition_level > 0
                pages = list(_pages(file, column, is_list))
                row = first_row
                for k, page in enumerate(pages):
                    which = f"page {k} of column {path!r}"
                    if not is_list:
                        which = f"the page of column {path!r} from row {row} on"
                    where = f"{shard.name}, row group {i}: {which}"
                    limits.check_block(page.n_bytes, where, "write the file with smaller pages or documents")
                    row += page.n_rows
                    if page.is_dictionary:
                        n_values = -(-column.num_values // max(group.num_rows, 1))  # of a row, on average
                        n_rows = max(1, min(n_rows, limits.block_bytes_max // max(page.n_bytes * n_values, 1)))
                chunks.append([page for page in pages if not page.is_dictionary])
            while n_rows > 1 and sum(_most_bytes(pages, n_rows) for pages in chunks) > limits.block_bytes_max:
                n_rows = (n_rows + 1) // 2
            first_row += group.num_rows
    return n_rows


def is_of(path: str, names: Sequence[str]) -> bool:
    """Whether a column chunk's path is that of one of these columns, or of a field inside one.

    >>> is_of("messages.list.element.role", ["messages"]), is_of("text", ["texts"])
    (True, False)
    """
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _most_bytes(pages: Sequence[_Page], n_rows: int) -> int:
    """The largest size, over all runs of `n_rows` consecutive rows, of the pages that contain some of them."""
    most = held = rows = last = 0
    for first, page in enumerate(pages):
        # The run begins at the last row of this page. `rows` counts the rows of the pages after it.
        while last < len(pages) and (last <= first or rows < n_rows - 1):
            held += pages[last].n_bytes
            rows += pages[last].n_rows if last > first else 0
            last += 1
        most = max(most, held)
        held -= page.n_bytes
        rows -= pages[first + 1].n_rows if first + 1 < last else 0
    return most


def _pages(file: IO[bytes], column: Any, is_list: bool) -> Iterator[_Page]:
    """The pages of a column chunk. Of lists (`is_list`), a data page of version 1 tells its values but not its rows. A malformed
    header ends the pages, because reading the file will report what is wrong."""
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
        kinds = [fields[id] for id in (5, 7, 8) if isinstance(fields.get(id), dict)]
        n_rows = kinds[0].get(1, 0) if kinds else 0
        if is_list:
            n_rows = fields[8].get(3, 1) if isinstance(fields.get(8), dict) else 1
        if not isinstance(n_bytes, int) or not isinstance(n_compressed, int) or n_compressed < 0:
            return
        if not isinstance(n_rows, int):
            return
        yield _Page(max(n_bytes, n_compressed), 0 if 7 in fields else n_rows, 7 in fields)
        start += n_header + n_compressed


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
