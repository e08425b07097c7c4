"""Counts the rows in the pages of lists of a .parquet file by their repetition levels: a row begins where the level is 0.

Page headers do not say it, or may lie. Levels are runs of one value and runs of packed bits (github.com/apache/parquet-format,
Encodings.md).
"""

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tokenmill_reader.thrift import read_varint

_PACKED_BYTES = 1 << 12  # unpacked at once

_Levels = tuple[int, npt.NDArray[np.int64] | bool]
"""A number of levels, and which of them are 0: all, none, or those at these indexes."""


class RowLengths:
    """Follows the rows through the pages of a column chunk. `longest`: the most values that a row has so far."""

    def __init__(self, level_max: int) -> None:
        self.longest: int = 0
        self._width = level_max.bit_length()
        self._n_held = 0  # values of the last row, which may continue in the next page

    def add(self, levels: bytes, n_values: int) -> tuple[int, bool]:
        """Takes the next page: gives the number of rows that begin in it, and whether its first value belongs to an earlier row.
        Values without a level, in a damaged page, count for the last row."""
        n_left, n_rows, is_inside = n_values, 0, True
        for n_run, zeros in _runs(levels, self._width):
            n = min(n_run, n_left)
            if isinstance(zeros, bool):
                first, last, n_found, between = 0, n - 1, n * zeros, int(zeros)
            else:
                zeros = zeros[zeros < n]
                n_found, between = len(zeros), int(np.diff(zeros).max(initial=0))
                first, last = (int(zeros[0]), int(zeros[-1])) if n_found else (0, 0)
            if n and n_left == n_values:
                is_inside = not n_found or first > 0
            if n_found:
                self.longest = max(self.longest, self._n_held + first, between)
                self._n_held = n - last
            else:
                self._n_held += n
            n_rows, n_left = n_rows + n_found, n_left - n
            if not n_left:
                break
        self._n_held += n_left
        self.longest = max(self.longest, self._n_held)
        return n_rows, is_inside


def _runs(levels: bytes, width: int) -> Iterator[_Levels]:
    data = io.BytesIO(levels)
    try:
        while data.tell() < len(levels):
            head = read_varint(data)
            if not head & 1:
                yield head >> 1, not any(data.read((width + 7) // 8))
                continue
            n_bytes = (head >> 1) * width
            while n_bytes and (some := data.read(min(n_bytes, _PACKED_BYTES * width))):
                n_bytes -= len(some)
                bits = np.unpackbits(np.frombuffer(some, np.uint8), bitorder="little")
                yield (
                    len(bits) // width,
                    np.flatnonzero(~bits[: len(bits) // width * width].reshape(-1, width).any(axis=1)),
                )
    except (EOFError, ValueError):
        return
