"""A source of documents as a build reads it: params.yaml with its defaults filled in."""

from dataclasses import dataclass

from tokenmill.special_tokens import SpecialTokensInText


@dataclass(frozen=True)
class DocumentSource:
    """How the documents of some shards are read, and how often each is used. `name`: that in `sources`; None for the one source
    that `source.glob` is. `globs`: of its shards, relative to the project's folder; none where a manifest names the shards.

    `epochs`: how often each document is used. `tokens`: the budget of tokens in its place. One of them is None.
    """

    name: str | None
    globs: tuple[str, ...]
    text_column: str
    id_column: str | None
    text_separator: str | None
    special_tokens_in_text: SpecialTokensInText
    epochs: float | None
    tokens: int | None

    @property
    def columns(self) -> tuple[str, str | None, str | None]:
        """Text column, id column and separator, as `read_batches` takes them."""
        return self.text_column, self.id_column, self.text_separator

    def reading(self) -> dict[str, str | None]:
        """The part of a unit's key that says how its documents are read."""
        return {"text": self.text_column, "id": self.id_column, "separator": self.text_separator}

    @property
    def section(self) -> str:
        """Where params.yaml has its keys."""
        return "source" if self.name is None else f"sources.{self.name}"
