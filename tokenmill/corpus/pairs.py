"""Makes a preference pair from a row: one prompt, and the two answers that `chosen` and `rejected` end with."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tokenmill.corpus.conversations import CanonicalConversation, ConversationError, of_messages

_encode = msgspec.json.Encoder().encode
_SIDES = ("chosen", "rejected")


class _Side(msgspec.Struct):
    """What is read of the canonical JSON of a side."""

    messages: list[dict[str, Any]]
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_Side)


def of_pair(prompt: Any, chosen: Any, rejected: Any, tools: Any) -> CanonicalConversation:
    """Makes a pair. `prompt`: a text of the user, a message, a list of messages, or None: then both answers have it before them.
    `chosen`, `rejected`: a list of messages, or with a prompt a message or a text of the assistant. Its canonical JSON is that of
    the conversation with the chosen answer, and a key `rejected` with the other answer.

    Raises ConversationError, also for equal and for empty answers.

    >>> of_pair("Hi", "Hello", "No", None).json
    b'{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}],"rejected":{"role":"assistant","content":"No"}}'
    """
    before = [] if prompt is None else _messages(prompt, "user", "prompt")
    sides = [_side(name, before, value, tools) for name, value in zip(_SIDES, (chosen, rejected), strict=True)]
    chosen_side, rejected_side = (_decoder.decode(side.json) for side in sides)
    n_prompt = len(before) if before else _n_equal(chosen_side.messages, rejected_side.messages)
    answers = [
        _answer(name, side.messages[n_prompt:], bool(before))
        for name, side in zip(_SIDES, (chosen_side, rejected_side), strict=True)
    ]
    if not n_prompt:
        raise ConversationError("chosen and rejected: expected the same messages before both answers; found none")
    if _words(answers[0]) == _words(answers[1]):
        raise ConversationError("chosen and rejected: expected two answers; found the same twice")
    whole: dict[str, Any] = {"messages": chosen_side.messages, "rejected": answers[1]}
    if chosen_side.tools is not msgspec.UNSET:
        whole["tools"] = chosen_side.tools
    return CanonicalConversation(_encode(whole), "\n".join(side.text for side in sides))


def _side(name: str, before: Sequence[Any], value: Any, tools: Any) -> CanonicalConversation:
    """The conversation with one of the answers."""
    if not before and isinstance(value, str | dict):
        found = "a text" if isinstance(value, str) else "one message"
        raise ConversationError(
            f"{name}: expected a list of messages that begins with the prompt; found {found}, and pair.prompt is not set"
        )
    answer = _messages(value, "assistant", name)
    try:
        return of_messages([*before, *answer], tools)
    except ConversationError as error:
        raise ConversationError(f"{name}: {error}") from None


def _messages(value: Any, role: str, name: str) -> Sequence[Any]:
    """The value as a list of messages."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, dict) and value:
        return [value]
    if not isinstance(value, list) or not value:
        found = type(value).__name__ if value else "nothing"
        raise ConversationError(f"{name}: expected a text, a message or a list of messages; found {found}")
    return value


def _n_equal(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of messages that both begin with. The last one of the shorter list is an answer."""
    most = min(len(one), len(other)) - 1
    return next((i for i in range(most) if one[i] != other[i]), max(most, 0))


def _answer(name: str, rest: Sequence[dict[str, Any]], has_prompt: bool) -> dict[str, Any]:
    """The answer, which is all that follows the prompt. `has_prompt`: whether a column of its own has the prompt."""
    roles = [message["role"] for message in rest]
    if roles != ["assistant"]:
        # UltraFeedback and others have the prompt in three columns.
        twice = has_prompt and len(roles) > 1 and roles[-1] == "assistant"
        fix = f". If {name} begins with the prompt, set pair.prompt to null" if twice else ""
        raise ConversationError(
            f"{name}: expected one message of the assistant behind the prompt; found {', '.join(roles) or 'none'}{fix}"
        )
    if not any(_words(rest[0]).values()):
        raise ConversationError(f"{name}: expected an answer; found an empty one")
    return rest[0]


def _words(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer says, without white space around it, which many templates remove."""
    return {
        key: found.strip() if isinstance(found := answer.get(key), str) else found
        for key in ("content", "reasoning_content", "tool_calls")
    }
