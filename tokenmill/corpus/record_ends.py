"""Finds where the records of .csv and .tsv files end.

A value that begins with a quote ends with one, and holds separators, line ends and doubled quotes. Any other quote stands for
itself.
"""

from collections.abc import Iterable
from io import BytesIO
from itertools import chain

import numpy as np
import numpy.typing as npt

HEADER_BYTES_MAX = 1 << 20
_QUOTE = 0x22
_LINE_FEED = 0x0A
_CARRIAGE_RETURN = 0x0D


class RecordEnds:
    """Finds the ends of records in bytes that come in blocks, from the beginning of a record on. `is_open`: whether the last byte
    is in quotes. `n_rows`, `n_lines`: how many records, without blank lines, and how many lines ended in what `add` took."""

    def __init__(self, separator: bytes) -> None:
        self.is_open: bool = False
        self.n_rows: int = 0
        self.n_lines: int = 0
        self._is_begun = False  # whether more than carriage returns is behind the last end
        self._may_open = np.isin(np.arange(256), (*separator, _LINE_FEED, _QUOTE))  # by the byte before a quote
        self._last = _LINE_FEED  # the byte before the next one; a quote only if it closes

    def last(self, block: bytes) -> int:
        """Takes the next bytes, and gives the position behind the last record that ends in them; 0 if none does."""
        was_open, quotes = self.is_open, self._quotes(block)
        feed = len(block)
        while (feed := block.rfind(b"\n", 0, feed)) >= 0:
            n_before = int(np.searchsorted(quotes, feed))
            if (n_before + was_open) % 2 == 0:
                return feed + 1
            if not n_before:
                return 0
            feed = int(quotes[n_before - 1])  # where the value begins that holds this line end
        return 0

    def add(self, block: bytes) -> npt.NDArray[np.int64]:
        """Takes the next bytes, and gives the position behind each record, or blank line, that ends in them."""
        was_open, quotes = self.is_open, self._quotes(block)
        values = np.frombuffer(block, np.uint8)
        feeds = np.flatnonzero(values == _LINE_FEED)
        ends: npt.NDArray[np.int64] = feeds[(np.searchsorted(quotes, feeds) + was_open) % 2 == 0] + 1
        self.n_lines += len(feeds)
        is_text = values != _CARRIAGE_RETURN
        is_text[ends - 1] = False
        if len(ends):
            is_row = np.logical_or.reduceat(is_text[: ends[-1]], np.concatenate([[0], ends[:-1]]))
            self.n_rows += int(is_row.sum()) + (self._is_begun and not is_row[0])
            self._is_begun, is_text = False, is_text[ends[-1] :]
        self._is_begun = self._is_begun or bool(is_text.any())
        return ends

    def end(self) -> None:
        """Ends the last record, which may lack a line end."""
        if self._is_begun:
            self.add(b"\n")

    def _quotes(self, block: bytes) -> npt.NDArray[np.int64]:
        """The positions of the quotes that open or close in the next bytes, which it takes."""
        values = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(values == _QUOTE)
        before = values[quotes - 1]
        if len(quotes) and quotes[0] == 0:
            before[0] = self._last
        # Usually each second quote may open, and so each one opens or closes.
        if not self._may_open[before[int(self.is_open) :: 2]].all():
            quotes = self._without_literal(quotes, before)
        self.is_open ^= bool(len(quotes) % 2)
        if block:
            is_literal = block.endswith(b'"') and not (len(quotes) and quotes[-1] == len(block) - 1)
            self._last = 0 if is_literal else block[-1]
        return quotes

    def _without_literal(self, quotes: npt.NDArray[np.int64], before: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """The quotes without those that stand for themselves. `before`: the byte before each."""
        kept: list[int] = []
        is_open, closed_at = self.is_open, -1 if self._last == _QUOTE else None
        for position, previous in zip(quotes.tolist(), before.tolist(), strict=True):
            if is_open:
                is_open, closed_at = False, position
            elif self._may_open[previous] and (previous != _QUOTE or position - 1 == closed_at):
                is_open = True
            else:
                continue
            kept.append(position)
        return np.array(kept, np.int64)


def header_in(blocks: Iterable[bytes], separator: bytes) -> bytes:
    """The beginning of a file up to the end of its first record. `blocks`: the file's bytes, without a byte order mark. Raises
    ValueError if the record has no end or is too long."""
    ends, content = RecordEnds(separator), b""
    for line in chain.from_iterable(BytesIO(block).readlines() for block in blocks):
        content += line
        if len(content) > HEADER_BYTES_MAX:
            raise ValueError(f"its first record, the header, is longer than {HEADER_BYTES_MAX:,} bytes")
        ends.add(line)
        if ends.n_rows:
            return content
    if ends.is_open:
        raise ValueError("a quote in its first record, the header, has no end")
    return content
