"""Reads texts, or conversations, and ids from lines of JSON."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.config.sources import Reading
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.line_faults import Fault, LineKey, OnBadLine, explain, give_up, id_keys
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError


class Lines(NamedTuple):
    """The documents of some lines: texts, ids and canonical JSON of conversations as large_string, null for bad lines, and the
    number of line ends. `ids` are None without an id column, `messages` where documents are texts."""

    texts: pa.LargeStringArray
    ids: pa.LargeStringArray | None
    n_line_ends: int
    messages: pa.LargeStringArray | None = None


LineReader = Callable[[bytes, int], Lines]
"""Takes whole lines and the number of the first one, from 1."""


def line_reader(shard: Shard, reading: Reading, on_bad_line: OnBadLine | None = None) -> LineReader:
    """A function that reads the texts and ids of lines.

    A blank line holds no document. Other keys are skipped. Of a duplicate key, the last one counts. A bad line is one that is
    not a JSON object with a text (and an id: string or integer). For it, `on_bad_line` is called with its row counted from
    the first of these lines, and null is given in its place; without `on_bad_line`, CorpusError is raised.
    """
    text_column, id_column = reading.text_column, reading.id_column
    keys = [LineKey(text_column, "text_column", "a string", (str,)), *id_keys(reading)]
    id_at = None if id_column is None else 1
    one_by_one = _one_by_one(shard, keys, [str, str | int], lambda values: (b"", values[0]), id_at, on_bad_line)

    def read(lines: bytes, first_line: int) -> Lines:
        found = _core.json_lines(lines, text_column, id_column)
        return one_by_one(lines, first_line)._replace(messages=None) if found is None else Lines(*found)

    return read


def conversation_reader(
    shard: Shard, maker: Maker, reading: Reading, on_bad_line: OnBadLine | None = None
) -> LineReader:
    """A function that reads the conversations and ids of lines, in the same way. A line of which `maker` makes no conversation is
    bad, too. A line may lack the key of the tools."""
    keys = list(map(_key, maker.columns, maker.params))
    kinds: list[Any] = [_TYPES[param] for param in maker.params]
    n_values = len(keys)
    id_at: int | None = None
    if reading.id_column in maker.columns:  # a column of the template, which cannot be null then
        id_at = maker.columns.index(reading.id_column)
        kinds[id_at] = str
        what = "id" if reading.id_param == "id_column" else "group"
        keys[id_at] = keys[id_at]._replace(expected=f"a string, the {what}", kinds=(str,))
    elif reading.id_column is not None:
        id_at = n_values
        keys += id_keys(reading)
        kinds.append(str | int)
    return _one_by_one(shard, keys, kinds, lambda values: maker.make(values[:n_values]), id_at, on_bad_line)


def _one_by_one(
    shard: Shard,
    keys: Sequence[LineKey],
    kinds: Sequence[Any],
    make: Callable[[Sequence[Any]], tuple[bytes, str]],
    id_at: int | None,
    on_bad_line: OnBadLine | None,
) -> LineReader:
    """Reads each line by itself. `kinds`: the types of the keys' values. `make`: gives canonical JSON and text of these values.
    `id_at`: which of them is the id."""
    decode, as_tuple = _decoder(shard, keys, kinds), msgspec.structs.astuple

    def read(lines: bytes, first_line: int) -> Lines:
        texts: list[str | None] = []
        ids: list[str | None] = []
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
                ids.append(None)
                messages.append(None)
            else:
                texts.append(text)
                ids.append(None if id_at is None else str(values[id_at]))
                messages.append(json)
        found_ids = None if id_at is None else pa.array(ids, pa.large_string())
        found = pa.array(messages, pa.large_binary()).view(pa.large_string())  # JSON of msgspec, which is UTF-8
        return Lines(pa.array(texts, pa.large_string()), found_ids, len(parts) - 1, found)

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
