"""Reads texts, or conversations, and what is beside them from lines of JSON."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.kept_values import Value, json_of
from tokenmill.corpus.line_faults import Fault, LineKey, OnBadLine, WrongValue, explain, give_up, key_beside
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError


class Lines(NamedTuple):
    """The documents of some lines: texts, the values of each column beside them and canonical JSON of conversations as
    large_string, null for bad lines, and the number of line ends. `messages` are None where documents are texts. `wrong`: what is
    wrong with values beside good documents, see Columns."""

    texts: pa.LargeStringArray
    beside: Sequence[pa.LargeStringArray]
    n_line_ends: int
    messages: pa.LargeStringArray | None = None
    wrong: Mapping[int, WrongValue] = MappingProxyType({})


LineReader = Callable[[bytes, int], Lines]
"""Takes whole lines and the number of the first one, from 1."""


def line_reader(shard: Shard, reading: Reading, on_bad_line: OnBadLine | None = None) -> LineReader:
    """A function that reads the texts of lines, and what is beside them.

    A blank line holds no document. Other keys are skipped. Of a duplicate key, the last one counts. A bad line is one that is
    not a JSON object with a text (and with the columns that are parts of a document). For it, `on_bad_line` is called with its row
    counted from the first of these lines, and null is given in its place; without `on_bad_line`, CorpusError is raised.
    """
    keys = [LineKey(reading.text_column, "text_column", "a string", (str,))]
    one_by_one = _one_by_one(shard, keys, [str], lambda values: (b"", values[0]), reading.beside, on_bad_line)
    as_strings = [column for column in reading.beside if not column.is_json]
    as_json = reading.beside[len(as_strings) :]
    names = list(dict.fromkeys(column.name for column in as_strings))
    read_json = _one_by_one(shard, [], [], lambda _: (b"", ""), as_json, None)

    def read(lines: bytes, first_line: int) -> Lines:
        found = None if reading.text_column in names else _core.json_lines(lines, reading.text_column, names)
        if found is None:
            return one_by_one(lines, first_line)._replace(messages=None)
        texts, values, n_line_ends = found
        beside = [values[names.index(column.name)] for column in as_strings]
        if not as_json:
            return Lines(texts, beside, n_line_ends)
        of_json = read_json(lines, first_line)
        return Lines(texts, [*beside, *of_json.beside], n_line_ends, None, of_json.wrong)

    return read


def conversation_reader(
    shard: Shard, maker: Maker, reading: Reading, on_bad_line: OnBadLine | None = None
) -> LineReader:
    """A function that reads the conversations of lines, and what is beside them, in the same way. A line of which `maker` makes no
    conversation is bad, too. A line may lack the key of the tools."""
    keys = list(map(_key, maker.columns, maker.params))
    kinds: list[Any] = [_TYPES[param] for param in maker.params]
    n_values = len(keys)
    return _one_by_one(shard, keys, kinds, lambda values: maker.make(values[:n_values]), reading.beside, on_bad_line)


def _add_parts(
    columns: Sequence[Column], keys: Sequence[LineKey], kinds: Sequence[Any]
) -> dict[str, tuple[LineKey, Any]]:
    """The keys of a document with their types, by name, and those of the columns that are parts of it."""
    parts = {key.name: (key, kind) for key, kind in zip(keys, kinds, strict=True)}
    n_of_document = len(parts)
    for column in columns:
        if column.is_part and column.name in list(parts)[:n_of_document]:  # of a template, which cannot be null then
            what = "id" if column.param == "id_column" else "group"
            parts[column.name] = (parts[column.name][0]._replace(expected=f"a string, the {what}", kinds=(str,)), str)
        elif column.is_part:
            parts[column.name] = (key_beside(column), str | int)
    return parts


def _one_by_one(
    shard: Shard,
    keys: Sequence[LineKey],
    kinds: Sequence[Any],
    make: Callable[[Sequence[Any]], tuple[bytes, str]],
    columns: Sequence[Column],
    on_bad_line: OnBadLine | None,
) -> LineReader:
    """Reads each line by itself. `kinds`: the types of the keys' values. `make`: gives canonical JSON and text of these values.
    `columns`: what is read beside them."""
    parts = _add_parts(columns, keys, kinds)
    part_keys = [key for key, _ in parts.values()]
    beside_keys = {column.name: key_beside(column) for column in columns if column.name not in parts}
    decode, as_tuple = _decoder(shard, parts, beside_keys), msgspec.structs.astuple
    places = [[*parts, *beside_keys].index(column.name) for column in columns]

    def read(lines: bytes, first_line: int) -> Lines:
        texts: list[str | None] = []
        beside: list[list[str | None]] = [[] for _ in columns]
        wrong: dict[int, WrongValue] = {}
        messages: list[bytes | None] = []
        line_list = lines.split(b"\n")
        for number, line in enumerate(line_list, first_line):
            if not line or line.isspace():
                continue
            try:
                values = as_tuple(decode(line))
                json, text = make(values)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConversationError) as error:
                is_made = isinstance(error, ConversationError)
                fault = Fault(f"{error}.") if is_made else explain(shard, line, error, part_keys)
                give_up(shard, len(texts), number, line, fault, on_bad_line)
                texts.append(None)
                messages.append(None)
                for strings in beside:
                    strings.append(None)
            else:
                for strings, column, place in zip(beside, columns, places, strict=True):
                    try:
                        strings.append(_string(column, values[place]))
                    except ConversationError as error:
                        wrong[len(texts)] = WrongValue(column, Fault(str(error)))
                        strings.append(None)
                    except msgspec.DecodeError as error:
                        wrong[len(texts)] = WrongValue(column, explain(shard, line, error, [key_beside(column)]))
                        strings.append(None)
                texts.append(text)
                messages.append(json)
        found_beside = [pa.array(strings, pa.large_string()) for strings in beside]
        found = pa.array(messages, pa.large_binary()).view(pa.large_string())  # JSON of msgspec, which is UTF-8
        return Lines(pa.array(texts, pa.large_string()), found_beside, len(line_list) - 1, found, wrong)

    return read


_NAMES, _VALUES = msgspec.json.Decoder(str | int), msgspec.json.Decoder(Value)


def _string(column: Column, value: Any) -> str:
    """A value beside a document as Batch.columns has it. `value`: its JSON, or what was read of a part of the document. Raises
    ConversationError or msgspec.DecodeError for a wrong one."""
    if value is msgspec.UNSET:
        raise msgspec.ValidationError("missing")
    if isinstance(value, msgspec.Raw):
        value = (_VALUES if column.is_json else _NAMES).decode(value)
    elif not isinstance(value, Value if column.is_json else str | int):
        raise msgspec.ValidationError("of another type")
    return json_of(value) if column.is_json else str(value)


_TYPES = {
    "messages_column": list[Any] | str,
    "tools_column": list[Any] | str | None,
    "template": str | None,
    "pair": list[Any] | dict[str, Any] | str,
}


def _key(name: str, param: str) -> LineKey:
    match param:
        case "messages_column":
            return LineKey(name, param, "an array of messages, or its JSON text", (list, str))
        case "pair":
            return LineKey(name, param, "a text, a message or an array of messages", (list, dict, str))
        case "tools_column":
            of_tools = (list, str, type(None))
            return LineKey(name, param, "an array of tools, its JSON text, or null", of_tools, is_optional=True)
        case _:
            return LineKey(name, param, "a string or null", (str, type(None)), "so that it names keys that they have")


def _decoder(
    shard: Shard, parts: Mapping[str, tuple[LineKey, Any]], beside: Mapping[str, LineKey]
) -> Callable[[bytes], Any]:
    """Decodes a line into a struct whose fields v0, v1 and so on are the values of the parts of a document and, as JSON, those of
    the keys beside it."""
    keys = [key for key, _ in parts.values()] + [*beside.values()]
    fields: list[Any] = [
        (f"v{i}", kind, None) if key.is_optional else (f"v{i}", kind) for i, (key, kind) in enumerate(parts.values())
    ]
    fields += [(f"v{i}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for i in range(len(parts), len(keys))]
    names = {f"v{i}": key.name for i, key in enumerate(keys)}
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Document", fields, rename=names, gc=False, kw_only=True)).decode
    except ValueError as error:
        params = ", ".join(dict.fromkeys(shard.setting(key.param) for key in keys))
        raise CorpusError(params, f"{error}.", "Rename the key in the files.") from None
