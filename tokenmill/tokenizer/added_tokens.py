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
    texts, specials = [token.text for token in tokens], [token.text for token in hidden]
    return not any(token.has_flags for token in tokens) and not (texts and specials and _may_overlap(specials, texts))


def _may_overlap(specials: list[str], texts: list[str]) -> bool:
    """Whether a special token has one of the texts in it, or ends with the beginning of one."""
    if _core.TextFinder(texts).occurring(specials):
        return True
    n = 1
    while texts and specials:  # in time with the sum of their lengths, not with the product of their numbers
        texts, specials = (
            [text for text in texts if len(text) > n],
            [special for special in specials if len(special) >= n],
        )
        if not {text[:n] for text in texts}.isdisjoint({special[-n:] for special in specials}):
            return True
        n += 1
    return False


class Finder:
    """Cuts text at added tokens. `shown` tokens become ids. `hidden` tokens are searched for too, but stay text."""

    def __init__(self, shown: Iterable[AddedToken], hidden: Iterable[AddedToken], nfc: bool = False) -> None:
        shown, hidden = tuple(shown), tuple(hidden)
        tokens = {normalized(one.text) if nfc else one.text: one for one in (*shown, *hidden)}
        self._tokens, self._search = [*tokens.values()], _core.TextFinder([*tokens])
        self._hidden = {token.id for token in hidden}

    def is_in(self, text: str) -> bool:
        """Whether the text of any token occurs in the text."""
        return self._search.is_in(text)

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
        for start, stop, i in self._search.spans(text):
            token = self._tokens[i]
            if token.id in self._hidden or (token.single_word and _touches_a_word(text, start, stop)):
                continue
            if token.lstrip and (before := _SPACE_BEFORE.search(text, 0, start)):
                start = max(before.start(), end)
            if token.rstrip and (after := _SPACE_AFTER.match(text, stop)):
                stop = after.end()
            if stop <= start:  # the previous token's rstrip took all of it
                continue
            yield start, stop, token
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
