"""A source of documents, with the defaults of params.yaml filled in."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec

from tokenmill.special_tokens import SpecialTokensInText

DocumentFormat = Literal["parquet", "arrow", "jsonl", "json", "csv", "tsv", "text"]
"""The formats of files of documents, which tokenmill.corpus.kinds describes."""

EPOCHS_MAX = 1000
"""The most passes over a source in one epoch. A larger number is a mistake, and would run for hours."""


@dataclass(frozen=True)
class PairColumns:
    """The columns of preference pairs: two answers to one prompt. `prompt`: None if both answers have it before them."""

    prompt: str | None
    chosen: str
    rejected: str


class Conversations(msgspec.Struct, frozen=True, omit_defaults=True):
    """How rows of a source become conversations: from a column of messages, from several columns by a template, or as pairs.

    `column`: the column of messages; None with a template or pairs. `tools_column`: the column of tools that go with the messages.
    `template`: the parts of each role's message, in the order of the messages; None without one. `pair`: None without pairs.
    """

    column: str | None
    tools_column: str | None
    template: tuple[tuple[str, tuple[str, ...]], ...] | None
    pair: PairColumns | None = None

    def as_key(self) -> dict[str, Any]:
        """The values for keys and digests. Only pairs have the key `pair`."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Column(NamedTuple):
    """A column of the documents' files. `param`: the key of params.yaml, or the option, that names it, which says what it holds
    (see tokenmill.corpus.column_kinds)."""

    name: str
    param: str


@dataclass(frozen=True)
class Reading:
    """How documents are read from files. `text_column`: the column or key of the texts. `id_column`: that of the ids; None: none
    are read. `text_separator`: what splits plain text into documents; None: a file is one document. `conversations`: how rows
    become conversations; None: documents are the texts of `text_column`. `columns`: what is read beside the documents and their
    ids; those of keep_columns come last."""

    text_column: str
    id_column: str | None = None
    text_separator: str | None = None
    conversations: Conversations | None = None
    columns: tuple[Column, ...] = ()

    @property
    def beside(self) -> tuple[Column, ...]:
        """All that is read beside the documents: first the ids, if there are any."""
        return self.columns if self.id_column is None else (Column(self.id_column, "id_column"), *self.columns)

    def as_key(self) -> dict[str, Any]:
        """The values that decide how documents are read, for the key of a unit."""
        found: dict[str, Any] = {"text": self.text_column, "id": self.id_column, "separator": self.text_separator}
        return found if self.conversations is None else found | {"conversations": self.conversations.as_key()}


@dataclass(frozen=True)
class DocumentSource:
    """How the documents of some shards are read, and how often each is used. `name`: its key in `sources`; None for the source of
    `source.glob`. `globs`: relative to the project's folder; empty if a manifest names the shards.

    `reading`: how its documents are read. `epochs`: how often each document is used. `tokens`: a budget of tokens instead. One of
    them is None. `format`: its files' format; None: names decide. `keep_columns`: the columns whose values the document index has.
    """

    name: str | None
    globs: tuple[str, ...]
    reading: Reading
    special_tokens_in_text: SpecialTokensInText
    epochs: float | None
    tokens: int | None
    format: DocumentFormat | None = None
    keep_columns: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Column, ...]:
        """The columns of `keep_columns`."""
        return tuple(Column(name, "keep_columns") for name in self.keep_columns)

    def reading_for_index(self, group: Column | None) -> Reading:
        """How its documents are read where the document index is made of them. `group`: the column of encode.split_group."""
        return replace(self.reading, columns=(*([] if group is None else [group]), *self.kept))

    @property
    def section(self) -> str:
        """The section of params.yaml with its keys."""
        return "source" if self.name is None else f"sources.{self.name}"
