"""Added tokens in text, found as `tokenizers` finds them, with their flags."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from tokenmill import _core
from tokenmill.tokenizer.model import AddedToken

_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACE_BEFORE = re.compile(f"[{_WHITE_SPACE}]*\\Z")
_SPACE_AFTER = re.compile(f"[{_WHITE_SPACE}]*")
_PIECE_CHARS = 256
_APART = re.compile("[\0-\u02ff]")
"""Characters that combine with none before."""
_LONG_KNOWN = re.compile("[\0-\u036f\u1100-\u11ff\u1e00-\u1eff\u2000-\u206f\u3000-\u30ff\uac00-\ud7a3]*")
"""Blocks of which every version of Unicode since 5.2 knows all characters that combine: their NFC is the same for all."""


def is_plain(tokens: Sequence[AddedToken], hidden: Iterable[AddedToken]) -> bool:
    """Whether the core finds these tokens where `tokenizers` does: the leftmost, then the longest text, and nothing else.

    `tokenizers` looks for the `hidden` special tokens too and leaves them alone after it found them, so that a token which
    overlaps one is not found.
    """
    texts = [one.text for one in tokens]
    return not any(one.has_flags for one in tokens) and not any(
        _may_overlap(special.text, text) for special in hidden for text in texts
    )


def _may_overlap(special: str, text: str) -> bool:
    return text in special or any(special.endswith(text[:n]) for n in range(1, len(text)))


class Finder:
    """Cuts text at added tokens. `shown` become ids; `hidden` are found, and stay text."""

    def __init__(self, shown: Iterable[AddedToken], hidden: Iterable[AddedToken], nfc: bool = False) -> None:
        self._tokens = {}
        for one in (*shown, *hidden):
            text = normalized(one.text) if nfc else one.text
            self._tokens[text] = one
        self._hidden = {one.id for one in hidden}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._search = re.compile("|".join(map(re.escape, longest_first)))

    def is_in(self, text: str) -> bool:
        """Whether the text of a token is somewhere in the text."""
        return self._search.search(text) is not None

    def cut(self, text: str) -> list[str | int]:
        """The text's parts in order: text, and the ids of tokens found between."""
        parts: list[str | int] = []
        end = 0
        for match in self._search.finditer(text):
            one = self._tokens[match[0]]
            start, stop = match.span()
            if one.id in self._hidden or (one.single_word and _touches_a_word(text, start, stop)):
                continue
            if one.lstrip and (before := _SPACE_BEFORE.search(text, 0, start)):
                start = max(before.start(), end)
            if one.rstrip and (after := _SPACE_AFTER.match(text, stop)):
                stop = after.end()
            if stop <= start:  # the one before took all of it
                continue
            if end < start:
                parts.append(text[end:start])
            parts.append(one.id)
            end = stop
        if end < len(text):
            parts.append(text[end:])
        return parts


def _touches_a_word(text: str, start: int, stop: int) -> bool:
    return (start > 0 and _is_word(text[start - 1])) or (stop < len(text) and _is_word(text[stop]))


@cache
def _is_word(character: str) -> bool:
    """Whether it is \\w to Rust's regex, which Python's is not: marks and joiners are, too."""
    return len(_core.split([r"\w "], f"-{character} ")) == 2


def normalized(text: str) -> str:
    """The text in NFC, as `tokenizers` makes it: with the Unicode version of that library.

    What a newer version takes for normalized the older one does, too: it only knows fewer characters that combine. So
    nearly all text needs no more than Python's quick check, and of the rest only the pieces that change need more.
    """
    return text if _is_normalized(text) else "".join(map(_normalized_piece, _pieces(text)))


def _is_normalized(text: str) -> bool:
    return text.isascii() or unicodedata.is_normalized("NFC", text)


def _pieces(text: str) -> Iterator[str]:
    """Cuts where characters on both sides have nothing to do with each other."""
    start = 0
    while start < len(text):
        found = _APART.search(text, start + _PIECE_CHARS)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


def _normalized_piece(text: str) -> str:
    if _is_normalized(text):
        return text
    if _LONG_KNOWN.fullmatch(text):  # 60 MB/s instead of 10
        return unicodedata.normalize("NFC", text)
    from tokenizers.normalizers import NFC

    changed: str = NFC().normalize_str(text)
    return changed
