"""Reads a conversation from its canonical JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.errors import ChatError


class Conversation(msgspec.Struct):
    """Messages, and the tools that the template shows."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None


_decoder = msgspec.json.Decoder(Conversation)


def read_conversation(text: str, index: int) -> Conversation:
    """The conversation. A message's reasoning_content is under `thinking`, too, which the template of gpt-oss reads. So does
    transformers.

    Raises ChatError, with the index, for what is no conversation."""
    try:
        conversation = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ChatError(
            index, f"expected the JSON of a conversation, with messages; found {text!r:.60}: {error}."
        ) from None
    if '"reasoning_content"' in text:
        conversation.messages = [_with_thinking(message) for message in conversation.messages]
    return conversation


def _with_thinking(message: dict[str, Any]) -> dict[str, Any]:
    return {"thinking": message["reasoning_content"], **message} if "reasoning_content" in message else message


def chosen(messages: Sequence[dict[str, Any]], mask: str, index: int) -> tuple[list[int], list[int]]:
    """The messages of the assistant, and those of them that a mask needs, by number from 0: for `assistant` and `last` those to
    learn, for `all` those to leave out. A message of weight 0 is not learned. Raises ChatError for another weight than 0 or 1."""
    assistants, withheld = [], []
    for i, message in enumerate(messages):
        if message.get("role") == "assistant":
            assistants.append(i)
        weight = message.get("weight", 1)
        if weight == 1:
            continue
        if weight != 0:
            raise ChatError(index, f"{named(messages, i)}: weight {weight!r:.40}; expected 0 or 1.")
        if message.get("role") == "assistant":
            withheld.append(i)
        elif mask == "all":
            raise ChatError(
                index,
                f"{named(messages, i)}: weight 0; with mask: all, only a message of the assistant can be left out of what is "
                "learned. Remove the weight, or set mask: assistant.",
            )
    if mask == "all":
        return assistants, withheld
    learned: Iterable[int] = assistants if mask == "assistant" else assistants[-1:]
    return assistants, [i for i in learned if i not in withheld]


def named(messages: Sequence[Mapping[str, Any]], i: int) -> str:
    """A message in words: its number from 0, and its role."""
    return f"message {i} ({messages[i].get('role', 'without a role')!s:.40})"
