"""Tokenizer files of many shapes, trained on the golden texts: the same files on every machine."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.builders import character_tokenizers
from tests.builders.trained import trained
from tokenmill.artifacts.golden_texts import PANEL
from tokenmill.pretokenizers.patterns import names
from tokenmill.tokenizer.formats.tokenizer_json import document_of

_TEXTS = list(PANEL.values())
_SPECIAL = ["<|endoftext|>", "<|pad|>"]
_LAST = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_PATTERNS = {**{name: name for name in names()}, "none": None, "own": r"\s+|[^\s]+"}


def _byte_level(pattern: str | None) -> dict[str, Any]:
    made = trained(_TEXTS, pattern, vocab_size=500, special_tokens=_SPECIAL)
    assert made.model is not None
    return document_of(made.model)


_GPT2 = _byte_level("gpt2")


def _changed(**parts: Any) -> dict[str, Any]:
    """The byte-level tokenizer with the split of GPT-2, with other sections."""
    return {**copy.deepcopy(_GPT2), **parts}


def _split(part: Mapping[str, Any]) -> dict[str, Any]:
    return _changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [part, _LAST]})


def _with_added(flags: Mapping[str, bool], *texts: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    first = len(_GPT2["model"]["vocab"])
    added = [{"id": first + i, "content": text, **plain, **flags} for i, text in enumerate(texts)]
    return _changed(added_tokens=[*_GPT2["added_tokens"], *added])


def _of_library(model: Any, split: Any, normalizer: Any = None) -> dict[str, Any]:
    """A tokenizer with a given vocabulary: what the library's own trainers make varies from run to run."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = split
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    return made


def _word_piece(normalizer: Any = None) -> dict[str, Any]:
    letters = "abcdefghijklmnopqrstuvwxyzäöüßé0123456789.,'"
    tokens = ["[UNK]", *letters, *(f"##{one}" for one in letters), "the", "mill", "##ing", "##er", "한글"]
    model = models.WordPiece({text: i for i, text in enumerate(tokens)}, unk_token="[UNK]")
    return _of_library(model, pre_tokenizers.BertPreTokenizer(), normalizer)


def _unigram(normalizer: Any = None) -> dict[str, Any]:
    pieces = [("<unk>", 0.0), ("▁", -2.0), *((one, -5.0 - i / 100) for i, one in enumerate("etaoinsrhldcumfpg"))]
    pieces += [("▁the", -3.0), ("ing", -3.5), ("▁mill", -4.0), ("er", -4.5)]
    return _of_library(models.Unigram(pieces, unk_id=0), pre_tokenizers.Metaspace(), normalizer)


def _word_level() -> dict[str, Any]:
    words = ["[UNK]", "the", "mill", "weht", "Mühle", "12", "123", "int", "main", ".", "(", ")", "a", "b", "c"]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    return _of_library(model, pre_tokenizers.Whitespace())


def _ends() -> dict[str, Any]:
    end = [("<|endoftext|>", _GPT2["model"]["vocab"]["<|endoftext|>"])]
    template = processors.TemplateProcessing("$A <|endoftext|>", special_tokens=end)
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(_GPT2))
    tokenizer.post_processor = template
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    return made


SHAPES: dict[str, dict[str, Any]] = {
    **{f"bytes {name}": _byte_level(pattern) for name, pattern in _PATTERNS.items()},
    "bytes nfc": _changed(normalizer={"type": "NFC"}),
    "bytes nfkc": _changed(normalizer={"type": "NFKC"}),
    "bytes lowercase": _changed(normalizer={"type": "Lowercase"}),
    "bytes prefix space": _changed(pre_tokenizer={**_LAST, "add_prefix_space": True, "use_regex": True}),
    "bytes digits": _split({"type": "Digits", "individual_digits": True}),
    "bytes punctuation": _split({"type": "Punctuation", "behavior": "Isolated"}),
    "bytes removed spaces": _split(
        {"type": "Split", "pattern": {"Regex": r"\s"}, "behavior": "Removed", "invert": False}
    ),
    "bytes ignore merges": _changed(model={**_GPT2["model"], "ignore_merges": True}),
    "bytes added": _with_added({}, "mill", "the ", "<box>"),
    "bytes added strip": _with_added({"lstrip": True, "rstrip": True}, "<box>"),
    "bytes added word": _with_added({"single_word": True}, "mill"),
    "bytes added normalized": _with_added({"normalized": True}, "Mill"),
    "bytes ends": _ends(),
    **{f"characters {name}": made for name, made in character_tokenizers.SHAPES.items()},
    "wordpiece": _word_piece(),
    "wordpiece bert": _word_piece(normalizers.BertNormalizer()),
    "unigram": _unigram(),
    "unigram nfkc": _unigram(normalizers.NFKC()),
    "wordlevel": _word_level(),
}


def write(folder: Path, shape: Mapping[str, Any]) -> Path:
    """Writes a shape's tokenizer.json into a folder, and gives its path."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(shape), encoding="utf-8")
    return path
