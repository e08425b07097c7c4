"""Makes conversations of the rows of tables."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.table_columns import element_of

_ROWS_MAX = 1024  # made at once, since values in Python are larger than in Arrow
_ROWS_BYTES = 4 << 20  # of Arrow, made at once unless one row has more
_Cleaner = Callable[[Any], Any]


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
    start = 0
    while start < len(columns[0]):
        some = _at_once(columns, start)
        yield _made(some, maker)
        start += len(some[0])


def _at_once(columns: Sequence[pa.Array], start: int) -> list[pa.Array]:
    """The rows from `start` on that are made at once."""
    n_rows = min(_ROWS_MAX, len(columns[0]) - start)
    while n_rows > 1 and sum(_n_bytes(column, start, n_rows) for column in columns) > _ROWS_BYTES:
        n_rows = (n_rows + 1) // 2
    return [column.slice(start, n_rows) for column in columns]


def _n_bytes(column: pa.Array, start: int, n_rows: int) -> int:
    """The size of some rows in Arrow. What all rows share, the values of a dictionary or of views, is divided among them, since
    it is not known which are whose."""
    shared = column.slice(start, 0).nbytes
    return int(column.slice(start, n_rows).nbytes - shared + shared * n_rows // len(column))


def _made(columns: Sequence[pa.Array], maker: Maker) -> Made:
    texts: list[str | None] = []
    messages: list[bytes | None] = []
    bad: list[BadDocument] = []
    cleaners = [_cleaner(column.type) for column in columns]
    for i, values in enumerate(_rows(columns, maker.columns)):
        try:
            if isinstance(values, ConversationError):
                raise values
            found = maker.make([_cleaned(value, cleaner) for value, cleaner in zip(values, cleaners, strict=True)])
        except ConversationError as error:
            is_read = not isinstance(values, ConversationError)
            raw = msgspec.json.encode(dict(zip(maker.columns, values, strict=True))) if is_read else None
            bad.append(BadDocument(i, None, f"{error}.", raw))
            texts.append(None)
            messages.append(None)
        else:
            texts.append(found.text)
            messages.append(found.json)
    json = pa.array(messages, pa.large_binary()).view(pa.large_string())  # of msgspec, which is UTF-8
    return Made(pa.array(texts, pa.large_string()), json, bad)


def _rows(columns: Sequence[pa.Array], names: Sequence[str]) -> Sequence[Any]:
    """The values of each row, in the order of the columns; for a row that has none, the error in their place."""
    try:
        return list(zip(*map(_values, columns), strict=True))
    except (UnicodeDecodeError, KeyError):
        return [_row([column.slice(i, 1) for column in columns], names) for i in range(len(columns[0]))]


def _row(columns: Sequence[pa.Array], names: Sequence[str]) -> list[Any] | ConversationError:
    row = []
    for name, column in zip(names, columns, strict=True):
        try:
            row += _values(column)
        except UnicodeDecodeError as error:
            found = f"{error.object[error.start]:#04x} at byte {error.start} of a text"
            return ConversationError(f"column {name!r}: expected UTF-8; found {found}")
        except KeyError:  # of to_pylist, for a map
            return ConversationError(f"column {name!r}: expected maps with each key once; found a key twice")
    return row


def _values(column: pa.Array) -> list[Any]:
    values = column.to_pylist(maps_as_pydicts="strict")
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def _cleaned(value: Any, cleaner: _Cleaner | None) -> Any:
    return value if value is None or cleaner is None else cleaner(value)


def _cleaner(kind: pa.DataType) -> _Cleaner | None:
    """What removes from a value of this type the keys that its row lacks; None if no value can have such keys. A struct has null
    for a key that a row lacks. A map has only the keys of its row, so a null there is a value."""
    if pa.types.is_dictionary(kind):
        return _cleaner(kind.value_type)
    if pa.types.is_struct(kind):
        cleaners = {field.name: _cleaner(field.type) or _as_it_is for field in kind}
        return lambda value: {name: cleaners[name](one) for name, one in value.items() if one is not None}
    if pa.types.is_map(kind):
        of_item = _cleaner(kind.item_type)
        return of_item and (lambda value: {key: None if one is None else of_item(one) for key, one in value.items()})
    element = element_of(kind)
    of_element = None if element is None else _cleaner(element)
    return of_element and (lambda value: [None if one is None else of_element(one) for one in value])


def _as_it_is(value: Any) -> Any:
    return value
