"""Cuts an answer into its reasoning, content, calls of tools and the end of the turn, each with what the template writes for it."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from tokenmill.chat.origins import SignedText
from tokenmill.config.chat_params import AnswerPart

_CLOSING_TAGS = (r"</[^<>]*>", r"\[/[^\[\]]*\]")
_EMPTY_THINKING = re.compile(r".*</think>\s*", re.DOTALL)


class Stretch(NamedTuple):
    """The characters `start` to `end` - 1 of a rendered text, and what of an answer they are."""

    part: AnswerPart
    start: int
    end: int


class AnswerCutter:
    """Cuts answers. `special`: the texts of special tokens."""

    def __init__(self, special: Iterable[str]) -> None:
        texts = [re.escape(one) for one in sorted(special, key=len, reverse=True) if one]
        self._special = re.compile("|".join(texts) or r"(?!)")
        self._closing = re.compile(rf"(?:{'|'.join([*texts, *_CLOSING_TAGS])})\s*")

    def stretches(
        self, start: int, end: int, signed: SignedText, plain: str, messages: list[dict[str, Any]]
    ) -> list[Stretch]:
        """The parts of the answer that is the characters `start` to `end` - 1 of `plain`; `signed` is the same text with signs.

        Text of the template belongs to the part that it opens. But a special token or a closing tag behind the reasoning belongs to
        that, with white space behind it, and so does empty thinking. The last special token is the end.
        """
        stretches: list[Stretch] = []

        def add(part: AnswerPart, to: int) -> None:
            last_end = stretches[-1].end if stretches else start
            if last_end < to:
                stretches.append(Stretch(part, last_end, to))

        def add_closing(to: int) -> None:
            last_end = stretches[-1].end if stretches else start
            is_open = bool(stretches) and stretches[-1].part == "reasoning"
            closing = (
                self._closing.search(plain, last_end, to) if is_open else _EMPTY_THINKING.match(plain, last_end, to)
            )
            if closing is not None:
                add("reasoning", closing.end())

        sides = signed.sides(start, end, plain)
        for _, part, first, last in sides:
            if part != "reasoning":
                add_closing(first)
            add(part, last)
        stops = [
            match.start() for match in self._special.finditer(plain, stretches[-1].end if stretches else start, end)
        ]
        stop = stops[-1] if stops else end
        if not sides or sides[-1][1] == "reasoning":
            add_closing(stop)
        calls = any(messages[message].get("tool_calls") for message, *_ in sides)
        last_part = sides[-1][1] if sides else "content"
        add("tool_calls" if calls else "content" if last_part == "reasoning" else last_part, stop)
        add("end", end)
        return stretches
