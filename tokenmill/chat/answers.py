"""Finds what an assistant's message says, and whether a rendered text contains it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

Side = Literal["content", "tool_calls", "reasoning"]
"""A part of what a message says."""
REASONING_KEYS = ("reasoning_content", "thinking")
LAST, FIRST, MIDDLE = slice(-1, None), slice(0, 1), slice(1, -1)
"""Which pieces of a side a template may leave out."""
_SPACE = re.compile(r"\s*")
_THOUGHT = re.compile(r"(\s*<think>.*?)(</think>)(.*)", re.DOTALL)
_TAGS = re.compile(r"(</?think>)")


class AnswerCounts(NamedTuple):
    """Counts of trained answers; an answer is a trained stretch of the assistant's text. `n_without_stop`: answers that do not end
    with a special token. `n_without_reasoning`: messages with other content whose reasoning the template leaves out."""

    n_answers: int = 0
    n_without_stop: int = 0
    n_without_reasoning: int = 0


def added(counts: Iterable[AnswerCounts]) -> AnswerCounts:
    """The sums of counts.

    >>> added([AnswerCounts(1, 0, 2), AnswerCounts(3, 1, 0)])
    AnswerCounts(n_answers=4, n_without_stop=1, n_without_reasoning=2)
    """
    return AnswerCounts(*map(sum, zip(AnswerCounts(), *counts, strict=True)))


class ModelAnswer(NamedTuple):
    """The content of a message without thinking, the names of the functions that it calls, and its reasoning."""

    content: str
    calls: list[str]
    reasoning: str

    def unseen(self, own: str | None, text: str) -> list[Side]:
        """The sides of the answer that are not found in the text, or may be there in part; the template may have rewritten them.
        `own`: the rendered message; None if unknown. `text`: the whole rendered conversation."""
        sides: list[Side] = []
        place = text if own is None else own
        if self.content.strip() and (_TAGS.search(self.content) or not _has_a_word(self.content, place)):
            sides.append("content")
        if self.calls and not all(
            name and (own or "").count(name) >= self.calls.count(name) for name in self.calls
        ):  # the list of tools contains these names, too
            sides.append("tool_calls")
        if self.reasoning.strip() and self.reasoning.strip() not in place:
            sides.append("reasoning")
        return sides

    def shown(self, side: Side, part: slice) -> str:
        """The pieces of a side that `without` removes, for messages."""
        if side == "tool_calls":
            return ", ".join(self.calls)
        return " ".join(_pieces(self.content if side == "content" else self.reasoning)[part])


def answer_of(message: Mapping[str, Any]) -> ModelAnswer:
    """The parts of a message's answer."""
    thought, _, content = _cut(message)
    calls = [tool_call.get("function", tool_call) for tool_call in message.get("tool_calls") or ()]
    names = [call.get("name") if isinstance(call, dict) else None for call in calls]
    reasoning = next((message[key] for key in REASONING_KEYS if key in message), thought.replace("<think>", "", 1))
    return ModelAnswer(content, [name if isinstance(name, str) else "" for name in names], reasoning)


def cut_thought(content: str) -> tuple[str, str, str]:
    """The reasoning that a content begins with, its closing tag, and the rest. Tags elsewhere in a content are text.

    >>> cut_thought("<think>so</think>Hi"), cut_thought("Write </think> here.")
    (('<think>so', '</think>', 'Hi'), ('', '', 'Write </think> here.'))
    """
    found = _THOUGHT.fullmatch(content)
    return (found[1], found[2], found[3]) if found else ("", "", content)


def _cut(message: Mapping[str, Any]) -> tuple[str, str, str]:
    """The content as `cut_thought` cuts it, but whole beside a key with the reasoning."""
    content = message.get("content")
    if not isinstance(content, str):
        return "", "", ""
    return ("", "", content) if any(key in message for key in REASONING_KEYS) else cut_thought(content)


def without(message: Mapping[str, Any], side: Side, part: slice) -> dict[str, Any]:
    """A copy of the message without some pieces of one side of its answer: the calls of tools, or the texts between the tags of
    thinking.

    >>> without({"content": "<think>so</think>Hi"}, "reasoning", LAST)
    {'content': '<think></think>Hi'}
    >>> without({"content": "First <think>so</think>Hi"}, "content", FIRST)
    {'content': '<think>so</think>Hi'}
    """
    if side == "tool_calls":
        kept = {key: value for key, value in message.items() if key != side}
        calls = list(message[side])
        del calls[part]
        return {**kept, side: calls} if calls else kept
    if side == "reasoning" and any(key in message for key in REASONING_KEYS):
        return {key: value for key, value in message.items() if key not in REASONING_KEYS}
    thought, tag, said = _cut(message)
    if side == "content":
        return {**message, "content": thought + tag + _without_pieces(said, part)}
    return {**message, "content": _without_pieces(thought, part) + tag + said}


def _pieces(text: str) -> list[str]:
    return [piece for piece in _TAGS.split(text)[::2] if piece.strip()]


def _without_pieces(text: str, part: slice) -> str:
    pieces = _TAGS.split(text)
    for i in [i for i in range(0, len(pieces), 2) if pieces[i].strip()][part]:
        pieces[i] = ""
    return "".join(pieces)


class Stops:
    """The special tokens that an answer may end with."""

    def __init__(self, special: Iterable[str]) -> None:
        self._texts = frozenset(text.strip() for text in special) - {""}
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)

    def end(self, answer: str) -> bool:
        """Whether an answer ends with such a token, ignoring white space after it."""
        answer = answer.rstrip()
        return any(answer[-n:] in self._texts for n in self._lengths)

    def end_without_space(self, text: str, start: int, end: int) -> int:
        """The end of an answer, before white space that follows such a token. `start`, `end`: where the answer is in the text.

        >>> Stops(["<end>"]).end_without_space("Hi <end>\\n", 0, 9)
        8
        """
        answer = text[start:end].rstrip()
        return start + len(answer) if self.end(answer) else end

    def end_of_next(self, text: str, start: int) -> int:
        """The end of such a token that follows `start` in the text, perhaps after white space; `start` if there is none.

        >>> Stops(["<|user|>"]).end_of_next("hello\\n<|user|>", 5)
        14
        """
        space = _SPACE.match(text, start)
        text_start = space.end() if space else start
        beginnings = (text[text_start : text_start + n] for n in self._lengths)
        return next((text_start + len(beginning) for beginning in beginnings if beginning in self._texts), start)

    def same_lines(self, prompt: str, text: str) -> int:
        """How many characters of a prompt the text begins with: whole lines, or up to a special token.

        >>> Stops([]).same_lines("assistant\\n<think>\\n", "assistant\\n<tool_call>")
        10
        """
        ends = (k for k in range(len(prompt), 0, -1) if prompt[k - 1] == "\n" or self.end(prompt[:k]))
        return next((k for k in ends if text.startswith(prompt[:k])), 0)


def _has_a_word(content: str, text: str) -> bool:
    if content.split(None, 1)[0] in text:
        return True
    folded = text.casefold()
    return any(word.casefold() in folded for word in content.split())
