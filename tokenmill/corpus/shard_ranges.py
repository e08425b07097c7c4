"""Finds the ranges that a large shard is cut into: whole lines of a .jsonl file, records of a .csv file, row groups of a .parquet
file."""

import hashlib
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.record_ends import RecordEnds, header_in
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
    file: BinaryIO,
    n_bytes: int,
    unit_bytes_max: int,
    take: Callable[[bytes], None],
    stopped: Callable[[], bool],
    separator: bytes,
) -> Iterator[tuple[ShardRange, str]]:
    """The ranges of a file of lines, each with the sha256 of its bytes. `take`: is called with all bytes of the file. `separator`:
    that of a file of records; empty for other files. The digest of a range of records covers the header, too."""
    start = first_row = 0
    first_line = 1
    header = b""
    if separator:
        try:
            header = header_in(_texts(file, 0, n_bytes, stopped), separator)
        except ValueError:
            file.seek(0)
            return  # reading the documents will report the error
    while start < n_bytes:
        half = min(max(start + unit_bytes_max // 2, len(BOM_UTF8 + header)), n_bytes)  # the first part has the header
        end = _end_of_range(file, start, half, n_bytes, unit_bytes_max, separator, stopped)
        digest = hashlib.sha256(header if start else b"")
        counter = RecordEnds(separator) if separator else _LineCounter()
        file.seek(start)
        for i, block in enumerate(blocks(file, end - start, stopped)):
            digest.update(block)
            take(block)
            counter.add(block.removeprefix(BOM_UTF8) if i == start == 0 else block)
        counter.end()
        yield ShardRange(start, end, end - start, first_row, first_line), digest.hexdigest()
        n_headers = 1 if header and not start else 0
        start, first_row, first_line = end, first_row + counter.n_rows - n_headers, first_line + counter.n_lines


def _texts(file: BinaryIO, start: int, n_bytes: int, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """The next `n_bytes` from `start` on in blocks, without the byte order mark at the file's begin."""
    file.seek(start)
    for i, block in enumerate(blocks(file, n_bytes, stopped)):
        yield block.removeprefix(BOM_UTF8) if i == start == 0 else block


class _LineCounter:
    """Counts lines, and those that are not blank, in bytes that come in blocks."""

    def __init__(self) -> None:
        self.n_lines = self.n_rows = 0
        self._open = b""  # stands for the unfinished line: nothing, a blank or another byte

    def add(self, block: bytes) -> None:
        """Takes the next bytes."""
        *lines, last = (self._open + block).split(b"\n")
        self.n_lines += len(lines)
        self.n_rows += sum(bool(line.strip()) for line in lines)
        self._open = last.strip()[:1] or last[:1]

    def end(self) -> None:
        """Ends the unfinished line, if there is one."""
        if self._open:
            self.add(b"\n")


def _end_of_range(
    file: BinaryIO,
    start: int,
    half: int,
    n_bytes: int,
    unit_bytes_max: int,
    separator: bytes,
    stopped: Callable[[], bool],
) -> int:
    """The end of a part, after a line behind `half`: at most `unit_bytes_max` from its start, unless a line is longer than half of
    that."""
    if n_bytes - start <= unit_bytes_max:
        return n_bytes
    ends = RecordEnds(separator)
    if separator:
        for block in _texts(file, start, half - start, stopped):
            ends.add(block)
    file.seek(half)
    end = half
    pieces = _records(file, ends, stopped) if separator else _lines(file, stopped)
    for piece, is_end in pieces:
        end += len(piece)
        if is_end:
            break
    line_bytes = checksum = 0
    for piece, is_end in pieces:
        line_bytes, checksum = line_bytes + len(piece), zlib.crc32(piece, checksum)
        if end + line_bytes - start > unit_bytes_max:
            break
        if not is_end and end + line_bytes < n_bytes:
            continue
        end += line_bytes
        if ends_chunk(checksum, line_bytes, unit_bytes_max):
            break
        line_bytes = checksum = 0
    return end


def _lines(file: BinaryIO, stopped: Callable[[], bool]) -> Iterator[tuple[bytes, bool]]:
    """The pieces of lines up to the end of a file, each with whether its line ends."""
    while piece := file.readline(_READ_BYTES):
        if stopped():
            raise Stopped
        yield piece, piece.endswith(b"\n")


def _records(file: BinaryIO, ends: RecordEnds, stopped: Callable[[], bool]) -> Iterator[tuple[bytes, bool]]:
    """What `_lines` gives, for records."""
    for block in blocks(file, None, stopped):
        start = 0
        for end in ends.add(block).tolist():
            yield block[start:end], True
            start = end
        if start < len(block):
            yield block[start:], False


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
