"""Conversations with the ids that a tokenizer's own chat template gives."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.errors import ChatError, TemplateError
from tokenmill.tokenizer.chat_files import DEFAULT, chat_templates_of, special_names
from tokenmill.tokenizer.tokenizer import Tokenizer

Messages = list[dict[str, str]]


class GoldenConversations(NamedTuple):
    """Conversations with their ids. `why`: why there are none, for a template that refuses them all."""

    encoded: list[tuple[Messages, list[int]]]
    why: str | None = None


def encoded_conversations(folder: Path, tokenizer: Tokenizer, texts: Iterable[str], n: int) -> GoldenConversations:
    """Up to `n` conversations with these texts, by the default chat template of the tokenizer in a folder; none if it has none.
    Texts with special tokens are left out, since libraries make ids of these. So are conversations that the template refuses, and
    all of a template that may write the day, since the libraries ask the clock."""
    template = chat_templates_of(folder).get(DEFAULT)
    plain = [text for text in texts if not any(token in text for token in tokenizer.special_tokens)]
    if template is None or not plain:
        return GoldenConversations([])
    if "strftime_now" in template:
        return GoldenConversations([], "the chat template writes the day on which it is asked")
    why = None
    encoded = []
    try:
        encoder = ChatEncoder(tokenizer, ChatSettings(template, "all", special_names(folder)), str(folder))
    except TemplateError as error:
        return GoldenConversations([], f"the chat template refuses them: {error}")
    for messages in conversations(plain, n):
        try:
            rendered = pa.array([msgspec.json.encode({"messages": messages}).decode()], pa.large_string())
            [ids] = encoder.encode_batch(rendered).input_ids.to_pylist()
        except ChatError as error:
            why = f"the chat template refuses them: {error}"
            continue
        encoded.append((messages, ids))
    return GoldenConversations(encoded, None if encoded else why)


def conversations(texts: Sequence[str], n: int) -> list[Messages]:
    """So many conversations of one to three turns with these texts, every third one with a message of the system."""
    left = cycle(texts)
    drawn = []
    for i in range(n):
        messages = [{"role": "system", "content": next(left)}] if i % 3 == 0 else []
        for _ in range(1 + i % 3):
            messages += [{"role": role, "content": next(left)} for role in ("user", "assistant")]
        drawn.append(messages)
    return drawn
