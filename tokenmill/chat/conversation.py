"""Reads a conversation from its canonical JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.errors import ChatError

_TRAIN_KEYS = frozenset(("weight", "loss", "loss_scale", "train", "training"))
"""The keys of a message that say whether to train on it, in the formats of OpenAI, ms-swift and axolotl."""
_OF_PARTS = ("train_detail", "training_detail")
"""axolotl's keys for parts of a message."""


class Conversation(msgspec.Struct):
    """The messages of a conversation, and the tools for the template. `next`: the message behind a sample, which is not part of
    it."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    next: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(Conversation)


def read_conversation(text: str, index: int) -> Conversation:
    """Parses canonical JSON. Copies a message's reasoning_content to `thinking`, which the template of gpt-oss reads, as
    transformers does.

    Raises ChatError, with the index, if it is no conversation."""
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


def chosen(
    messages: Sequence[dict[str, Any]], mask: str, train_key: str | None, index: int
) -> tuple[list[int], list[int]]:
    """The numbers, from 0, of the assistant's messages, and of the messages that the mask needs: for `assistant` and `last` the
    trained ones, for `all` the excluded ones, for `none` none. A message can exclude itself by a key; `train_key` is one more such
    key. Raises ChatError for a key with another value, and with `none` for a conversation that ends with an answer."""
    keys = _TRAIN_KEYS if train_key is None else {*_TRAIN_KEYS, train_key}
    looked_at = {*keys, *_OF_PARTS}
    assistants, withheld = [], []
    for i, message in enumerate(messages):
        if message.get("role") == "assistant":
            assistants.append(i)
        if looked_at.isdisjoint(message):
            continue
        says = {key: message[key] for key in message if key in keys}
        if says:
            _check_said(says, messages, i, index)
        if cut := next((key for key in _OF_PARTS if message.get(key)), None):
            raise ChatError(
                index,
                f"{named(messages, i)}: {cut}: parts of a message cannot be left out of what is learned. Remove the key.",
            )
        if all(says.values()):
            continue
        if message.get("role") == "assistant":
            withheld.append(i)
        elif mask == "all":
            key, value = next(iter(says.items()))
            raise ChatError(
                index,
                f"{named(messages, i)}: {key} {msgspec.json.encode(value).decode()}; with mask: all, only a message of the "
                "assistant can be left out of what is learned. Remove the key, or set mask: assistant.",
            )
    if mask == "all":
        return assistants, withheld
    if mask == "none":
        if assistants[-1:] == [len(messages) - 1]:
            raise ChatError(
                index,
                f"{named(messages, len(messages) - 1)}: the conversation ends with an answer; with mask: none, expected one that "
                "ends before an answer. Leave the answer out, or set encode.chat.mask: last, which trains it.",
            )
        return assistants, []
    learned: Iterable[int] = assistants if mask == "assistant" else assistants[-1:]
    return assistants, [i for i in learned if i not in withheld]


def _check_said(says: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], i: int, index: int) -> None:
    """Raises ChatError if a message's keys disagree whether to train on it, or one is not true, false, 0 or 1."""
    for key, value in says.items():
        if not isinstance(value, int | float) or value not in (0, 1):
            raise ChatError(index, f"{named(messages, i)}: {key} {value!r:.40}; expected true, false, 0 or 1.")
    if len(set(map(bool, says.values()))) > 1:
        found = " and ".join(f"{key} {value!r}" for key, value in says.items())
        raise ChatError(index, f"{named(messages, i)}: {found} contradict each other. Remove the wrong one.")


def named(messages: Sequence[Mapping[str, Any]], i: int) -> str:
    """Names a message by its number from 0 and its role."""
    return f"message {i} ({messages[i].get('role', 'without a role')!s:.40})"
