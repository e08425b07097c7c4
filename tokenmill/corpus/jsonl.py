"""Reads texts, or conversations, and what is beside them from lines of JSON."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.line_faults import Fault, LineKey, OnBadLine, explain, give_up, key_beside
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError


class Lines(NamedTuple):
    """The documents of some lines: texts, the values of each column beside them and canonical JSON of conversations as
    large_string, null for bad lines, and the number of line ends. `messages` are None where documents are texts."""

    texts: pa.LargeStringArray
    beside: Sequence[pa.LargeStringArray]
    n_line_ends: int
    messages: pa.LargeStringArray | None = None


LineReader = Callable[[bytes, int], Lines]
"""Takes whole lines and the number of the first one, from 1."""


def line_reader(shard: Shard, reading: Reading, on_bad_line: OnBadLine | None = None) -> LineReader:
    """A function that reads the texts of lines, and what is beside them.

    A blank line holds no document. Other keys are skipped. Of a duplicate key, the last one counts. A bad line is one that is
    not a JSON object with a text (and what is needed beside it: strings or integers). For it, `on_bad_line` is called with its row
    counted from the first of these lines, and null is given in its place; without `on_bad_line`, CorpusError is raised.
    """
    text_column, names = reading.text_column, [column.name for column in reading.beside]
    keys, kinds = [LineKey(text_column, "text_column", "a string", (str,))], [str]
    places = _add_beside(reading.beside, keys, kinds)
    one_by_one = _one_by_one(shard, keys, kinds, lambda values: (b"", values[0]), places, on_bad_line)

    def read(lines: bytes, first_line: int) -> Lines:
        found = None if text_column in names else _core.json_lines(lines, text_column, names)
        return one_by_one(lines, first_line)._replace(messages=None) if found is None else Lines(*found)

    return read


def conversation_reader(
    shard: Shard, maker: Maker, reading: Reading, on_bad_line: OnBadLine | None = None
) -> LineReader:
    """A function that reads the conversations of lines, and what is beside them, in the same way. A line of which `maker` makes no
    conversation is bad, too. A line may lack the key of the tools."""
    keys = list(map(_key, maker.columns, maker.params))
    kinds: list[Any] = [_TYPES[param] for param in maker.params]
    n_values = len(keys)
    places = _add_beside(reading.beside, keys, kinds)
    return _one_by_one(shard, keys, kinds, lambda values: maker.make(values[:n_values]), places, on_bad_line)


def _add_beside(columns: Sequence[Column], keys: list[LineKey], kinds: list[Any]) -> list[int]:
    """Adds the columns that are read beside the documents to the keys, and their types to `kinds`. Gives the place of each: that of
    a part of the document, such as a column of a template, if it is one."""
    names = [key.name for key in keys]
    for column in columns:
        if column.name not in names:
            keys.append(key_beside(column))
            kinds.append(str | int if column.is_needed else Any)
        elif column.is_needed:  # and cannot be null then
            place = names.index(column.name)
            what = "id" if column.param == "id_column" else "group"
            keys[place], kinds[place] = keys[place]._replace(expected=f"a string, the {what}", kinds=(str,)), str
    names = [key.name for key in keys]
    return [names.index(column.name) for column in columns]


def _one_by_one(
    shard: Shard,
    keys: Sequence[LineKey],
    kinds: Sequence[Any],
    make: Callable[[Sequence[Any]], tuple[bytes, str]],
    places: Sequence[int],
    on_bad_line: OnBadLine | None,
) -> LineReader:
    """Reads each line by itself. `kinds`: the types of the keys' values. `make`: gives canonical JSON and text of these values.
    `places`: which of them are given beside these."""
    decode, as_tuple = _decoder(shard, keys, kinds), msgspec.structs.astuple

    def read(lines: bytes, first_line: int) -> Lines:
        texts: list[str | None] = []
        beside: list[list[str | None]] = [[] for _ in places]
        messages: list[bytes | None] = []
        parts = lines.split(b"\n")
        for number, line in enumerate(parts, first_line):
            if not line or line.isspace():
                continue
            try:
                values = as_tuple(decode(line))
                json, text = make(values)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConversationError) as error:
                is_made = isinstance(error, ConversationError)
                fault = Fault(f"{error}.") if is_made else explain(shard, line, error, keys)
                give_up(shard, len(texts), number, line, fault, on_bad_line)
                texts.append(None)
                messages.append(None)
                for strings in beside:
                    strings.append(None)
            else:
                texts.append(text)
                messages.append(json)
                for strings, place in zip(beside, places, strict=True):
                    value = values[place]
                    strings.append(str(value) if type(value) in (str, int) else None)
        found_beside = [pa.array(strings, pa.large_string()) for strings in beside]
        found = pa.array(messages, pa.large_binary()).view(pa.large_string())  # JSON of msgspec, which is UTF-8
        return Lines(pa.array(texts, pa.large_string()), found_beside, len(parts) - 1, found)

    return read


_TYPES = {
    "messages_column": list[Any] | str,
    "tools_column": list[Any] | str | None,
    "template": str | None,
    "pair": list[Any] | dict[str, Any] | str,
    "keep_columns": str | int | float | bool | None,
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
        case "keep_columns":
            of_values = (str, int, float, bool, type(None))
            return LineKey(name, param, "a string, a number, true, false or null", of_values, "to keys that they have")
        case _:
            return LineKey(name, param, "a string or null", (str, type(None)), "so that it names keys that they have")


def _decoder(shard: Shard, keys: Sequence[LineKey], kinds: Sequence[Any]) -> Callable[[bytes], Any]:
    """Decodes a line into a struct whose fields v0, v1 and so on are the values of the keys."""
    fields = [
        (f"v{i}", kind, None) if key.is_optional else (f"v{i}", kind)
        for i, (key, kind) in enumerate(zip(keys, kinds, strict=False))
    ]
    names = {f"v{i}": key.name for i, key in enumerate(keys)}
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Document", fields, rename=names, gc=False, kw_only=True)).decode
    except ValueError as error:
        params = ", ".join(dict.fromkeys(shard.setting(key.param) for key in keys))
        raise CorpusError(params, f"{error}.", "Rename the key in the files.") from None
