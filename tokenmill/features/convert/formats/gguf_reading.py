"""Reads the vocabulary of a GGUF file, with or without a model behind it."""

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tokenmill.errors import TokenizerError, shown
from tokenmill.features.convert.formats.gguf import ARRAY, BOOL, FLOAT32, IDS, INT32, MAGIC, PATTERNS, STRING, UINT32
from tokenmill.features.convert.formats.pieces import Kind, Normalization, TokenPiece, document_of
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.storage.contents import HEAD_BYTES
from tokenmill.tokenizer.formats.other_kinds import refuse_other
from tokenmill.tokenizer.forms import plain_added
from tokenmill_reader.regular_files import open_regular

_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_T = TypeVar("_T")
_VERSIONS = (2, 3)
_FIELDS_MAX = 2**16
_ITEMS_MAX = 2**24
_BYTES_MAX = 2**29
"""The largest part of a file that is read: what is behind the vocabulary is tensors."""
_PATTERN_OF = {pre: name for name, pre in PATTERNS.items()} | {"gpt-4o": "o200k", "deepseek-llm": "deepseek"}
"""The pattern that a model with this name was trained with. llama-bpe: llama3, which splits like cl100k."""
_NAMES = {key: name for name, key in IDS.items()}


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, str], str | None]:
    """The tokenizer.json of a GGUF file, its special tokens by name, and its chat template. Raises TokenizerError, also for a split
    that has no name here."""
    with open(path, "rb", opener=open_regular) as file:
        fields = _Fields(_Reader(file, str(path)).fields(), str(path))
    kind = fields.one("tokenizer.ggml.model", str, " or ".join(_MAKE))
    if kind not in _MAKE:
        raise fields.wrong("tokenizer.ggml.model", " or ".join(_MAKE), kind)
    tokens = fields.some("tokenizer.ggml.tokens", str, "texts")
    document = _MAKE[kind](fields, tokens)
    names = {}
    for key, name in _NAMES.items():
        id = fields.one(f"tokenizer.ggml.{key}_token_id", int, "an id", default=-1)
        if 0 <= id < len(tokens):  # files say -1, also as the largest uint32, for none
            names[name] = tokens[id]
    return document, names, fields.one("tokenizer.chat_template", str, "a text", default="") or None


class _Fields:
    """The keys and values of a file, which are checked when they are used."""

    def __init__(self, values: dict[str, Any], place: str) -> None:
        self._values, self.place = values, place

    def one(self, key: str, type_: type[_T], expected: str, default: _T | None = None) -> _T:
        """A value of exactly this type. Raises TokenizerError for another one, and for a missing one without a default."""
        found = self._values.get(key, default)
        if type(found) is not type_:
            raise self.wrong(key, expected, found)
        return found

    def some(self, key: str, type_: type[_T], expected: str, n: int | None = None) -> list[_T]:
        """A list of `n` values of exactly this type. Raises TokenizerError."""
        found = self._values.get(key)
        if not isinstance(found, list) or n not in (None, len(found)) or set(map(type, found)) - {type_}:
            raise self.wrong(key, expected if n is None else f"{n:,} {expected}", found)
        return found

    def types(self, tokens: list[str], expected: range) -> list[int]:
        """The type of each token; normal ones without the key."""
        key = "tokenizer.ggml.token_type"
        if key not in self._values:
            return [Kind.NORMAL] * len(tokens)
        found = self.some(key, int, "types", len(tokens))
        if others := [kind for kind in found if kind not in expected]:
            raise self.wrong(key, f"types from {expected[0]} to {expected[-1]}", others[0])
        return found

    def wrong(self, key: str, expected: str, value: object) -> TokenizerError:
        """Makes the error for a value that was not expected."""
        what = "none" if value is None else shown(value)
        if isinstance(value, list):
            types = sorted({type(element).__name__ for element in value})
            what = f"{len(value):,} values of the type {' or '.join(types) or 'none'}"
        return TokenizerError(f"{self.place}: {key}", f"expected {expected}; found {what}.")


def _byte_level(fields: _Fields, tokens: list[str]) -> dict[str, Any]:
    types = fields.types(tokens, range(Kind.BYTE + 1))
    pre = fields.one("tokenizer.ggml.pre", str, f"one of {', '.join(_PATTERN_OF)}")
    if pre not in _PATTERN_OF:
        raise fields.wrong("tokenizer.ggml.pre", f"one of {', '.join(_PATTERN_OF)}", pre)
    merges = [line.split(" ", 1) for line in fields.some("tokenizer.ggml.merges", str, "texts")]
    if bad := next((pair for pair in merges if len(pair) != 2), None):
        raise fields.wrong("tokenizer.ggml.merges", "two tokens with a space between", bad[0])
    vocab: dict[str, int] = {}
    for id, text in enumerate(tokens):
        if types[id] != Kind.UNUSED and vocab.setdefault(text, id) != id:
            raise TokenizerError(
                f"{fields.place}: tokenizer.ggml.tokens", f"expected every token once; found {text!r:.60} twice."
            )
    steps = patterns.steps_of(_PATTERN_OF[pre])
    return {
        "version": "1.0",
        "added_tokens": [
            plain_added(id, text, special=kind == Kind.CONTROL)
            for id, (text, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (Kind.CONTROL, Kind.USER_DEFINED)
        ],
        "pre_tokenizer": pre_tokenizer_of(steps, add_prefix_space=False),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "ignore_merges": pre == "llama-bpe", "vocab": vocab, "merges": merges},
    }


def _characters(fields: _Fields, tokens: list[str]) -> dict[str, Any]:
    types = fields.types(tokens, range(Kind.NORMAL, Kind.BYTE + 1))
    scores = fields.some("tokenizer.ggml.scores", float, "scores", len(tokens))
    if others := [score for score in scores if not math.isfinite(score)]:
        raise fields.wrong("tokenizer.ggml.scores", "numbers", others[0])
    pieces = [TokenPiece(text, score, Kind(kind)) for text, score, kind in zip(tokens, scores, types, strict=True)]
    adds_mark = fields.one("tokenizer.ggml.add_space_prefix", bool, "true or false", default=True)
    return document_of(pieces, False, Normalization(adds_mark, joins_spaces=False), fields.place)


_MAKE: dict[str, Callable[[_Fields, list[str]], dict[str, Any]]] = {"gpt2": _byte_level, "llama": _characters}
_USED = {
    *(f"tokenizer.ggml.{name}" for name in ("model", "tokens", "token_type", "pre", "merges", "scores")),
    *(f"tokenizer.ggml.{key}_token_id" for key in _NAMES),
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.chat_template",
}
"""The keys whose values are kept."""


class _Reader:
    """Reads the keys and values that begin a GGUF file, with bounds. The version, a small number, tells the order of bytes:
    files for big-endian machines have all numbers in theirs."""

    def __init__(self, file: BinaryIO, place: str) -> None:
        self._file, self._place, self._order = file, place, "<"
        self._left = min(_BYTES_MAX, os.fstat(file.fileno()).st_size)

    def fields(self) -> dict[str, Any]:
        """The values by their keys."""
        head = self._file.read(HEAD_BYTES)
        self._file.seek(0)
        refuse_other(self._place, head, "a GGUF file")
        if self._take(len(MAGIC)) != MAGIC:
            raise TokenizerError(self._place, "expected a GGUF file; found another kind.")
        (version,) = self._numbers("I")
        if (swapped := int.from_bytes(version.to_bytes(4, "little"), "big")) in _VERSIONS:
            self._order, version = ">", swapped
        _, n_fields = self._numbers("QQ")
        if version not in _VERSIONS:
            raise TokenizerError(self._place, f"expected GGUF version 2 or 3; found {version}.")
        if n_fields > _FIELDS_MAX:
            raise self._damaged(f"{n_fields:,} keys")
        values: dict[str, Any] = {}
        for _ in range(n_fields):
            key, (kind,) = self._string(), self._numbers("I")
            if key in values:
                raise self._damaged(f"the key {key!r:.60} twice")
            values[key] = None
            if key in _USED:
                values[key] = self._value(kind)
            else:
                self._pass(kind)
        return values

    def _pass(self, kind: int) -> None:
        """Passes over a value that nobody looks at."""
        if kind == STRING:
            self._take(*self._numbers("Q"))
        elif kind in _NUMBERS:
            self._take(struct.calcsize(f"<{_NUMBERS[kind]}"))
        elif kind == ARRAY:
            inner, n_items = self._numbers("IQ")
            if inner in _NUMBERS:
                self._take(struct.calcsize(f"<{_NUMBERS[inner]}") * n_items)
            elif inner == ARRAY:  # which llama.cpp does not read either
                raise self._damaged("a list in a list")
            else:
                for _ in range(n_items):
                    self._pass(inner)
        else:
            raise self._damaged(f"a value of the type {kind}")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._numbers(_NUMBERS[kind])[0]
        if kind != ARRAY:
            raise self._damaged(f"a value of the type {kind}")
        inner, n_items = self._numbers("IQ")
        if n_items > _ITEMS_MAX:
            raise self._damaged(f"{n_items:,} values in a list")
        if inner == STRING:
            return [self._string() for _ in range(n_items)]
        if inner not in _NUMBERS:
            raise self._damaged(f"a list of the type {inner}")
        one = struct.Struct(f"{self._order}{_NUMBERS[inner]}")
        return [value for (value,) in one.iter_unpack(self._take(one.size * n_items))]

    def _string(self) -> str:
        content = self._take(*self._numbers("Q"))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self._damaged("bytes that are no UTF-8") from None

    def _numbers(self, layout: str) -> tuple[Any, ...]:
        layout = f"{self._order}{layout}"
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, n_bytes: int) -> bytes:
        self._left -= n_bytes
        if self._left < 0:
            raise self._damaged(f"its end, or more than {_BYTES_MAX:,} bytes before the tensors")
        return self._file.read(n_bytes)

    def _damaged(self, found: str) -> TokenizerError:
        return TokenizerError(self._place, f"expected keys and values of GGUF; found {found}.", "Fetch the file again.")
