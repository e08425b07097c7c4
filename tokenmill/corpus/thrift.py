"""Reads values of Thrift's compact protocol, in which Parquet writes its headers and footers."""

from typing import IO, Any

_DEPTH_MAX = 16


def read_struct(data: IO[bytes], depth: int = 0) -> dict[int, Any]:
    """A struct by field number: integers, bytes, lists and structs. Other values are None. Raises EOFError for truncated data, and
    ValueError for malformed data."""
    if depth > _DEPTH_MAX:
        raise ValueError
    fields: dict[int, Any] = {}
    id = 0
    while head := _bytes(data, 1)[0]:
        id = id + (head >> 4) if head >> 4 else _zigzag(data)
        fields[id] = _value(data, head & 15, depth)
    return fields


def _value(data: IO[bytes], kind: int, depth: int) -> Any:
    match kind:
        case 1 | 2:
            return None
        case 3:
            _bytes(data, 1)
        case 4 | 5 | 6:
            return _zigzag(data)
        case 7:
            _bytes(data, 8)
        case 8:
            return _bytes(data, read_varint(data))
        case 9 | 10:
            head = _bytes(data, 1)[0]
            n = read_varint(data) if head >> 4 == 15 else head >> 4
            return [_value(data, 3 if head & 15 in (1, 2) else head & 15, depth + 1) for _ in range(n)]
        case 12:
            return read_struct(data, depth + 1)
        case _:
            raise ValueError
    return None


def _bytes(data: IO[bytes], n_bytes: int) -> bytes:
    found = data.read(n_bytes)
    if len(found) < n_bytes:
        raise EOFError
    return found


def read_varint(data: IO[bytes]) -> int:
    """An unsigned number. Raises what `read_struct` raises."""
    value = shift = 0
    while shift < 70:
        byte = _bytes(data, 1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
    raise ValueError


def _zigzag(data: IO[bytes]) -> int:
    value = read_varint(data)
    return (value >> 1) ^ -(value & 1)
