"""Makes conversations of the rows of tables."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.strings import large_strings

_ROWS_MAX = 1024  # made at once, since values in Python are larger than in Arrow


class Made(NamedTuple):
    """Conversations of consecutive rows: their texts and canonical JSON, large_string, null for those in `bad`."""

    texts: pa.LargeStringArray
    messages: pa.LargeStringArray
    bad: Sequence[BadDocument]


def conversations_of(columns: Sequence[pa.Array], maker: Maker) -> Iterator[Made]:
    """The conversations of some rows, in their order. `columns`: those that the maker takes, of types that `check_columns` lets
    pass.

    Raises pa.ArrowInvalid for an array that is damaged.
    """
    for column in columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):  # else it is known which rows are bad when they are read
                raise
    for start in range(0, len(columns[0]), _ROWS_MAX):
        yield _made([column.slice(start, _ROWS_MAX) for column in columns], maker)


def _made(columns: Sequence[pa.Array], maker: Maker) -> Made:
    texts: list[bytes | None] = []
    messages: list[bytes | None] = []
    bad: list[BadDocument] = []
    for i, values in enumerate(_rows(columns, maker.columns)):
        try:
            if isinstance(values, ConversationError):
                raise values
            found = maker.make(values)
        except ConversationError as error:
            is_read = not isinstance(values, ConversationError)
            raw = msgspec.json.encode(dict(zip(maker.columns, values, strict=True))) if is_read else None
            bad.append(BadDocument(i, None, f"{error}.", raw))
            texts.append(None)
            messages.append(None)
        else:
            texts.append(found.text.encode())
            messages.append(found.json)
    return Made(large_strings(texts), large_strings(messages), bad)


def _rows(columns: Sequence[pa.Array], names: Sequence[str]) -> Sequence[Any]:
    """The values of each row, in the order of the columns; for a row that is not UTF-8, the error in their place."""
    try:
        return list(zip(*map(_values, columns), strict=True))
    except UnicodeDecodeError:
        return [_row([column.slice(i, 1) for column in columns], names) for i in range(len(columns[0]))]


def _row(columns: Sequence[pa.Array], names: Sequence[str]) -> list[Any] | ConversationError:
    row = []
    for name, column in zip(names, columns, strict=True):
        try:
            row += _values(column)
        except UnicodeDecodeError as error:
            found = f"{error.object[error.start]:#04x} at byte {error.start} of a text"
            return ConversationError(f"column {name!r}: expected UTF-8; found {found}")
    return row


def _values(column: pa.Array) -> list[Any]:
    values = column.to_pylist(maps_as_pydicts="strict")
    return [value.decode() if isinstance(value, bytes) else value for value in values]
