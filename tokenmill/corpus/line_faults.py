"""Explains why a line of JSON makes no document."""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tokenmill.config.sources import Column
from tokenmill.corpus.bad_documents import BadDocument, ColumnError, missing, set_them
from tokenmill.corpus.column_kinds import ColumnKind, remedies
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError

OnBadLine = Callable[[BadDocument], None]
LineKeys = Mapping[Column, ColumnKind]
"""The keys that are read of each line, and what their values must be."""

CONVERT = "Convert the file to UTF-8, or copy it again if it should be"
_TRUNCATED = "truncated"  # in msgspec's error for JSON without an end
_KINDS = {str: "a string", bool: "a bool", int: "an int", float: "a float", list: "an array", dict: "an object"}


class Fault(NamedTuple):
    """What is wrong with a line. `setting`: see BadDocument."""

    words: str
    advice: str = "Correct the line, or delete it."
    setting: str | None = None


class WrongValue(NamedTuple):
    """What is wrong with the value of a column beside a good document."""

    column: Column
    fault: Fault


def give_up(shard: Shard, row: int, number: int, line: bytes, fault: Fault, on_bad_line: OnBadLine | None) -> None:
    """Calls `on_bad_line` with a bad line; without it, raises CorpusError. `row`: counted from the first of the lines that are read
    at once. `number`: the line's number in the file, from 1."""
    if on_bad_line is not None:
        on_bad_line(BadDocument(row, number, fault.words, line, setting=fault.setting))
        return
    words = f"{shard.name}, line {number}: {fault.words}"
    if fault.setting:
        raise ColumnError(words, fault.advice, fault.setting)
    raise CorpusError(f"{words} {fault.advice}", code="TM201")


def explain(shard: Shard, line: bytes, error: Exception, keys: LineKeys) -> Fault:
    """Explains why msgspec could not read these keys of a line of the shard. `error`: what it raised."""
    if isinstance(error, RecursionError):
        return Fault("the JSON is nested too deep to be read.", "Flatten the value, or delete the line.")
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return Fault(
            f"expected UTF-8; found {line[bad.start]:#04x} at byte {bad.start} of the line.",
            f"{CONVERT}.",
        )
    if n_zeros := line.count(b"\0"):
        words = f"found {n_zeros:,} zero bytes, as a write that did not end leaves them; expected JSON."
        return Fault(words, "Copy or make the file again.")
    if line.startswith(BOM_UTF8):
        words = "begins with a byte order mark, as where files are joined; expected JSON."
        return Fault(words, "Take the mark away, and keep what is behind it.")
    if isinstance(error, msgspec.ValidationError):
        return _wrong_value(shard, line, error, keys)
    if _has_lone_surrogate(line):
        return Fault(
            "a string holds half of a surrogate pair (\\ud800 to \\udfff), which is no character and has no UTF-8.",
            "Replace it, for instance by \\ufffd, or delete the line.",
        )
    words = f"invalid JSON, {len(line)} bytes: {error}. Expected one object a line."
    if _TRUNCATED in str(error):
        return Fault(
            words, "Correct the line; copy or make the file again if it is the last one, where the file was cut off."
        )
    return Fault(words)


def _wrong_value(shard: Shard, line: bytes, error: Exception, keys: LineKeys) -> Fault:
    try:
        value_of_line = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return Fault(f"{error}.")
    if isinstance(value_of_line, list):
        advice = "If it is an array of documents, it is the content of a .json file; otherwise correct the line."
        return Fault("expected an object; found an array.", advice)
    if not isinstance(value_of_line, dict):
        return Fault(f"expected an object; found {_kind(value_of_line)}.")
    if absent := [one for one, kind in keys.items() if one.name not in value_of_line and not kind.is_optional]:
        settings = remedies(shard, absent, "key")
        advice = f"{set_them(settings)}, or correct the line."
        if shard.kind.format == "json" and (array := next(_arrays(value_of_line), None)):
            advice += f" If the documents are the elements of {array!r}, write this array alone."
        return Fault(missing("key", [one.name for one in absent], value_of_line), advice, " and ".join(settings))
    for column, kind in keys.items():
        if column.name not in value_of_line:
            continue
        setting = shard.setting(column.param)
        value = value_of_line[column.name]
        if type(value) not in kind.types:
            shown = "" if isinstance(value, list | dict | None) else f" ({value!r:.40})"
            words = f"key {column.name!r}: expected {kind.in_lines}; found {_kind(value)}{shown}."
            return Fault(words, setting=None if value is None else setting)
    return Fault(f"{error}.")


def _arrays(values: dict[str, Any]) -> Iterator[str]:
    """The keys of the arrays in an object, with dots between those of objects in objects."""
    for name, value in values.items():
        if isinstance(value, list):
            yield name
        elif isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in _arrays(value))


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS[type(value)]


def _has_lone_surrogate(line: bytes) -> bool:
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False
