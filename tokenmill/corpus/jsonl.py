"""Reads text and id from lines of JSON."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.corpus.bad_documents import BadDocument, ColumnError, whom
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError

LineReader = Callable[[bytes, int], tuple[pa.Array, pa.Array | None, int]]


_KINDS = {str: "a string", bool: "a bool", int: "an int", float: "a float", list: "an array", dict: "an object"}


def line_reader(
    shard: Shard, text_column: str, id_column: str | None, on_bad_line: Callable[[BadDocument], None] | None = None
) -> LineReader:
    """A function that reads lines. It takes whole lines and the number of the first one, from 1. It gives their texts and ids as
    large_string (ids are None without `id_column`), and the number of line ends.

    A blank line holds no document. Other keys are skipped. Of a duplicate key, the last one counts. A bad line is one that is
    not a JSON object with a text (and an id: string or integer). For it, `on_bad_line` is called with its row counted from
    the first of these lines, and null is given in its place; without `on_bad_line`, CorpusError is raised.
    """
    fields: list[tuple[str, Any]] = [("text", str)] if id_column is None else [("text", str), ("id", str | int)]
    names = {"text": text_column} if id_column is None else {"text": text_column, "id": id_column}
    try:
        decode = msgspec.json.Decoder(msgspec.defstruct("Document", fields, rename=names, gc=False)).decode
    except ValueError as error:
        section = shard.section
        raise CorpusError(
            f"{section}.text_column, {section}.id_column: {error}. Rename the key in the files."
        ) from None

    def read(lines: bytes, first_line: int) -> tuple[pa.Array, pa.Array | None, int]:
        found = _core.json_lines(lines, text_column, id_column)
        return one_by_one(lines, first_line) if found is None else found

    def one_by_one(lines: bytes, first_line: int) -> tuple[pa.Array, pa.Array | None, int]:
        texts: list[str | None] = []
        ids: list[str | None] = []
        parts = lines.split(b"\n")
        for number, line in enumerate(parts, first_line):
            if not line or line.isspace():
                continue
            try:
                document: Any = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                fault = _explain(line, error, text_column, id_column, shard.section)
                if on_bad_line is None:
                    words = f"{shard.name}, line {number}: {fault.words}"
                    if fault.setting:
                        raise ColumnError(words, fault.advice, fault.setting) from None
                    raise CorpusError(f"{words} {fault.advice}", code="TM201") from None
                on_bad_line(BadDocument(len(texts), number, fault.words, line, setting=fault.setting))
                texts.append(None)
                if id_column is not None:
                    ids.append(None)
                continue
            texts.append(document.text)
            if id_column is not None:
                ids.append(str(document.id))
        kind = pa.large_string()
        return pa.array(texts, kind), None if id_column is None else pa.array(ids, kind), len(parts) - 1

    return read


class _Fault(NamedTuple):
    """What is wrong with a line. `setting`: as of a BadDocument."""

    words: str
    advice: str = "Correct the line, or delete it."
    setting: str | None = None


def _explain(line: bytes, error: Exception, text_column: str, id_column: str | None, section: str) -> _Fault:
    if isinstance(error, RecursionError):
        return _Fault("the JSON is nested too deep to be read.", "Flatten the value, or delete the line.")
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return _Fault(
            f"expected UTF-8; found {line[bad.start]:#04x} at byte {bad.start} of the line.",
            "Convert the file to UTF-8, or delete the line.",
        )
    if isinstance(error, msgspec.ValidationError):
        return _wrong_value(line, error, text_column, id_column, section)
    if _has_lone_surrogate(line):
        return _Fault(
            "a string holds half of a surrogate pair (\\ud800 to \\udfff), which is no character and has no UTF-8.",
            "Replace it, for instance by \\ufffd, or delete the line.",
        )
    return _Fault(f"invalid JSON, {len(line)} bytes: {error}. Expected one object a line.")


def _wrong_value(line: bytes, error: Exception, text_column: str, id_column: str | None, section: str) -> _Fault:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _Fault(f"{error}.")
    if not isinstance(found, dict):
        return _Fault(f"expected an object; found {_kind(found)}.")
    for name, param, expected in (
        (text_column, "text_column", "a string"),
        (id_column, "id_column", "a string or an integer"),
    ):
        if name is None:
            continue
        setting = f"{section}.{param}"
        if name not in found:
            or_null = " or to null" if param == "id_column" else ""
            return _Fault(
                f"the key {name!r} is missing; found the keys {', '.join(found) or '(none)'}.",
                f"Set {setting} in params.yaml, {whom(setting)}, to one of them{or_null}, or correct the line.",
                setting,
            )
        value = found[name]
        is_fine = isinstance(value, str) or (param == "id_column" and type(value) is int)
        if not is_fine:
            shown = "" if isinstance(value, list | dict | None) else f" ({value!r:.40})"
            words = f"key {name!r}: expected {expected}; found {_kind(value)}{shown}."
            return _Fault(words, setting=None if value is None else setting)
    return _Fault(f"{error}.")


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
