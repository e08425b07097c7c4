"""Values of columns that are kept beside documents, each as JSON."""

import msgspec
import pyarrow as pa

from tokenmill.corpus.conversation_tables import rows_of
from tokenmill.corpus.conversations import ConversationError
from tokenmill.corpus.limits import VALUE_BYTES_MAX
from tokenmill.corpus.line_faults import Fault

Value = str | int | float | bool | None

_encode = msgspec.json.Encoder().encode
_INT64 = range(-(1 << 63), 1 << 63)


def json_of(value: Value) -> str:
    """A value as JSON. A floating-point number is an array with its text in hexadecimal, since JSON has neither infinity nor NaN.
    Raises ConversationError for a text or an integer that is too large.

    >>> json_of("a"), json_of(0.5), json_of(None)
    ('"a"', '["0x1.0000000000000p-1"]', 'null')
    """
    if isinstance(value, float):
        return _encode([value.hex()]).decode()
    if isinstance(value, str) and len(value) * 4 > VALUE_BYTES_MAX and (n := len(value.encode())) > VALUE_BYTES_MAX:
        raise ConversationError(f"expected at most {VALUE_BYTES_MAX:,} bytes; found {n:,}")
    if isinstance(value, int) and value not in _INT64:
        raise ConversationError(f"expected an integer of 64 bits; found {value}")
    return _encode(value).decode()


def json_values(name: str, values: pa.Array) -> tuple[pa.LargeStringArray, dict[int, Fault]]:
    """The values of a column of a table as JSON, with null for each wrong one; and what is wrong with these, by index."""
    texts: list[str | None] = []
    faults: dict[int, Fault] = {}
    for i, row in enumerate(rows_of([values], [name])):
        try:
            if isinstance(row, ConversationError):
                raise row
            texts.append(json_of(*row))
        except ConversationError as error:
            texts.append(None)
            faults[i] = Fault(str(error))
    return pa.array(texts, pa.large_string()), faults
