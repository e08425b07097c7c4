"""Reads values of Thrift's compact protocol, in which Parquet writes its headers and footers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

_DEPTH_MAX = 16
_SKIPPED = {1: 0, 2: 0, 3: 1, 7: 8}  # the bytes of values whose content nobody needs: booleans, bytes, doubles


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


def structs_in(data: IO[bytes], field: int) -> Iterator[dict[int, Any]]:
    """The structs of a list that is a field of a struct, one after the other, as `read_struct` gives them. What follows the list is
    not read. Raises what `read_struct` raises."""
    id = 0
    while head := _bytes(data, 1)[0]:
        id = id + (head >> 4) if head >> 4 else _zigzag(data)
        if id == field and head & 15 == 9:
            kind = _bytes(data, 1)[0]
            n = read_varint(data) if kind >> 4 == 15 else kind >> 4
            if kind & 15 != 12:
                raise ValueError
            for _ in range(n):
                yield read_struct(data, 1)
            return
        _value(data, head & 15, 0)


def _value(data: IO[bytes], kind: int, depth: int) -> Any:
    if kind in (4, 5, 6):
        return _zigzag(data)
    if kind == 8:
        return _bytes(data, read_varint(data))
    if kind in (9, 10):
        head = _bytes(data, 1)[0]
        n = read_varint(data) if head >> 4 == 15 else head >> 4
        return [_value(data, 3 if head & 15 in (1, 2) else head & 15, depth + 1) for _ in range(n)]
    if kind == 12:
        return read_struct(data, depth + 1)
    if kind not in _SKIPPED:
        raise ValueError
    _bytes(data, _SKIPPED[kind])
    return None


def _bytes(data: IO[bytes], n_bytes: int) -> bytes:
    found = data.read(min(n_bytes, 1 << 62))
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
