"""A source of documents as a build reads it: params.yaml with its defaults filled in."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tokenmill.special_tokens import SpecialTokensInText

DocumentFormat = Literal["parquet", "arrow", "jsonl", "json", "text"]
"""The formats of files of documents, which tokenmill.corpus.kinds describes."""

EPOCHS_MAX = 1000
"""How often a document of a source may be used in one epoch, at most: a larger number is a slip, and would run for hours."""


@dataclass(frozen=True)
class Conversations:
    """How rows of a source become conversations: from a column of messages, or from several columns by a template.

    `column`: the column of messages; None with a template. `tools_column`: the column of tools that go with the messages.
    `template`: the parts of each role's message, in the order of the messages; None with a column.
    """

    column: str | None
    tools_column: str | None
    template: tuple[tuple[str, tuple[str, ...]], ...] | None


@dataclass(frozen=True)
class DocumentSource:
    """How the documents of some shards are read, and how often each is used. `name`: that in `sources`; None for the one source
    that `source.glob` is. `globs`: of its shards, relative to the project's folder; none where a manifest names the shards.

    `epochs`: how often each document is used. `tokens`: the budget of tokens in its place. One of them is None. `conversations`:
    None where documents are texts. `format`: that of its files; None: their names say it.
    """

    name: str | None
    globs: tuple[str, ...]
    text_column: str
    id_column: str | None
    text_separator: str | None
    special_tokens_in_text: SpecialTokensInText
    epochs: float | None
    tokens: int | None
    conversations: Conversations | None = None
    format: DocumentFormat | None = None

    @property
    def columns(self) -> tuple[str, str | None, str | None, Conversations | None]:
        """Text column, id column, separator and conversations, as `read_batches` takes them."""
        return self.text_column, self.id_column, self.text_separator, self.conversations

    def reading(self) -> dict[str, Any]:
        """The part of a unit's key that says how its documents are read."""
        found: dict[str, Any] = {"text": self.text_column, "id": self.id_column, "separator": self.text_separator}
        return found if self.conversations is None else found | {"conversations": asdict(self.conversations)}

    @property
    def section(self) -> str:
        """Where params.yaml has its keys."""
        return "source" if self.name is None else f"sources.{self.name}"
