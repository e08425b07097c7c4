"""Reads the vocabulary of a GGUF file, with or without a model behind it."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill.errors import TokenizerError, shown
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.tokenizer.conversions.forms import plain_added
from tokenmill.tokenizer.conversions.gguf import ARRAY, BOOL, FLOAT32, IDS, INT32, MAGIC, PATTERNS, STRING, UINT32
from tokenmill.tokenizer.conversions.pieces import Kind, Normalization, Piece, document_of
from tokenmill_reader.regular_files import open_regular

_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    UINT32: "<I",
    INT32: "<i",
    FLOAT32: "<f",
    BOOL: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
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
        fields = _Reader(file, str(path)).fields()
    kind = fields.get("tokenizer.ggml.model")
    tokens = _texts(fields, "tokenizer.ggml.tokens", path)
    types = fields.get("tokenizer.ggml.token_type", [Kind.NORMAL] * len(tokens))
    if not isinstance(types, list) or len(types) != len(tokens):
        raise _wrong(path, "tokenizer.ggml.token_type", f"{len(tokens):,} types", types)
    make: dict[Any, Callable[..., dict[str, Any]]] = {"gpt2": _byte_level, "llama": _characters}
    if kind not in make:
        raise _wrong(path, "tokenizer.ggml.model", " or ".join(make), kind)
    document = make[kind](fields, tokens, types, path)
    names = {}
    for key, name in _NAMES.items():
        id = fields.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(id, int) and id < len(tokens):
            names[name] = tokens[id]
    template = fields.get("tokenizer.chat_template")
    return document, names, template if isinstance(template, str) else None


def _byte_level(fields: dict[str, Any], tokens: list[str], types: list[int], path: Path) -> dict[str, Any]:
    pre = fields.get("tokenizer.ggml.pre")
    if pre not in _PATTERN_OF:
        raise _wrong(path, "tokenizer.ggml.pre", f"one of {', '.join(_PATTERN_OF)}", pre)
    merges = [tuple(line.split(" ", 1)) for line in _texts(fields, "tokenizer.ggml.merges", path)]
    if bad := next((pair for pair in merges if len(pair) != 2), None):
        raise _wrong(path, "tokenizer.ggml.merges", "two tokens with a space between", bad[0])
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
        "model": {
            "type": "BPE",
            "ignore_merges": pre == "llama-bpe",
            "vocab": {text: id for id, text in enumerate(tokens) if types[id] != Kind.UNUSED},
            "merges": [list(pair) for pair in merges],
        },
    }


def _characters(fields: dict[str, Any], tokens: list[str], types: list[int], path: Path) -> dict[str, Any]:
    scores = fields.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise _wrong(path, "tokenizer.ggml.scores", f"{len(tokens):,} scores", scores)
    if others := [kind for kind in types if kind not in list(Kind)]:
        raise _wrong(path, "tokenizer.ggml.token_type", "types of SentencePiece, 1 to 6", others[0])
    pieces = [Piece(text, score, Kind(kind)) for text, score, kind in zip(tokens, scores, types, strict=True)]
    adds_mark = fields.get("tokenizer.ggml.add_space_prefix", True) is True
    return document_of(pieces, False, Normalization(None, adds_mark, joins_spaces=False), str(path))


def _texts(fields: dict[str, Any], key: str, path: Path) -> list[str]:
    found = fields.get(key)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _wrong(path, key, "texts", found)
    return found


def _wrong(path: Path, key: str, expected: str, found: object) -> TokenizerError:
    what = f"{len(found):,} values" if isinstance(found, list) else "none" if found is None else shown(found)
    return TokenizerError(f"{path}: {key}", f"expected {expected}; found {what}.")


class _Reader:
    """Reads the keys and values at the begin of a GGUF file, with bounds."""

    def __init__(self, file: BinaryIO, place: str) -> None:
        self._file, self._place, self._left = file, place, _BYTES_MAX

    def fields(self) -> dict[str, Any]:
        """The values by their keys."""
        if self._take(len(MAGIC)) != MAGIC:
            raise TokenizerError(self._place, "expected a GGUF file; found another kind.")
        version, _, n_fields = self._numbers("<IQQ")
        if version not in _VERSIONS:
            raise TokenizerError(self._place, f"expected GGUF version 2 or 3; found {version}.")
        if n_fields > _FIELDS_MAX:
            raise self._damaged(f"{n_fields:,} keys")
        found = {}
        for _ in range(n_fields):
            key = self._string()
            found[key] = self._value(*self._numbers("<I"))
        return found

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._numbers(_NUMBERS[kind])[0]
        if kind != ARRAY:
            raise self._damaged(f"a value of the type {kind}")
        inner, n_items = self._numbers("<IQ")
        if n_items > _ITEMS_MAX:
            raise self._damaged(f"{n_items:,} values in a list")
        if inner == STRING:
            return [self._string() for _ in range(n_items)]
        if inner not in _NUMBERS:
            raise self._damaged(f"a list of the type {inner}")
        one = struct.Struct(_NUMBERS[inner])
        return [value for (value,) in one.iter_unpack(self._take(one.size * n_items))]

    def _string(self) -> str:
        content = self._take(*self._numbers("<Q"))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self._damaged("bytes that are no UTF-8") from None

    def _numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, n_bytes: int) -> bytes:
        self._left -= n_bytes
        if self._left < 0:
            raise self._damaged(f"more than {_BYTES_MAX:,} bytes before the tensors")
        content = self._file.read(n_bytes)
        if len(content) < n_bytes:
            raise self._damaged("its end")
        return content

    def _damaged(self, found: str) -> TokenizerError:
        return TokenizerError(self._place, f"expected keys and values of GGUF; found {found}.", "Fetch the file again.")
