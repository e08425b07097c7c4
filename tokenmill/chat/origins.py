"""Follows messages through a chat template: which message, and what of it, each character of the rendered text came from.

A template may split, strip, replace and join what it is given, and write an earlier answer otherwise than one that was just given.
So the conversation is rendered once more with a sign in place of each letter and digit of its messages, or of each symbol in a
string without them: a character that stands for the message and the side of it, such as its content or its reasoning. Other
characters stay, and so do roles, the ids of calls, and what the template looks for, such as `</think>`. But for signs, both texts
must be equal, so a template that does something else because of them is found out.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from tokenmill.chat.answers import REASONING_KEYS, cut_thought
from tokenmill.chat.conversation import Conversation
from tokenmill.config.chat_params import AnswerPart

_Side = Literal["content", "reasoning", "tool_calls", "name"]
_SIDES: tuple[_Side, ...] = get_args(_Side)
_FIRST = 0x100000
MESSAGES_MAX = 1 << 14
"""The signs are in the last of Unicode's planes for private use: message i and side j have _FIRST + MESSAGES_MAX j + i. Those of
names are the last, since a template may write a name with another message."""
_FIRST_OF_NAMES = chr(_FIRST + MESSAGES_MAX * (len(_SIDES) - 1))
_ANY = f"{chr(_FIRST)}-{chr(_FIRST + MESSAGES_MAX * len(_SIDES) - 1)}"
_NO_NAME = f"{chr(_FIRST)}-{chr(ord(_FIRST_OF_NAMES) - 1)}"
_SIGN = re.compile(f"[{_ANY}]")
_RUNS = re.compile(rf"([{_ANY}])\1*")
_REGIONS = re.compile(rf"([{_ANY}])(?:[^{_ANY}]*\1)*")
_LAST = re.compile(rf".*([{_NO_NAME}])", re.DOTALL)
_LETTER = re.compile(r"[^\W_]")
_NOT_SPACE = re.compile(r"\S")
_ASCII_LETTERS = dict.fromkeys(filter(lambda code: chr(code).isalnum(), range(128)), "\0")
_KEPT_KEYS = frozenset(("role", "type", "id", "tool_call_id"))
_SIDES_OF: Mapping[str, _Side] = {**dict.fromkeys(REASONING_KEYS, "reasoning"), "tool_calls": "tool_calls"}


class Source(NamedTuple):
    """One side of a message. `text`: its strings, each on a line of its own. `signed`: the same with signs."""

    message: int
    side: _Side
    text: str
    signed: str


class Followed(NamedTuple):
    """A conversation with signs, and what each sign stands for."""

    conversation: Conversation
    sources: dict[str, Source]


def has_signs(text: str) -> bool:
    """Whether a text has characters that signs are made of."""
    return _SIGN.search(text) is not None


def kept_words(words: Iterable[str]) -> dict[str, bytes]:
    """Gives those of the words that a template looks for that signs could stand in, and how each is written in JSON."""
    return {word: msgspec.json.encode(word)[1:-1] for word in words if _LETTER.search(word)}


def followed(conversation: Conversation, kept: Mapping[str, bytes]) -> Followed:
    """The conversation with signs; it has at most MESSAGES_MAX messages. `kept`: from `kept_words`."""
    strings: dict[str, list[tuple[str, str]]] = {}

    def signed(text: str, i: int, side: _Side) -> str:
        sign = chr(_FIRST + MESSAGES_MAX * _SIDES.index(side) + i)
        if text.isascii() and "\0" not in text:  # several times as fast
            signed_text = text.translate(_ASCII_LETTERS).replace("\0", sign)
        else:
            signed_text = _LETTER.sub(sign, text)
        if signed_text == text:
            signed_text = _NOT_SPACE.sub(sign, text)
        signed_text = _with_words(signed_text, text, words)
        strings.setdefault(sign, []).append((text, signed_text))
        return signed_text

    def follow(value: Any, i: int, side: _Side) -> Any:
        if isinstance(value, str):
            return signed(value, i, side)
        if isinstance(value, list):
            return [follow(value_inside, i, side) for value_inside in value]
        if isinstance(value, dict):
            return {
                key: value_inside
                if key in _KEPT_KEYS
                else follow(value_inside, i, "name" if key == "name" else _SIDES_OF.get(key, side))
                for key, value_inside in value.items()
            }
        return value

    def message(given: dict[str, Any], i: int) -> dict[str, Any]:
        content = given.get("content")
        if given.get("role") != "assistant" or not isinstance(content, str):
            return follow(given, i, "content")  # type: ignore[no-any-return]
        thought, tag, content_behind = cut_thought(content)
        if not tag:
            return follow(given, i, "content")  # type: ignore[no-any-return]
        return {
            **follow({**given, "content": None}, i, "content"),
            "content": signed(thought, i, "reasoning") + tag + signed(content_behind, i, "content"),
        }

    whole = msgspec.json.encode(conversation.messages)
    words = [word for word, in_json in kept.items() if in_json in whole]
    messages = [message(value_inside, i) for i, value_inside in enumerate(conversation.messages)]
    sources = {}
    for sign, pairs in strings.items():
        texts, signs = zip(*pairs, strict=True)
        sources[sign] = Source(
            _message_of(sign), _SIDES[(ord(sign) - _FIRST) // MESSAGES_MAX], "\n".join(texts), "\n".join(signs)
        )
    return Followed(Conversation(messages, conversation.tools), sources)


def _with_words(signed: str, text: str, words: Iterable[str]) -> str:
    """`signed` with the words as they are in `text`."""
    if not (found := [word for word in words if word in text]):
        return signed
    characters = list(signed)
    for word in found:
        at = text.find(word)
        while at >= 0:
            characters[at : at + len(word)] = word
            at = text.find(word, at + len(word))
    return "".join(characters)


class SignedText:
    """The rendering of a conversation with signs, which `sources` names."""

    def __init__(self, text: str, sources: Mapping[str, Source]) -> None:
        self.text: str = text
        self._sources = sources
        self._regions = self._found()
        """The sign, start and end of each stretch of characters from a sign to the last of its kind before another."""

    def _found(self) -> list[tuple[str, int, int]]:
        stretches = [(sign, self.text.find(sign), self.text.rfind(sign) + 1) for sign in self._sources]
        regions = sorted((stretch for stretch in stretches if stretch[2]), key=lambda one: one[1])
        if all(one[2] <= other[1] for one, other in pairwise(regions)):
            return regions
        return [(match[1], *match.span()) for match in _REGIONS.finditer(self.text)]

    def difference(self, plain: str) -> int | None:
        """The first character in which the text of the conversation without signs says something else. None if it is equal but for
        signs, in whose place is text of their sources, in upper or lower case."""
        position = 0
        for sign, start, end in self._regions:
            if plain[position:start] != self.text[position:start]:
                return position
            source = self._sources[sign]
            place = source.text.find(plain[start:end])
            if place < 0 or source.signed[place : place + end - start] != self.text[start:end]:
                position_in_region = self._difference_in(plain, start, end, source.text.casefold())
                if position_in_region is not None:
                    return position_in_region
            position = end
        return None if plain[position:] == self.text[position:] else position

    def _difference_in(self, plain: str, position: int, end: int, folded: str) -> int | None:
        """Compares from `position` to `end` - 1, and looks each run of signs up in the source's folded text."""
        for run in _RUNS.finditer(self.text, position, end):
            if plain[position : run.start()] != self.text[position : run.start()]:
                return position
            if plain[run.start() : run.end()].casefold() not in folded:
                return run.start()
            position = run.end()
        return None

    def end_of(self, beginning: str) -> int | None:
        """Where the end of a rendering of the first messages is in this one: behind the same message and the same text of the
        template. None if it is not to be found."""
        if self.text.startswith(beginning):
            return len(beginning)
        end = self._end_behind_text(beginning)
        return self._end_behind_name(beginning) if end is None else end

    def _end_behind_text(self, beginning: str) -> int | None:
        """The end by the last sign that is of no name."""
        last, end = _LAST.match(beginning), 0
        if last is not None:
            first, end = self.text.find(last[1]), self.text.rfind(last[1]) + 1
            between = [sign for sign, start, _ in self._regions if first <= start < end and not _is_name(sign)]
            if not end or any(_message_of(sign) != _message_of(last[1]) for sign in between):
                return None
        return self._behind(end, beginning if last is None else beginning[last.end() :])

    def _end_behind_name(self, beginning: str) -> int | None:
        """The end by the last sign of all, which is of a name where a call has arguments without a letter. A template may write the
        name again in a later message, so its places are counted."""
        places = list(_RUNS.finditer(beginning))
        if not places or not _is_name(places[-1][1]):
            return None
        n_before = sum(run[1] == places[-1][1] for run in places)
        same = [run.end() for run in _RUNS.finditer(self.text) if run[1] == places[-1][1]]
        return self._behind(same[n_before - 1], beginning[places[-1].end() :]) if len(same) >= n_before else None

    def _behind(self, end: int, tail: str) -> int | None:
        return end + len(tail) if self.text.startswith(tail, end) else None

    def sides(self, start: int, end: int, plain: str) -> list[tuple[int, AnswerPart, int, int]]:
        """What stands in the characters `start` to `end` - 1, in order: the message, the part of it, and where that begins and
        ends, with the punctuation around the signs. `plain`: the text without signs."""
        sides: list[tuple[int, AnswerPart, int, int]] = []
        inside = [region for region in self._regions if start <= region[1] < end]
        for sign, first, last in inside:
            source = self._sources[sign]
            lower = sides[-1][3] if sides else start
            upper = next((region[1] for region in inside if region[1] >= last), end)
            place = source.text.find(plain[first:last])
            before, behind = source.text[: max(place, 0)], source.text[place + last - first :] if place >= 0 else ""
            first -= len(_common(plain[lower:first][::-1], before[::-1]).rstrip())
            last += len(_common(plain[last:upper], behind).rstrip())
            part: AnswerPart = "tool_calls" if source.side == "name" else source.side
            if sides and sides[-1][1] == part:
                first = sides.pop()[2]
            sides.append((source.message, part, first, last))
        return sides

    def is_alone(self, message: int, start: int, end: int) -> bool:
        """Whether all of the message and nothing of others stands in these characters."""
        return all(
            start <= first and last <= end if _message_of(sign) == message else last <= start or end <= first
            for sign, first, last in self._regions
            if not _is_name(sign)
        )


def _common(one: str, other: str) -> str:
    """The beginning that two texts share."""
    n = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:n]


def _message_of(sign: str) -> int:
    return (ord(sign) - _FIRST) % MESSAGES_MAX


def _is_name(sign: str) -> bool:
    return sign >= _FIRST_OF_NAMES
