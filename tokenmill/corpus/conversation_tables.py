"""Converts rows of tables into conversations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.column_kinds import element_of
from tokenmill.corpus.conversations import ConversationError, Maker

_Cleaner = Callable[[Any], Any]


class TableConversations(NamedTuple):
    """Conversations of consecutive rows: their texts and canonical JSON, large_string, null for those in `bad`."""

    texts: pa.LargeStringArray
    messages: pa.LargeStringArray
    bad: Sequence[BadDocument]


def conversations_of(columns: Sequence[pa.Array], maker: Maker) -> TableConversations:
    """Converts all rows of these columns in order. `columns`: those that the maker takes, of types and values that pass
    `check_columns` and `check_values`."""
    texts: list[str | None] = []
    messages: list[bytes | None] = []
    bad: list[BadDocument] = []
    cleaners = [_cleaner(column.type) for column in columns]
    names = [column.name for column in maker.columns]
    for i, values in enumerate(rows_of(columns, names)):
        try:
            if isinstance(values, ConversationError):
                raise values
            conversation = maker.make(
                [_cleaned(value, cleaner) for value, cleaner in zip(values, cleaners, strict=True)]
            )
        except ConversationError as error:
            is_read = not isinstance(values, ConversationError)
            raw = msgspec.json.encode(dict(zip(names, values, strict=True))) if is_read else None
            bad.append(BadDocument(i, None, f"{error}.", raw))
            texts.append(None)
            messages.append(None)
        else:
            texts.append(conversation.text)
            messages.append(conversation.json)
    json = pa.array(messages, pa.large_binary()).view(pa.large_string())  # msgspec writes UTF-8
    return TableConversations(pa.array(texts, pa.large_string()), json, bad)


def rows_of(columns: Sequence[pa.Array], names: Sequence[str]) -> Sequence[Any]:
    """The values of each row, in the order of the columns; an error in place of a row that cannot be read."""
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
    """A function that removes the keys that a row lacks from a value of this type; None if there is nothing to remove. A struct has
    null for such a key. A map has only the row's keys, so a null there is a value."""
    if pa.types.is_dictionary(kind):
        return _cleaner(kind.value_type)
    if pa.types.is_struct(kind):
        cleaners = {field.name: _cleaner(field.type) or _as_it_is for field in kind}
        return lambda value: {name: cleaners[name](part) for name, part in value.items() if part is not None}
    if pa.types.is_map(kind):
        of_item = _cleaner(kind.item_type)
        return of_item and (lambda value: {key: None if part is None else of_item(part) for key, part in value.items()})
    element = element_of(kind)
    of_element = None if element is None else _cleaner(element)
    return of_element and (lambda value: [None if part is None else of_element(part) for part in value])


def _as_it_is(value: Any) -> Any:
    return value
