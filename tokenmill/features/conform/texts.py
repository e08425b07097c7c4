"""Texts on which libraries may disagree: some drawn at random from a fixed seed, others of the tokens of a tokenizer."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tokenmill.artifacts.golden_texts import HARD, PANEL, around
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.tokenizer import Tokenizer

_SEED = 51
_TOKENS_PER_TEXT = 64
_HEADS = (b"", b"\xc3", b"\xe4", b"\xe4\xb8", b"\xf1", b"\xf0\x9f", b"\xf0\x9f\x98")
_TAILS = (b"", b"\x80", b"\xa0", b"\x90", b"\x80\x80", b"\xa0\x80", b"\x90\x80\x80", b"\x80\x80\x80")
"""Bytes that make whole characters of most tokens that begin or end within one."""
_PIECES_MAX = 8
_CONTRACTIONS = ("'s", "'S", "’ll", "'re", "'VE", "don't", "'ſ", "I'm", "'", "d'", "''t")
_SPACES = (" ", "  ", "   ", "\t", "\u00a0", "\u2003", "\u3000", "\u200b", "\u0085", "\x0b", "\x1c", " \t ")
_LINE_ENDS = ("\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\r\n\r\n", "\u2028", "\u2029", "\n\n\n ")
_MARKS = "\u0301\u0316\u0334\u20dd\ufe0f\u200d\u200c\u0e31\u093f\u05b8\u3099"
_RANGES = (
    (0x00, 0xFF),
    (0x100, 0x24F),
    (0x370, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0x109F),
    (0x1100, 0x11FF),
    (0x1E00, 0x2BFF),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xFFFF),
    (0x10000, 0x1F8FF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x10FFFF),
)
"""First and last code point of blocks of scripts, marks, emoji, private use, and those that are no character."""


def texts_of_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Texts by name that lead to every id that the text of a token leads to: each added token at both ends, inside words, doubled
    and with spaces, and all tokens, with line ends between or, where these change an id, alone or in a word. A part of a character
    is completed."""
    added = {f"added/{added_token.id}": around(added_token.text) for added_token in tokenizer.added_tokens}
    texts = {id: text for id, token in tokenizer.tokens.items() if (text := _text_of(tokenizer, id, token))}
    ids = [*texts]
    groups = [ids[start : start + _TOKENS_PER_TEXT] for start in range(0, len(ids), _TOKENS_PER_TEXT)]
    together = {f"tokens/{group[0]}": "\n".join(texts[id] for id in group) for group in groups}
    reached = {id for text in [*added.values(), *together.values()] for id in _ids(tokenizer, text)}
    prefix = tokenizer.document["model"].get("continuing_subword_prefix") or ""
    alone = {}
    for id in tokenizer.tokens.keys() - reached:
        tried = _in_words(texts[id], prefix) if id in texts else _completed(tokenizer.tokens[id])
        leading = next((text for text in tried if id in _ids(tokenizer, text)), None)
        if leading is not None:
            alone[f"token/{id}"] = leading
    return added | together | dict(sorted(alone.items()))


def _text_of(tokenizer: Tokenizer, id: int, token: bytes) -> str:
    """The text that a token stands for; an empty one for a part of a character."""
    text = token.decode(errors="replace") if tokenizer.model is not None else tokenizer.decode([id])
    return "" if "\ufffd" in text else text


def _in_words(text: str, prefix: str) -> Iterator[str]:
    """The text alone, and in a word. `prefix`: what tokens inside a word begin with, such as ## of WordPiece."""
    yield text
    for begin, end in (("a", ""), ("", "a"), ("a", "a")):
        yield begin + text.removeprefix(prefix) + end


def _completed(token: bytes) -> Iterator[str]:
    """Texts of bytes that begin or end within a character."""
    for head in _HEADS:
        for tail in _TAILS:
            with suppress(UnicodeDecodeError):
                yield (head + token + tail).decode()


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    try:
        return tokenizer.encode(text, special="allow")
    except TokenizerError:
        return []


def generated_texts(n: int, special_tokens: Sequence[str]) -> list[str]:
    """So many texts: mixtures of scripts, spaces, digits, line ends, emoji, contractions, long runs, odd code points, and the texts
    of special tokens, whole and cut. Equal arguments give equal texts."""
    chance = random.Random(_SEED)
    words = [word for text in (*PANEL.values(), *HARD.values()) for word in text.split() if len(word) < 60]

    def characters() -> str:
        first, last = chance.choice(_RANGES)
        drawn = (chance.randint(first, last) for _ in range(chance.randint(1, 6)))
        return "".join(chr(one) for one in drawn if not 0xD800 <= one <= 0xDFFF)

    def run() -> str:
        return chance.choice("a0 =-_\n\té字🙂.A") * chance.choice((2, 3, 4, 7, 16, 17, 64, 200))

    def special() -> str:
        text = chance.choice(special_tokens or ("<|endoftext|>",))
        return text if chance.random() < 0.7 else text[: chance.randint(1, len(text))]

    def word() -> str:
        return chance.choice((str, str, str.upper, str.title))(chance.choice(words))

    kinds: list[Callable[[], str]] = [
        word,
        word,
        word,
        characters,
        run,
        special,
        lambda: chance.choice(_CONTRACTIONS),
        lambda: chance.choice(_SPACES),
        lambda: chance.choice(_LINE_ENDS),
        lambda: "".join(chance.choices("0123456789", k=chance.randint(1, 12))),
        lambda: chance.choice("eaकไあ한") + "".join(chance.choices(_MARKS, k=chance.randint(1, 3))),
        lambda: "".join(chance.choices("!?.,;:-–'\"`()[]{}<>/\\|@#$%^&*_+=~…", k=chance.randint(1, 5))),
    ]
    return ["".join(chance.choice(kinds)() for _ in range(chance.randint(1, _PIECES_MAX))) for _ in range(n)]
