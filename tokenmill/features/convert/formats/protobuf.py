"""Reads and writes the wire format of Protocol Buffers, as far as SentencePiece's models use it.

Source: protobuf.dev, Encoding. Wire types: 0 varint, 1 eight bytes, 2 bytes with their length, 5 four bytes.
"""

from collections.abc import Iterator

from tokenmill.errors import TokenizerError

_VARINT_BYTES_MAX = 10
_FIXED = {1: 8, 5: 4}


def fields_of(message: bytes, place: str) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in their order: the number, and an integer or the bytes. Raises TokenizerError for bytes that are no
    message.

    >>> list(fields_of(b"\\x0a\\x02hi\\x18\\x05", "x.model"))
    [(1, b'hi'), (3, 5)]
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position, place)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, position = _varint(message, position, place)
        else:
            if wire == 2:
                length, position = _varint(message, position, place)
            elif wire in _FIXED:
                length = _FIXED[wire]
            else:
                raise _damaged(place, position)
            value, position = message[position : position + length], position + length
        if number == 0 or position > len(message):
            raise _damaged(place, position)
        yield number, value


def field(number: int, value: int | bytes) -> bytes:
    """A field: an integer from 0 on as a varint, bytes with their length."""
    if isinstance(value, int):
        return _as_varint(number << 3) + _as_varint(value)
    return _as_varint(number << 3 | 2) + _as_varint(len(value)) + value


def fixed32(number: int, value: bytes) -> bytes:
    """A field of four bytes, such as a float."""
    return _as_varint(number << 3 | 5) + value


def _varint(message: bytes, start: int, place: str) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(message[start : start + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, start + i + 1
    raise _damaged(place, start)


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _damaged(place: str, at: int) -> TokenizerError:
    return TokenizerError(
        place, f"expected a Protocol Buffers message; found none at byte {at:,}.", "Fetch the file again."
    )
