"""Finds added tokens in text exactly as the `tokenizers` library does, with their flags."""

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
"""Characters that never combine with the character before them, so text may be cut in front of them."""
_LONG_KNOWN = re.compile("[\0-\u036f\u1100-\u11ff\u1e00-\u1eff\u2000-\u206f\u3000-\u30ff\uac00-\ud7a3]*")
"""Unicode blocks in which every combining character has been known since Unicode 5.2: every later version gives the same NFC."""


def is_plain(tokens: Sequence[AddedToken], hidden: Iterable[AddedToken]) -> bool:
    """Whether the core finds these tokens where `tokenizers` does. The core takes the leftmost match, then the longest text.

    `tokenizers` also searches for the `hidden` special tokens and then leaves them as text. A token that overlaps a hidden
    one is therefore not found, which the core cannot imitate.
    """
    texts = [one.text for one in tokens]
    return not any(one.has_flags for one in tokens) and not any(
        _may_overlap(special.text, text) for special in hidden for text in texts
    )


def _may_overlap(special: str, text: str) -> bool:
    return text in special or any(special.endswith(text[:n]) for n in range(1, len(text)))


class Finder:
    """Cuts text at added tokens. `shown` tokens become ids. `hidden` tokens are searched for too, but stay text."""

    def __init__(self, shown: Iterable[AddedToken], hidden: Iterable[AddedToken], nfc: bool = False) -> None:
        self._tokens = {}
        for one in (*shown, *hidden):
            text = normalized(one.text) if nfc else one.text
            self._tokens[text] = one
        self._hidden = {one.id for one in hidden}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._search = re.compile("|".join(map(re.escape, longest_first)))

    def is_in(self, text: str) -> bool:
        """Whether the text of any token occurs in the text."""
        return self._search.search(text) is not None

    def cut(self, text: str) -> list[str | int]:
        """The parts of the text in order: text between added tokens, and the ids of the tokens found."""
        parts: list[str | int] = []
        end = 0
        for start, stop, one in self.spans(text):
            if end < start:
                parts.append(text[end:start])
            parts.append(one.id)
            end = stop
        if end < len(text):
            parts.append(text[end:])
        return parts

    def spans(self, text: str) -> Iterator[tuple[int, int, AddedToken]]:
        """The tokens found, in order, each with the characters that it takes: from the first up to, not including, the second."""
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
            if stop <= start:  # the previous token's rstrip took all of it
                continue
            yield start, stop, one
            end = stop


def _touches_a_word(text: str, start: int, stop: int) -> bool:
    return (start > 0 and _is_word(text[start - 1])) or (stop < len(text) and _is_word(text[stop]))


@cache
def _is_word(character: str) -> bool:
    """Whether Rust's regex counts the character as \\w. Python's regex does not: Rust's includes marks and joiners."""
    return len(_core.split([r"\w "], f"-{character} ")) == 2


def normalized(text: str) -> str:
    """The text in NFC by the Unicode version of the `tokenizers` library.

    Python's Unicode is newer. Text that is normalized to the newer version is normalized to the older one too, because the
    older one knows fewer combining characters. So Python's quick check settles nearly all text; in the rest, only pieces that
    change go to `tokenizers`.
    """
    return text if _is_normalized(text) else "".join(map(_normalized_piece, _pieces(text)))


def _is_normalized(text: str) -> bool:
    return text.isascii() or unicodedata.is_normalized("NFC", text)


def _pieces(text: str) -> Iterator[str]:
    """Cuts text where the characters on both sides cannot combine."""
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
