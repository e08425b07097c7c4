"""Finds the ranges that a large shard is cut into: whole lines of a .jsonl file, row groups of a .parquet file."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.shards import Shard, ShardRange

_READ_BYTES = 1 << 20


class Stopped(Exception):
    """Raised when the build ends while a file is being read."""


def blocks(file: BinaryIO, n_bytes: int | None, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """The next `n_bytes` of a file in blocks; None: to its end."""
    while n_bytes != 0 and (block := file.read(_READ_BYTES if n_bytes is None else min(n_bytes, _READ_BYTES))):
        if stopped():
            raise Stopped
        yield block
        n_bytes = None if n_bytes is None else n_bytes - len(block)


def line_ranges(
    file: BinaryIO, n_bytes: int, unit_bytes_max: int, take: Callable[[bytes], None], stopped: Callable[[], bool]
) -> Iterator[tuple[ShardRange, str]]:
    """The ranges of a file of lines, each with the sha256 of its bytes. `take`: is called with all bytes of the file."""
    start = first_row = 0
    first_line = 1
    while start < n_bytes:
        end = _end_of_range(file, start, n_bytes, unit_bytes_max)
        digest, lines = hashlib.sha256(), _LineCounter()
        file.seek(start)
        for block in blocks(file, end - start, stopped):
            digest.update(block)
            take(block)
            lines.add(block)
        lines.end()
        yield ShardRange(start, end, end - start, first_row, first_line), digest.hexdigest()
        start, first_row, first_line = end, first_row + lines.n_lines - lines.n_blank, first_line + lines.n_lines


class _LineCounter:
    """Counts lines and blank lines in bytes that come in blocks."""

    def __init__(self) -> None:
        self.n_lines = self.n_blank = 0
        self._open = b""  # stands for the unfinished line: nothing, a blank or another byte

    def add(self, block: bytes) -> None:
        """Takes the next bytes."""
        *lines, last = (self._open + block).split(b"\n")
        self.n_lines += len(lines)
        self.n_blank += sum(not line.strip() for line in lines)
        self._open = last.strip()[:1] or last[:1]

    def end(self) -> None:
        """Ends the unfinished line, if there is one."""
        if self._open:
            self.add(b"\n")


def _end_of_range(file: BinaryIO, start: int, n_bytes: int, unit_bytes_max: int) -> int:
    """The end of a part, after a line: at most `unit_bytes_max` from its start, unless a line is longer than half of that."""
    if n_bytes - start <= unit_bytes_max:
        return n_bytes
    file.seek(start + unit_bytes_max // 2)
    while (piece := file.readline(_READ_BYTES)) and not piece.endswith(b"\n"):
        pass
    end = file.tell()
    line_bytes = checksum = 0
    while piece := file.readline(_READ_BYTES):
        line_bytes, checksum = line_bytes + len(piece), zlib.crc32(piece, checksum)
        if end + line_bytes - start > unit_bytes_max:
            break
        if not piece.endswith(b"\n") and end + line_bytes < n_bytes:
            continue
        end += line_bytes
        if ends_chunk(checksum, line_bytes, unit_bytes_max):
            break
        line_bytes = checksum = 0
    return end


def row_group_ranges(shard: Shard, unit_bytes_max: int) -> Iterator[ShardRange]:
    import pyarrow as pa

    try:
        metadata = read_metadata(shard)
    except pa.ArrowException:
        return  # reading the documents will report the error
    start = first_row = n_bytes = n_rows = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        group_bytes = sum(group.column(j).total_compressed_size for j in range(group.num_columns))
        if i > start and n_bytes + group_bytes > unit_bytes_max:
            yield ShardRange(start, i, n_bytes, first_row, 1)
            start, first_row, n_bytes, n_rows = i, first_row + n_rows, 0, 0
        n_bytes, n_rows = n_bytes + group_bytes, n_rows + group.num_rows
    yield ShardRange(start, metadata.num_row_groups, n_bytes, first_row, 1)


def ends_chunk(checksum: int, n_bytes: int, unit_bytes_max: int) -> bool:
    """True on average once per eighth of a unit. Of 100 units that are half full, 2 become full before it is true."""
    return checksum * unit_bytes_max < n_bytes << 35
