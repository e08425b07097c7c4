"""Turns values of JSON into records, with an error that says where a value is not what was expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Optional

from tokenmill_reader.errors import ValidationError

Convert = Callable[[Any, str], Any]
"""Turns a value at a place, such as `shards.3.n_bytes`, into the value of a field. Raises `WrongValueError`."""

_SHOWN_CHARACTERS_MAX = 60


class WrongValueError(ValidationError):
    """A value of JSON is not what was expected."""


class Field(NamedTuple):
    """A field of an object. `default`: a function that gives its value where the key is missing; None: it must be there."""

    convert: Convert
    default: Optional[Callable[[], Any]] = None


def record(kind: Callable[..., Any], fields: Mapping[str, Field]) -> Convert:
    """Converts an object of JSON by its fields; other keys are left out. `kind`: makes a record of the fields' values, in order."""
    return partial(_record, kind, tuple((name, *field) for name, field in fields.items()))


def whole(value: Any, place: str) -> int:
    """A whole number from 0 to 2^63 - 1."""
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    raise _wrong(place, "a whole number from 0 to 2^63 - 1", value)


def number(value: Any, place: str) -> float:
    """A number."""
    if type(value) in (int, float):
        return float(value)
    raise _wrong(place, "a number", value)


def text(value: Any, place: str) -> str:
    """A string."""
    if type(value) is str:
        return value
    raise _wrong(place, "a string", value)


def flag(value: Any, place: str) -> bool:
    """True or false."""
    if type(value) is bool:
        return value
    raise _wrong(place, "true or false", value)


def optional(convert: Convert) -> Convert:
    """Converts null to None, and anything else by `convert`."""
    return lambda value, place: None if value is None else convert(value, place)


def list_of(convert: Convert) -> Convert:
    """Converts a list, each of whose values `convert` takes."""
    return partial(_list, convert)


def dict_of(convert: Convert) -> Convert:
    """Converts an object with any keys, each of whose values `convert` takes."""
    return partial(_dict, convert)


def anything(value: Any, place: str) -> Any:
    """Any value, as it is."""
    return value


def _record(kind: Callable[..., Any], fields: tuple[tuple[Any, ...], ...], value: Any, place: str) -> Any:
    if type(value) is not dict:
        raise _wrong(place, "an object", value)
    values = []
    for name, convert, default in fields:
        if name in value:
            values.append(convert(value[name], f"{place}.{name}" if place else name))
        elif default is None:
            raise WrongValueError(f"{place}.{name}" if place else name, "missing.")
        else:
            values.append(default())
    return kind(*values)


def _list(convert: Convert, value: Any, place: str) -> list[Any]:
    if type(value) is not list:
        raise _wrong(place, "a list", value)
    return [convert(one, f"{place}.{i}") for i, one in enumerate(value)]


def _dict(convert: Convert, value: Any, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise _wrong(place, "an object", value)
    return {name: convert(one, f"{place}.{name}") for name, one in value.items()}


def _wrong(place: str, expected: str, found: Any) -> WrongValueError:
    shown = {dict: "an object", list: "a list", type(None): "null"}.get(
        type(found), repr(found)[:_SHOWN_CHARACTERS_MAX]
    )
    return WrongValueError(place, f"expected {expected}; found {shown}.")
