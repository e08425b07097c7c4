"""Parses unambiguous JSON only (no duplicate keys, no NaN, limited depth), and checks values against expected shapes."""

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from tokenmill.errors import TokenizerError, shown
from tokenmill.storage.followed import followed
from tokenmill.storage.json_files import parse_json
from tokenmill.tokenizer.formats.other_kinds import refuse_mark, refuse_other
from tokenmill_reader.regular_files import read

_DEPTH_MAX = 64


def parse(content: bytes, place: str, unchecked: tuple[str, ...] = ()) -> dict[str, Any]:
    """The JSON object in a file. Raises TokenizerError, which names `place` and the field.

    The depth below the fields `unchecked` (such as "model.vocab") is not checked: they are long and have checks of their own.
    """
    refuse_other(place, content, "JSON")
    refuse_mark(place, content)
    try:
        document = json.loads(
            content.decode(), object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise TokenizerError(place, f"not UTF-8 at byte {error.start}.", "Fetch or make the file again.") from None
    except RecursionError:
        raise TokenizerError(place, f"nested too deep; at most {_DEPTH_MAX} levels.", "Fetch the file again.") from None
    except ValueError as error:
        raise TokenizerError(place, f"not valid JSON: {error}.", "Fetch or make the file again.") from None
    if not isinstance(document, dict):
        wrong(place, "an object", document)
    _check_surrogates(document, content, place)
    _check_depth(document, place, unchecked)
    return document


def object_of(path: Path) -> dict[str, Any]:
    """The JSON object in a file beside a tokenizer, {} without the file. What Python's json reads is read: config.json may have an
    Infinity that nobody looks at here. Raises TokenizerError, and StorageError for a link that leads out of its folder."""
    path = followed(path.parent, path.name)
    try:
        if not path.is_file():
            return {}
        content = read(path)
        refuse_other(path, content, "JSON")
        value = parse_json(content)
    except OSError as error:
        raise TokenizerError(path, f"cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise TokenizerError(path, f"expected JSON: {error}.", "Fetch or make the tokenizer again.") from None
    if not isinstance(value, dict):
        wrong(str(path), "an object of JSON", value)
    _check_surrogates(value, content, str(path))
    return value


class _Twice(dict[str, Any]):
    """An object with a duplicate key."""

    key = ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    twice = _Twice(members)
    for key, _ in pairs:
        if key in seen:
            twice.key = key
            break
        seen.add(key)
    return twice


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError(f"{text:.40} is beyond the numbers of JSON's readers")
    return found


def _check_surrogates(document: dict[str, Any], content: bytes, place: str) -> None:
    """Refuses half of a surrogate pair, which JSON can write as an escape, and which is no character."""
    if b"\\ud" in content or b"\\uD" in content:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(
                place,
                f"expected characters; found half of a surrogate pair, {error.object[error.start]!r}.",
                "Fetch or make the file again.",
            ) from None


def _check_depth(document: dict[str, Any], place: str, unchecked: tuple[str, ...]) -> None:
    waiting: list[tuple[Any, str, int]] = [(document, "", 1)]
    while waiting:
        value, path, depth = waiting.pop()
        where = f"{place}: {path}" if path else place
        if isinstance(value, _Twice):
            raise TokenizerError(where, f"the key {value.key!r:.60} is there twice; expected every key once.")
        if depth > _DEPTH_MAX:
            first = re.split(r"[.[]", path)[0]  # the whole path would be too long to print
            raise TokenizerError(f"{place}: {first:.60}", f"nested too deep; at most {_DEPTH_MAX} levels.")
        if path in unchecked:
            continue
        if isinstance(value, dict):
            waiting += [(one, f"{path}.{key}" if path else key, depth + 1) for key, one in value.items()]
        elif isinstance(value, list):
            waiting += [(one, f"{path}[{i}]", depth + 1) for i, one in enumerate(value) if isinstance(one, dict | list)]


class Each(tuple[Any, ...]):
    """The shape of a list or an object whose values all have the same shape."""


def check(value: Any, shape: Any, place: str) -> None:
    """Raises TokenizerError, naming the field, unless the value has the shape.

    A shape is one of: bool, int or str; None for null; a text or an integer that the value must equal; a tuple of shapes, any
    of which will do; a dict of shapes by key, where a key that ends with ? may be missing; a list of shapes, one per element;
    Each(shape) for lists and objects of any length.

    >>> check({"a": [1]}, {"a": Each([int]), "b?": bool}, "x.json: ")
    >>> check({"a": ["1"]}, {"a": Each([int])}, "x.json: ")
    Traceback (most recent call last):
    tokenmill.errors.TokenizerError: x.json: a[0]: expected an integer; found '1'.
    """
    _check(value, shape, place, "")


def _check(value: Any, shape: Any, place: str, path: str) -> None:
    options = shape if type(shape) is tuple else (shape,)
    if any(not isinstance(option, dict | list | Each) and _is(value, option) for option in options):
        return
    fitting = [option for option in options if _may_fit(value, option)]
    if not fitting:
        wrong(f"{place}{path}".rstrip("."), _said(shape), value)
    option = fitting[0]
    if isinstance(option, Each):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            _check(part, option[0], place, _inside(path, key))
    elif isinstance(option, list):
        for key, (part, inner) in enumerate(zip(value, option, strict=True)):
            _check(part, inner, place, _inside(path, key))
    else:
        for key, inner in option.items():
            name = key.removesuffix("?")
            if name in value:
                _check(value[name], inner, place, _inside(path, name))
            elif name == key:
                wrong(f"{place}{_inside(path, name)}", _said(inner), None)


def _may_fit(value: Any, shape: Any) -> bool:
    """Whether to check the value's elements against this shape. Of several dict shapes, one that shares a key will do."""
    if isinstance(shape, Each):
        return isinstance(value, dict | list)
    if isinstance(shape, list):
        return isinstance(value, list) and len(value) == len(shape)
    return (
        isinstance(shape, dict)
        and isinstance(value, dict)
        and (not shape or next(iter(shape)).endswith("?") or any(key in value for key in shape))
    )


def _inside(path: str, key: str | int) -> str:
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key


def _is(value: Any, one: Any) -> bool:
    return type(value) is one if isinstance(one, type) else type(value) is type(one) and value == one


def _said(shape: Any) -> str:
    if type(shape) is tuple:
        return " or ".join(_said(one) for one in shape)
    names = {bool: "true or false", int: "an integer", str: "a text", float: "a fraction"}
    if isinstance(shape, type):
        return names[shape]
    if isinstance(shape, Each):
        return "a list or an object"
    if isinstance(shape, list):
        return f"a list of {len(shape)}"
    if isinstance(shape, dict):
        needed = [key for key in shape if not key.endswith("?")]
        return f"an object with {', '.join(needed)}" if needed else "an object"
    return json.dumps(shape)


def wrong(place: str, expected: str, found: object) -> NoReturn:
    raise TokenizerError(place, f"expected {expected}; found {shown(found)}.")
