"""How documents are read from their files: as the manifest says it, and the source of documents that it stands for."""

from dataclasses import asdict, fields

from tokenmill.config.source_params import Pair
from tokenmill.config.sources import Conversations, DocumentSource, PairColumns, Reading
from tokenmill.dataset.entries import ConversationsEntry, ReadingEntry
from tokenmill.special_tokens import SpecialTokensInText

_AS_THEY_ARE = [field.name for field in fields(Reading) if field.name not in ("conversations", "columns")]
"""The fields of a Reading that stand in the manifest as they are."""


def reading_of(source: DocumentSource) -> ReadingEntry:
    """The manifest's entry of how the documents of a source are read."""
    conversations = source.reading.conversations
    return ReadingEntry(
        **{name: getattr(source.reading, name) for name in _AS_THEY_ARE},
        conversations=None if conversations is None else _entry_of(conversations),
        format=source.format,
        keep_columns=list(source.keep_columns),
    )


def source_of(
    reading: ReadingEntry, name: str | None, special: SpecialTokensInText, epochs: float | None, tokens: int | None
) -> DocumentSource:
    """The inverse of `reading_of`, without globs, since a manifest names the files."""
    conversations = None if reading.conversations is None else _conversations_of(reading.conversations)
    return DocumentSource(
        name,
        (),
        Reading(**{name: getattr(reading, name) for name in _AS_THEY_ARE}, conversations=conversations),
        special,
        epochs,
        tokens,
        reading.format,
        tuple(reading.keep_columns),
    )


def _entry_of(conversations: Conversations) -> ConversationsEntry:
    parts = conversations.template
    return ConversationsEntry(
        messages_column=conversations.column,
        tools_column=conversations.tools_column,
        template=None if parts is None else {role: list(some) for role, some in parts},
        pair=None if conversations.pair is None else Pair(**asdict(conversations.pair)),
    )


def _conversations_of(entry: ConversationsEntry) -> Conversations:
    parts = entry.template
    template = None if parts is None else tuple((role, tuple(some)) for role, some in parts.items())
    pair = None if entry.pair is None else PairColumns(**entry.pair.model_dump())
    return Conversations(entry.messages_column, entry.tools_column, template, pair)
