"""Reads texts, or conversations, and what is beside them from lines of JSON."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokenmill import _core
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.column_kinds import ColumnKind, kind_of
from tokenmill.corpus.conversations import ConversationError, Maker
from tokenmill.corpus.kept_values import json_of
from tokenmill.corpus.line_faults import Fault, LineKeys, OnBadLine, WrongValue, explain, give_up
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
    text = {(column := Column(reading.text_column, "text_column")): kind_of(column)}
    one_by_one = _one_by_one(shard, text, lambda values: (b"", values[0]), reading.beside, on_bad_line)
    as_strings = [column for column in reading.beside if not kind_of(column).is_json]
    as_json = reading.beside[len(as_strings) :]
    names = list(dict.fromkeys(column.name for column in as_strings))
    read_json = _one_by_one(shard, {}, lambda _: (b"", ""), as_json, None)

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
    keys, n_values = {column: kind_of(column) for column in maker.columns}, len(maker.columns)
    return _one_by_one(shard, keys, lambda values: maker.make(values[:n_values]), reading.beside, on_bad_line)


def _with_parts(document: LineKeys, columns: Sequence[Column]) -> dict[Column, ColumnKind]:
    """The keys of a document, and those beside it that are parts of it as well."""
    keys, of_name = dict(document), {column.name: column for column in document}
    for column in columns:
        if kind_of(column).is_part and column.name in of_name:  # of a template, which cannot be null then
            what = "id" if column.param == "id_column" else "group"
            key = of_name[column.name]
            keys[key] = keys[key]._replace(in_lines=f"a string, the {what}", json=str)
        elif kind_of(column).is_part and column.name not in {key.name for key in keys}:
            keys[column] = kind_of(column)
    return keys


def _one_by_one(
    shard: Shard,
    document: LineKeys,
    make: Callable[[Sequence[Any]], tuple[bytes, str]],
    columns: Sequence[Column],
    on_bad_line: OnBadLine | None,
) -> LineReader:
    """Reads each line by itself. `document`: the keys of a document. `make`: gives canonical JSON and text of their values.
    `columns`: what is read beside them."""
    parts = _with_parts(document, columns)
    part_names = {column.name for column in parts}
    only_beside = list({column.name: column for column in columns if column.name not in part_names}.values())
    decode, as_tuple = _decoder(shard, parts, only_beside), msgspec.structs.astuple
    names = [column.name for column in [*parts, *only_beside]]
    places = [names.index(column.name) for column in columns]

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
                fault = Fault(f"{error}.") if is_made else explain(shard, line, error, parts)
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
                        wrong[len(texts)] = WrongValue(column, explain(shard, line, error, {column: kind_of(column)}))
                        strings.append(None)
                texts.append(text)
                messages.append(json)
        found_beside = [pa.array(strings, pa.large_string()) for strings in beside]
        found = pa.array(messages, pa.large_binary()).view(pa.large_string())  # JSON of msgspec, which is UTF-8
        return Lines(pa.array(texts, pa.large_string()), found_beside, len(line_list) - 1, found, wrong)

    return read


_decoder_of = cache(msgspec.json.Decoder)


def _string(column: Column, value: Any) -> str:
    """A value beside a document as Batch.columns has it. `value`: its JSON, or what was read of a part of the document. Raises
    ConversationError or msgspec.DecodeError for a wrong one."""
    kind = kind_of(column)
    if value is msgspec.UNSET:
        raise msgspec.ValidationError("missing")
    if isinstance(value, msgspec.Raw):
        value = _decoder_of(kind.json).decode(value)
    elif type(value) not in kind.types:
        raise msgspec.ValidationError("of another type")
    return json_of(value) if kind.is_json else str(value)


def _decoder(shard: Shard, parts: LineKeys, beside: Sequence[Column]) -> Callable[[bytes], Any]:
    """Decodes a line into a struct whose fields v0, v1 and so on are the values of the parts of a document and, as JSON, those of
    the keys beside it."""
    fields: list[Any] = [
        (f"v{i}", kind.json, None) if kind.is_optional else (f"v{i}", kind.json)
        for i, kind in enumerate(parts.values())
    ]
    columns = [*parts, *beside]
    fields += [(f"v{i}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for i in range(len(parts), len(columns))]
    names = {f"v{i}": column.name for i, column in enumerate(columns)}
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Document", fields, rename=names, gc=False, kw_only=True)).decode
    except ValueError as error:
        params = ", ".join(dict.fromkeys(shard.setting(column.param) for column in columns))
        raise CorpusError(params, f"{error}.", "Rename the key in the files.") from None
