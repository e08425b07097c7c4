"""Reads the values of chosen columns of rows, in place of their documents: each row as a JSON array of them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tokenmill.corpus.conversations import CanonicalConversation, ConversationError, Maker
from tokenmill.corpus.limits import VALUE_BYTES_MAX

Value = str | int | float | bool | None

_encode = msgspec.json.Encoder().encode
_INT64 = range(-(1 << 63), 1 << 63)


def maker_of_values(columns: tuple[str, ...]) -> Maker:
    """The maker of rows with the values of these columns. A floating-point number is an array with its text in hexadecimal, since
    JSON has neither infinity nor NaN. Raises ConversationError for a text or an integer that is too large."""

    def make(values: Sequence[Any]) -> CanonicalConversation:
        return CanonicalConversation(_encode([_plain(*one) for one in zip(columns, values, strict=True)]), "")

    return Maker(columns, ("keep_columns",) * len(columns), make)


def _plain(column: str, value: Value) -> Any:
    if isinstance(value, float):
        return [value.hex()]
    if isinstance(value, str) and len(value) * 4 > VALUE_BYTES_MAX and (n := len(value.encode())) > VALUE_BYTES_MAX:
        raise ConversationError(f"column {column!r}: expected at most {VALUE_BYTES_MAX:,} bytes; found {n:,}")
    if isinstance(value, int) and value not in _INT64:
        raise ConversationError(f"column {column!r}: expected an integer of 64 bits; found {value}")
    return value
