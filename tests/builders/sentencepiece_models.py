"""Small SentencePiece models for each combination of settings, and texts on which other programs split in another way."""

import struct
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tokenmill.features.convert.formats.pieces import Kind
from tokenmill.features.convert.formats.protobuf import field, fixed32

DIGESTS = Path(__file__).parent.parent / "convert/sentencepiece_ids.txt"
"""The digest of the ids of all TEXTS by cell. The library made them: interop/test_sentencepiece.py compares them with it."""

TYPES = {"unigram": 1, "bpe": 2, "word": 3, "char": 4}
RULES = {"identity": b"", "nmt_nfkc": b"rules", "nfkc_cf": b"rules", "user_defined": b"rules"}
SYMBOLS: dict[str, list[tuple[str, Kind]]] = {
    "no symbols": [],
    "symbols": [(text, Kind.USER_DEFINED) for text in ("<sep>", "xy", "s>")],
    "symbols with spaces": [(text, Kind.USER_DEFINED) for text in ("▁the", "x▁at", "a b", "<sep>")],
    "symbols that overlap": [(text, Kind.USER_DEFINED) for text in ("▁▁", "xx", "a▁", "▁the", "<sep>")],
    "control": [("<ctl>", Kind.CONTROL), ("[CLS]", Kind.CONTROL)],
    "bytes": [(f"<0x{byte:02X}>", Kind.BYTE) for byte in range(256)],
    "symbols and bytes": [
        ("<sep>", Kind.USER_DEFINED),
        ("▁cat", Kind.USER_DEFINED),
        *((f"<0x{byte:02X}>", Kind.BYTE) for byte in range(256)),
    ],
}
_FIRST = [("<unk>", Kind.UNKNOWN), ("<s>", Kind.CONTROL), ("</s>", Kind.CONTROL)]
_LONG = [
    "th",
    "▁th",
    "he",
    "▁the",
    "at",
    "▁c",
    "▁cat",
    "ab",
    "bb",
    "abb",
    "▁▁",
    "▁▁▁▁",
    "..",
    "....",
    "▁a",
    "on",
    "<b",
    "0x",
]
_SINGLE = "▁thecaonbsx.<>/0é1①"
_PARTS = [
    "a",
    "xx",
    "xy",
    "x",
    "the",
    "cat",
    " ",
    "  ",
    "▁",
    "\t",
    "\n",
    "\u00a0",
    "<sep>",
    "<s>",
    "</s>",
    "<0x41>",
    "①\u0301",
    "é",
    "..",
    "b",
]
TEXTS = [
    *(
        "",
        "the cat\n",
        "\tthe cat\n\non a",
        "\r\n a\r\n",
        "a\x00b",
        "\x00",
        "<unk>",
        "a<unk>b",
        "[CLS] a<ctl>",
        "xxxxx",
        "       a",
    ),
    *(
        "<sep><sep>",
        "  <sep> the  cat <sep>  ",
        "x at the x  at",
        "e\u0301",
        "\u0301",
        "日本 🙂",
        "\ufeffa\u3000b",
        "<se",
        "sep>",
        "abbabb bb",
        "s>s>",
        ".......",
    ),
    *(left + right for left in _PARTS for right in _PARTS),
    *(f"{part}{part}{part}" for part in _PARTS),
]


class Cell(NamedTuple):
    """One combination of settings."""

    type: str
    rules: str
    symbols: str
    adds_mark: bool
    joins_spaces: bool
    escapes: bool

    def __str__(self) -> str:
        words = ("prefix", "joins", "escape")
        flags = (f"{word} {int(value)}" for word, value in zip(words, self[3:], strict=True))
        return ", ".join([self.type, self.rules, self.symbols, *flags])


def cells() -> Iterator[Cell]:
    """Every combination."""
    for cell in product(TYPES, RULES, SYMBOLS, (False, True), (False, True), (True, False)):
        yield Cell(*cell)


def is_followed(cell: Cell) -> bool:
    """Whether a tokenizer.json can have the ids of this combination; others are refused."""
    is_known = cell.type == "bpe" or (cell.type == "unigram" and cell.symbols != "symbols that overlap")
    return is_known and cell.rules == "identity" and cell.escapes


def model_of(cell: Cell) -> bytes:
    """The .model file of a cell. The rules of the text are there in name alone."""
    symbols = SYMBOLS[cell.symbols]
    taken = {text for text, _ in symbols}
    plain = [text for text in (*_LONG, *_SINGLE) if text not in taken]
    if cell.type == "unigram":  # the library splits a run of one character by the rounding of its sums
        plain = [text for text in plain if len(text) == 1 or len(set(text)) > 1]
    listed = [piece(text, 0.0, kind) for text, kind in (*_FIRST, *symbols)]
    listed += [piece(text, -(2.0 + i**0.7), Kind.NORMAL) for i, text in enumerate(plain)]
    has_bytes = any(kind is Kind.BYTE for _, kind in symbols)
    trainer = field(3, TYPES[cell.type]) + field(4, len(listed)) + field(35, int(has_bytes))
    normalizer = field(1, cell.rules.encode()) + field(2, RULES[cell.rules])
    normalizer += field(3, int(cell.adds_mark)) + field(4, int(cell.joins_spaces)) + field(5, int(cell.escapes))
    return b"".join([*listed, field(2, trainer), field(3, normalizer)])


def piece(text: str, score: float, kind: Kind) -> bytes:
    """A piece of a model."""
    return field(1, field(1, text.encode()) + fixed32(2, struct.pack("<f", score)) + field(3, int(kind)))


def digest_of(ids: list[list[int]]) -> str:
    """The digest of the ids of all texts."""
    return sha256(repr(ids).encode()).hexdigest()[:16]
