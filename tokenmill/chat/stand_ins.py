"""Guards messages, so that a special token's text in one stays text, whatever the template writes around it.

One character of each such text is replaced by another, its stand-in, before the template is rendered: a character that occurs
neither in the conversation nor in the template. What is found in the rendered text as a special token was then written by the
template. A stand-in is one character for one, so all positions stay what they are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill import _core
from tokenmill.chat.conversation import Conversation
from tokenmill.config.conversation_template import ROLES

_PART_CHARACTERS_MAX = 4  # the quick first search compares this much of a token's text, and may find too much
_SPACE = r"(?:\\[bfnrt]|\\u00[01].|[\s\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}])*"
"""White space in JSON, in the syntax of RE2."""


class Guarded(NamedTuple):
    """A conversation with stand-ins. `back`: maps them to the original characters. `first`: the first message with one; None for a
    tool."""

    conversation: Conversation
    back: dict[int, str]
    first: int | None


class Guard:
    """Finds and guards the texts of special tokens, and parts of them at the ends of a message's strings that a template or another
    message could complete. `words`: the keys and values that the template compares with. `beside`: text that the template can
    write."""

    def __init__(self, special: Iterable[str], words: Iterable[str], beside: str) -> None:
        texts = sorted(special, key=len, reverse=True)
        self._words = frozenset(word for word in words if word.isidentifier())
        self._beside = beside
        self._whole = _core.TextFinder(texts)
        self._begins = frozenset(text[:n] for text in texts for n in range(1, len(text)))
        self._ends = frozenset(text[n:] for text in texts for n in range(1, len(text)))
        n = _PART_CHARACTERS_MAX
        self._heads, self._tails = {end[:n] for end in self._ends}, {begin[-n:] for begin in self._begins}
        self._part_max = max(map(len, texts), default=1) - 1
        self.marks: tuple[str, str] = self._two(beside)
        self._pattern = _search(texts, self._tails, self._heads, self.marks)

    def suspects(self, conversations: pa.LargeStringArray) -> list[int]:
        """The indexes of conversations, given as canonical JSON, that may need guarding or other marks. The others need neither."""
        try:
            return pc.indices_nonzero(pc.match_substring_regex(conversations, self._pattern)).to_pylist()  # type: ignore[no-any-return]
        except pa.ArrowInvalid:  # more special tokens than RE2 can search for at once
            return list(range(len(conversations)))

    def marks_for(self, text: str) -> tuple[str, str]:
        """Two characters that occur neither in a conversation, given as JSON, nor in the template."""
        return self._two(self._beside + text)

    def guarded(self, conversation: Conversation, text: str) -> Guarded | None:
        """The conversation with stand-ins; None if it needs none. `text`: its canonical JSON."""
        unused = _unused(self._beside + text)
        for _ in range(2):
            next(unused)  # these are the marks
        stand_ins: dict[str, str] = {}
        first: list[int | None] = []

        def replace(string: str, i: int) -> str:
            character = string[i]
            if character not in stand_ins:
                stand_ins[character] = next(unused)
            return f"{string[:i]}{stand_ins[character]}{string[i + 1 :]}"

        def guard(value: Any, place: int | None, is_role: bool = False) -> Any:
            if isinstance(value, str):
                changed = value if is_role and value in ROLES else self._guarded_text(value, replace)
                if changed != value:
                    first.append(place)
                return changed
            if isinstance(value, list):
                return [guard(element, place) for element in value]
            if isinstance(value, dict):
                return {
                    key if key in self._words else guard(key, place): guard(element, place, key == "role")
                    for key, element in value.items()
                }
            return value

        messages = [guard(message, i) for i, message in enumerate(conversation.messages)]
        tools, behind = guard(conversation.tools, None), guard(conversation.next, -1)
        if not stand_ins:
            return None
        back = {ord(stand_in): character for character, stand_in in stand_ins.items()}
        return Guarded(Conversation(messages, tools, behind), back, first[0])

    def _guarded_text(self, text: str, replace: Any) -> str:
        while spans := self._whole.spans(text):  # overlapping ones need several rounds
            done, pieces = 0, []
            for start, stop, _ in spans:
                token_text = text[start:stop]
                i = len(token_text) - len(token_text.lstrip() or token_text)
                pieces += [text[done:start], replace(token_text, i)]
                done = stop
            text = "".join([*pieces, text[done:]])
        if text in self._words:
            return text
        for i in self._at_ends(text):
            text = replace(text, i)
        return text

    def _at_ends(self, text: str) -> set[int]:
        """Yields where the text, with or without surrounding white space, begins or ends with a part of a special token that the
        template could complete."""
        positions = set()
        few = range(1, _PART_CHARACTERS_MAX + 1)  # looked at first, since nearly all texts differ there
        for stripped in {text, text.lstrip()}:
            most = range(1, min(self._part_max, len(stripped)) + 1)
            if any(stripped[:n] in self._heads for n in few) and any(stripped[:n] in self._ends for n in most):
                positions.add(len(text) - len(stripped))
        for stripped in {text, text.rstrip()}:
            most = range(1, min(self._part_max, len(stripped)) + 1)
            if any(stripped[-n:] in self._tails for n in few) and any(stripped[-n:] in self._begins for n in most):
                positions.add(len(stripped) - 1)
        return positions

    def _two(self, text: str) -> tuple[str, str]:
        unused = _unused(text)
        return next(unused), next(unused)


def _unused(text: str) -> Iterator[str]:
    """Characters that do not occur in the text: noncharacters of Unicode first, then those for private use."""
    for codes in (range(0xFDD0, 0xFDF0), range(0xF0000, 0x10FFFE)):
        yield from (one for one in map(chr, codes) if one not in text)


def _search(texts: list[str], tails: Iterable[str], heads: Iterable[str], marks: tuple[str, str]) -> str:
    """A pattern for RE2 that finds in JSON all text that may need guarding, with some false hits. `tails`, `heads`: the ends
    and beginnings of strings that may need guarding."""
    alternatives = [*map(_escaped, texts), *marks]
    if tails:
        alternatives.append(f'(?:{"|".join(map(_escaped, sorted(tails)))}){_SPACE}"')
    if heads:
        alternatives.append(f'"{_SPACE}(?:{"|".join(map(_escaped, sorted(heads)))})')
    return "|".join(alternatives)


def _escaped(text: str) -> str:
    return re.escape(msgspec.json.encode(text).decode()[1:-1])


def strings_of(variables: Mapping[str, object]) -> str:
    """Every string in the variables of a template, joined."""
    return msgspec.json.encode(variables).decode()
