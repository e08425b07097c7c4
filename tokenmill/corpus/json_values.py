"""Cuts JSON values out of a stream of bytes, so that each can be read as a line: the elements of an array, or objects that take
several lines. Memory grows with the longest value, and not with the stream."""

import re
from collections.abc import Collection, Iterator

import msgspec

from tokenmill.corpus.limits import Limits
from tokenmill.errors import DamagedError

_BLANK = b" \t\r\n"
_PLAIN = re.compile(rb'[^"\[\]{},]*+')
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NOTHING = b","  # in place of a missing element between two commas; it is no JSON, so it becomes a bad document
_STRING = r'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+'
_BEFORE_ROWS = re.compile(
    rf"\s*+\{{(?:{_STRING}:(?:{_STRING}|[\s\w.+-]++),)*+{_STRING}:\s*+(?=\[\s*+\{{)".encode(), re.DOTALL
)
_REST_BYTES = 1 << 16  # kept of what follows an array


def form_of(beginning: bytes) -> str:
    """The layout of a .json file that begins with these bytes: an "array", "objects" of several lines, or "lines". A first line
    with only an opening brace means objects of several lines."""
    first, end, _ = beginning.lstrip(_BLANK).partition(b"\n")
    if first.startswith(b"["):
        return "array"
    return "objects" if end and first.strip(_BLANK) == b"{" else "lines"


def rows_at(beginning: bytes, columns: Collection[str]) -> int | None:
    """The position of the array of rows, in a file that begins with these bytes and is one object around it, such as
    `{"version": 1, "data": [{…}, {…}]}`; None for other files. None of the object's keys is in `columns`, the keys of a row, and
    its other values are texts, numbers, true, false or null."""
    if (before := _BEFORE_ROWS.match(beginning)) is None or not _is_around(before[0] + b"0}", columns):
        return None
    cutter = _Cutter(is_array=True)
    cutter.cut(beginning[before.end() :])
    return None if cutter.is_at_end and not _is_behind(cutter.rest, columns) else before.end()


def _is_behind(rest: bytes, columns: Collection[str]) -> bool:
    """Whether these bytes end an object behind its array of rows."""
    return _is_around(b'{"":0' + rest, columns)


def _is_around(json: bytes, columns: Collection[str]) -> bool:
    try:
        values = msgspec.json.decode(json, type=dict[str, str | int | float | bool | None])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return values.keys().isdisjoint(columns)


def as_lines(
    blocks: Iterator[bytes], is_array: bool, limits: Limits, name: str, columns: Collection[str] | None = None
) -> Iterator[bytes]:
    """Rewrites the values as blocks of lines, one value per line. `is_array`: whether they are the elements of one array, not
    concatenated. `name`: the file's, for error messages. `columns`: the keys of a row, if an object is around the array.

    Line feeds in a value become carriage returns, so one in a string, which JSON forbids, stays an error. Raises CorpusError for a
    value beyond `limits`, and DamagedError if the last value or the array has no end, or something follows it.
    """
    cutter = _Cutter(is_array)
    n_values = 0
    for block in blocks:
        values = cutter.cut(block)
        n_values += len(values)
        limits.check_document(cutter.n_held, f"{name}, row {n_values}")
        if values:
            yield b"".join(value.replace(b"\n", b"\r") + b"\n" for value in values)
    if (rest := cutter.rest.strip(_BLANK)) and not is_array:
        yield rest.replace(b"\n", b"\r") + b"\n"
    if not cutter.is_at_end:
        whole = "its array" if is_array else "its last object"
        raise DamagedError(name, f"the file is damaged or truncated: {whole} has no end.", "Copy or make it again.")
    if columns is not None and not _is_behind(rest, columns):
        words = f"expected the end of the object that is around the array of rows; found {rest[:20]!r}."
        raise DamagedError(name, words, "Write the file again as an array of its rows.")
    if rest and is_array and columns is None:
        raise DamagedError(name, f"expected nothing behind the array; found {rest[:20]!r}.", "Copy or make it again.")


class _Cutter:
    """Cuts a stream of JSON, given in blocks, into values. `n_held`: the bytes of the unfinished value."""

    def __init__(self, is_array: bool) -> None:
        self.n_held = 0
        self._is_array = is_array
        self._depth = 0
        self._is_in_string = self._is_escaped = False
        self._has_begun = self._has_ended = False  # the array
        self._n_values = 0
        self._parts: list[bytes] = []  # of the unfinished value; after the array, the beginning of what follows

    @property
    def rest(self) -> bytes:
        """The unfinished value; after the array, the beginning of what follows it."""
        return b"".join(self._parts)

    @property
    def is_at_end(self) -> bool:
        """Whether the stream may end here."""
        return self._has_ended if self._is_array else not self._depth and not self._is_in_string

    def cut(self, block: bytes) -> list[bytes]:
        """The values that end in the next block."""
        values: list[bytes] = []
        position = start = 0
        while position < len(block):
            if self._has_ended:
                self._parts = [(self.rest + block[position:]).lstrip(_BLANK)[:_REST_BYTES]]
                return values
            if self._is_in_string:
                position = self._through_string(block, position)
                continue
            position = _PLAIN.match(block, position).end()  # type: ignore[union-attr]
            if position == len(block):
                break
            match block[position]:
                case 0x22:  # a quote
                    self._is_in_string = True
                case 0x7B | 0x5B:
                    self._depth += 1
                    if self._is_array and not self._has_begun:
                        self._has_begun, start = True, position + 1
                case 0x7D | 0x5D:
                    self._depth -= 1
                    if self._is_array and self._depth <= 0:
                        self._has_ended = True
                        self._add(block[start:position], values, is_last=True)
                    elif not self._is_array and self._depth <= 0:
                        self._depth = 0
                        self._add(block[start : position + 1], values)
                        start = position + 1
                case _:  # a comma
                    if self._is_array and self._depth == 1:
                        self._add(block[start:position], values)
                        start = position + 1
            position += 1
        if not self._has_ended and (self._has_begun or not self._is_array):
            self._parts.append(block[start:])
            self.n_held += len(block) - start
        return values

    def _through_string(self, block: bytes, position: int) -> int:
        """The position after the string that is open at `position`, or the end of the block."""
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        end = _IN_STRING.match(block, position).end()  # type: ignore[union-attr]
        if end == len(block):
            return end
        if block[end] == 0x22:
            self._is_in_string = False
        else:  # a backslash at the end of the block
            self._is_escaped = True
        return end + 1

    def _add(self, last: bytes, values: list[bytes], is_last: bool = False) -> None:
        value = b"".join([*self._parts, last]).strip(_BLANK)
        self._parts, self.n_held = [], 0
        if not value and is_last and not self._n_values:  # the array is empty
            return
        self._n_values += 1
        values.append(value or _NOTHING)
