"""The sections source and sources of params.yaml: which documents are read, and how."""

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.conversation_template import Template
from tokenmill.config.record import as_yaml
from tokenmill.config.section import Section, key
from tokenmill.config.sources import EPOCHS_MAX, Conversations, DocumentFormat, PairColumns, Reading
from tokenmill.special_tokens import SpecialTokensInText


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        return value
    raise ValueError(f"found {as_yaml(value)}; allowed: a glob, or a list of globs")


def _licenses(value: object) -> object:
    return [value] if isinstance(value, str) else value


Licenses = Annotated[list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")]], BeforeValidator(_licenses)]
"""Ids of licences, as the header of a dataset card on a Hugging Face hub names them."""

Globs = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_as_list)]


def share_or_number(value: object) -> object:
    is_share = isinstance(value, float) and 0 <= value < 1
    if not is_share and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"found {as_yaml(value)}; allowed: a share from 0 to below 1, or a whole number")
    return value


def _instead_of_others(value: Any, info: ValidationInfo) -> Any:
    for other in ("messages_column", "pair"):
        if value is not None and (found := info.data.get(other)) is not None:
            shown = repr(found) if isinstance(found, str) else as_yaml(found.model_dump())
            raise ValueError(f"found together with {other} {shown}; allowed: only one of the two")
    return value


class Pair(Section):
    """The columns or keys of preference pairs, each a text, a message or a list of messages."""

    prompt: str | None = key(
        None,
        "the column or key of the prompt; null: chosen and rejected are lists of messages that differ in the last one",
        "prompt",
        min_length=1,
    )
    chosen: str = key(..., "the column or key of the better answer", "chosen", min_length=1)
    rejected: str = key(..., "the column or key of the worse answer", "rejected", min_length=1)

    @field_validator("rejected")
    @classmethod
    def _three_columns(cls, rejected: str, info: ValidationInfo) -> str:
        if len({rejected, *info.data.values()}) < 1 + len(info.data):
            raise ValueError("found a column twice; allowed: different ones for prompt, chosen and rejected")
        return rejected


_OF_THE_INDEX = (
    *("id", "piece", "shard", "row", "file", "first_token", "n_tokens", "n_bytes", "sha256"),
    *("n_trained", "trained_end", "n_messages", "group", "split", "kept"),
)
"""The names that the columns of the document index have, or may get."""


def _other_columns(names: list[str]) -> list[str]:
    if taken := [name for name in names if name in _OF_THE_INDEX]:
        raise ValueError(
            f"found {taken[0]!r}; allowed: other names, since the document index has a column of this name"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"found {as_yaml(names)}; allowed: each of them once")
    return names


KeptColumns = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(max_length=100), AfterValidator(_other_columns)
]
"""The columns or keys whose values the document index has."""

SourcePair = Annotated[Pair | None, AfterValidator(_instead_of_others)]
SourceTemplate = Annotated[Template | None, AfterValidator(_instead_of_others)]


_NOT_IN_DVC = ("size", "nfiles")  # DVC ignores keys with these names in its run cache (treeverse/dvc#10296)


def seen_by_dvc(name: str) -> str:
    if name in _NOT_IN_DVC:
        raise ValueError(f"found {name!r}; allowed: other names, since DVC overlooks changes below a key of this name")
    return name


def plain_value(value: object) -> object:
    is_plain = value is None or isinstance(value, str | bool | int | float)
    if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"found {as_yaml(value)}; allowed: a text, a finite number, true, false or null")
    return value


PlainValue = Annotated[str | bool | int | float | None, BeforeValidator(plain_value)]


class Source(Section):
    """Which documents are read, how they are cut into work units, and what happens to bad ones."""

    glob: Globs = key(
        "data/raw/**/*",
        "the files of documents, called shards: a glob or a list of globs. They are relative to this file's folder, or URLs like "
        "s3://BUCKET/**/*",
        "[data/raw/a/*.parquet, data/raw/b/*.jsonl]",
    )
    text_column: str = key(
        "text", "the column (Parquet, csv) or key (JSON) that holds a document's text", "content", min_length=1
    )
    id_column: str | None = key(
        "id", "the column or key of a document's id; null: the row in the shard, from 0", "url", min_length=1
    )
    text_separator: str | None = key(
        None,
        "for plain text: the string between documents; null: each file is one document",
        '"<|endoftext|>"',
        min_length=1,
    )
    license: Licenses | None = key(
        None,
        "the licence of the documents for the dataset's card, by its id on Hugging Face, or a list of ids; null: the card names "
        "none. A change encodes nothing again: only the card differs",
        "cc-by-4.0",
    )
    sources_strict: bool = key(
        False, "whether a file below data/raw that no glob matches is an error; false: a note names such files", "true"
    )
    format: DocumentFormat | None = key(
        None,
        "the format of the files: parquet, arrow, jsonl (an object a line), json (also one array of objects), csv, tsv, or text "
        "(each file is a document, whatever its name, and its path is the id); null: their names say it",
        "text",
    )
    messages_column: str | None = key(
        None,
        "for conversations instead of texts: the column or key that holds a list of messages (role and content, or from and "
        "value), or such a list as JSON text; null: documents are texts",
        "messages",
        min_length=1,
    )
    pair: SourcePair = key(
        None,
        "instead of messages_column: the columns of preference pairs. Set encode.chat.turns: pair, too; null: no pairs",
        "{prompt: prompt, chosen: chosen, rejected: rejected}",
    )
    tools_column: str | None = key(
        None,
        "with messages_column or pair: the column or key that holds a list of the tools that the messages may call, or such a list "
        "as JSON text; null: none",
        "tools",
        min_length=1,
    )
    template: SourceTemplate = key(
        None,
        "instead of messages_column: makes a conversation of each row's columns. A part whose columns are all empty is left out, "
        "and the parts of a message are joined by a blank line; null: no template",
        '{user: ["{instruction}", "Input:\\n{input}"], assistant: "{output}"}',
    )
    keep_columns: KeptColumns = key(
        [],
        "columns or keys whose values the document index has, in data/tables/documents.parquet, to filter by them: strings, "
        "integers, numbers, true or false, or null",
        "[lang, stars]",
    )
    unit_bytes_min: int = key(
        1_000_000,
        "smaller shards are put together in units, by named source, or else by folder of data/raw; 0: none are",
        "0",
        ge=0,
    )
    unit_bytes_max: int = key(
        64_000_000,
        "the most bytes of input in one unit of work, which makes one file of the dataset. A larger .jsonl is cut between lines, a "
        "larger .csv between records, a larger .parquet between row groups; any other file is one unit, whatever its size",
        "256000000",
        ge=1,
    )
    on_bad_document: Literal["fail", "quarantine"] = key(
        "fail",
        "for a document that is null, not UTF-8 or not JSON, or a row of a .csv with too many or too few values. fail: the build "
        "stops. quarantine: the document is left out, and kept in data/quarantine with shard, row, reason and bytes",
        "quarantine",
    )
    bad_documents_max: Annotated[int | float, BeforeValidator(share_or_number)] = key(
        0.001, "more bad documents than this stop the build: a share of all documents (below 1), or a number", "1000"
    )
    on_bad_shard: Literal["fail", "quarantine"] = key(
        "fail",
        "for a truncated or damaged shard. fail: the build stops. quarantine: the shard is left out and listed in data/quarantine "
        "(of a shard cut into several units, only the damaged units are left out)",
        "quarantine",
    )
    drop: str | None = key(
        None,
        "a .csv or .parquet file with the documents to leave out, relative to this folder: columns id or digest (sha256 of the "
        "text), and reason. Name it in dvc.yaml's deps of count, encode and validate, too; null: none",
        "drop.csv",
        min_length=1,
    )
    min_chars: int = key(
        0,
        "documents with fewer Unicode characters than this are left out. A conversation has those of the contents of its messages, "
        "joined by line ends, as they are counted; 0: none are left out",
        "20",
        ge=0,
        lt=2**63,
    )
    filters: dict[Annotated[str, AfterValidator(seen_by_dvc)], PlainValue] = key(
        {},
        "filters that other installed packages add, by their names, with the value that each takes",
        "{shouting: 0.5}",
    )

    @field_validator("unit_bytes_max")
    @classmethod
    def _large_is_not_small(cls, unit_bytes_max: int, info: ValidationInfo) -> int:
        if unit_bytes_max < (smallest := info.data.get("unit_bytes_min", 0)):
            raise ValueError(f"found {unit_bytes_max}; allowed: unit_bytes_min ({smallest}) or more")
        return unit_bytes_max

    @field_validator("tools_column")
    @classmethod
    def _only_with_messages(cls, tools_column: str | None, info: ValidationInfo) -> str | None:
        if tools_column is not None and info.data.get("messages_column", "") is None and info.data.get("pair") is None:
            raise ValueError(
                f"found {tools_column!r} without messages_column; allowed: with messages_column or pair, or null"
            )
        return tools_column

    @property
    def conversations(self) -> Conversations | None:
        """How rows become conversations; None if documents are texts."""
        return _conversations(self.messages_column, self.tools_column, self.template, self.pair)


SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64), AfterValidator(seen_by_dvc)]


class NamedSource(Section):
    """A source of documents. What is not here is in `source`, and applies to each of them."""

    glob: Globs = key(..., "the files of the source: a glob or a list of globs", "data/raw/web/**/*")
    license: Licenses | None = key(
        None, "the licence of its documents for the dataset's card; null: that of `source`", "cc-by-4.0"
    )
    format: DocumentFormat | None = key(
        None, "the format of its files, whatever their names; without the key, that of `source`", "text"
    )
    text_column: str | None = key(
        None, "the column or key that holds a document's text; null: that of `source`", "content", min_length=1
    )
    id_column: str | None = key(
        None,
        "the column or key that holds its id, or null for rows; without the key, that of `source`",
        "url",
        min_length=1,
    )
    text_separator: str | None = key(
        None,
        "for plain text: the string between documents, or null; without the key, that of `source`",
        '"<|endoftext|>"',
        min_length=1,
    )
    messages_column: str | None = key(
        None, "the column or key that holds a list of messages; null: that of `source`", "messages", min_length=1
    )
    pair: SourcePair = key(
        None,
        "the columns of preference pairs, in place of `messages_column`; null: those of `source`",
        "{prompt: prompt, chosen: chosen, rejected: rejected}",
    )
    tools_column: str | None = key(
        None, "the column or key that holds the tools of its messages; null: that of `source`", "tools", min_length=1
    )
    template: SourceTemplate = key(
        None,
        "how rows become conversations, in place of `messages_column`; null: that of `source`",
        '{user: "{question}", assistant: "{answer}"}',
    )
    keep_columns: KeptColumns | None = key(
        None, "the columns or keys whose values the document index has; null: those of `source`", "[lang]"
    )
    special_tokens_in_text: SpecialTokensInText | None = key(
        None, "a special token's text in its documents; null: that of `encode`", "allow"
    )
    epochs: float | None = key(
        None,
        "how often each document is used in the files for training jobs; null without `tokens`: once",
        "1.5",
        gt=0,
        le=EPOCHS_MAX,
    )
    tokens: int | None = key(None, "a budget of tokens in place of `epochs`; null: none", "1000000000", gt=0)

    @field_validator("tokens")
    @classmethod
    def _one_weight(cls, tokens: int | None, info: ValidationInfo) -> int | None:
        if tokens is not None and (epochs := info.data.get("epochs")) is not None:
            raise ValueError(f"found together with epochs {epochs:g}; allowed: only one of the two")
        return tokens


def id_column_of(one: NamedSource, source: Source) -> str | None:
    return one.id_column if "id_column" in one.model_fields_set else source.id_column


def reading_of(named_source: NamedSource, source: Source) -> Reading:
    """How the documents of a named source are read: by its own keys, or else by those of `source`."""
    has_separator = "text_separator" in named_source.model_fields_set
    return Reading(
        named_source.text_column or source.text_column,
        id_column_of(named_source, source),
        named_source.text_separator if has_separator else source.text_separator,
        conversations_of(named_source, source),
    )


def conversations_of(named_source: NamedSource, source: Source) -> Conversations | None:
    """How rows of a named source become conversations: by its own keys, or else by those of `source`."""
    if named_source.template is not None:
        return _conversations(None, None, named_source.template)
    if pair := named_source.pair or (source.pair if named_source.messages_column is None else None):
        return _conversations(None, named_source.tools_column or source.tools_column, None, pair)
    if named_source.messages_column is None and source.messages_column is None:
        return source.conversations
    return _conversations(
        named_source.messages_column or source.messages_column,
        named_source.tools_column or source.tools_column,
        template=None,
    )


def _conversations(
    column: str | None, tools_column: str | None, template: Template | None, pair: Pair | None = None
) -> Conversations | None:
    if column is None and template is None and pair is None:
        return None
    parts = None if template is None else tuple((role, tuple(parts)) for role, parts in template.items())
    return Conversations(column, tools_column, parts, None if pair is None else PairColumns(**pair.model_dump()))
