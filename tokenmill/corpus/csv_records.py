"""Reads the values of records of .csv and .tsv files, by pyarrow. Of those that it refuses, the csv module finds what is wrong."""

import csv
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv

from tokenmill.corpus.line_faults import Fault
from tokenmill.corpus.record_ends import RecordEnds

_OTHERS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
_CARRIAGE_RETURN = "a carriage return outside of quotes"


class Records(NamedTuple):
    """Consecutive good records: the values of each column, large_string that may not be UTF-8."""

    columns: Sequence[pa.LargeStringArray]


class BadRecord(NamedTuple):
    """A record that cannot be read. `line`: its first line, from 0 in the bytes that it was read from."""

    line: int
    raw: bytes
    fault: Fault


def names_in(header: bytes, separator: bytes) -> list[str]:
    """The names of the columns; none in a file without records. Raises ValueError for a header that cannot be read."""
    for values, _ in _one_by_one(header, separator):
        if values is None:
            raise ValueError(f"its first record, the header, has {_CARRIAGE_RETURN}")
        if values:
            try:
                return [value.encode("latin-1").decode() for value in values]
            except UnicodeDecodeError as error:
                wrong = error.object[error.start]
                raise ValueError(f"its first record, the header, is not UTF-8 (found 0x{wrong:02x})") from None
    return []


def other_separator(names: Sequence[str]) -> str:
    """Says which separator a header of one column has in its name, so that it plainly is of several columns; empty if it has none.

    >>> other_separator(["id;text"]), other_separator(["text"]), other_separator(["a;b", "text"])
    ("semicolons between names: 'id;text'", '', '')
    """
    if len(names) != 1:
        return ""
    found = next((word for mark, word in _OTHERS.items() if mark in names[0]), "")
    return f"{found} between names: {names[0]!r:.80}" if found else ""


def records_in(block: bytes, separator: bytes, n_columns: int, wanted: Sequence[int]) -> Iterator[Records | BadRecord]:
    """The records of some whole lines, in order: the values of the columns with the indices `wanted`."""
    # For pyarrow, a carriage return without a line feed ends a record, and a byte order mark before the first one is none of it.
    if not block.startswith(BOM_UTF8) and block.count(b"\r") == block.count(b"\r\n"):
        try:
            yield _at_once(block, separator, n_columns, wanted)
            return
        except pa.ArrowInvalid:  # the other way of reading says what is wrong
            pass
    good: list[list[str]] = []
    line = 0
    lines = BytesIO(block).readlines()
    for values, end in _one_by_one(block, separator):
        if values is not None and len(values) == n_columns:
            good.append([values[i] for i in wanted])
        elif values != []:
            if good:
                yield _records(good)
                good = []
            yield BadRecord(line, b"".join(lines[line:end]).rstrip(b"\r\n"), _fault(values, n_columns))
        line = end
    if good:
        yield _records(good)


def _at_once(block: bytes, separator: bytes, n_columns: int, wanted: Sequence[int]) -> Records:
    names = [str(i) for i in range(n_columns)]
    chosen = [names[i] for i in wanted]
    table = pa_csv.read_csv(
        pa.BufferReader(block),
        pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        pa_csv.ParseOptions(delimiter=separator.decode(), newlines_in_values=True),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(chosen, pa.large_string()),
            strings_can_be_null=False,
            include_columns=chosen,
        ),
    )
    return Records([table[name].combine_chunks() for name in chosen])


def _one_by_one(block: bytes, separator: bytes) -> Iterator[tuple[list[str] | None, int]]:
    """The values of each record, as text in latin-1, which keeps any bytes, and the number of lines up to its end. A record
    with a carriage return outside of quotes has None in their place, and a blank line has no values."""
    csv.field_size_limit(max(csv.field_size_limit(), len(block)))
    start = n_lines = 0
    for end in (*RecordEnds(separator).add(block).tolist(), len(block)):
        lines = [line.decode("latin-1") for line in BytesIO(block[start:end]).readlines()]
        start, n_lines = end, n_lines + len(lines)
        values: list[str] | None = None
        with suppress(csv.Error):  # the only one that a reader raises that is not strict
            values = next(csv.reader(lines, delimiter=separator.decode()), [])
        yield values, n_lines


def _records(rows: Sequence[Sequence[str]]) -> Records:
    columns = zip(*rows, strict=True)
    return Records(
        [
            pa.array([value.encode("latin-1") for value in column], pa.large_binary()).view(pa.large_string())
            for column in columns
        ]
    )


def _fault(values: Sequence[str] | None, n_columns: int) -> Fault:
    if values is None:
        return Fault(f"expected a line end; found {_CARRIAGE_RETURN}.", "Put the value in quotes.")
    return Fault(
        f"expected {n_columns} values, as many as the header has; found {len(values)}.",
        "Put a value that holds separators, quotes or line ends in quotes, and double each quote in it.",
    )
