"""A tokenizer.json that may take time or memory without a bound is refused when it is loaded, and the message names the part."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tokenmill import Tokenizer
from tokenmill.errors import TokenizerError

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
PIECE = {**WORDS, "type": "WordPiece", "continuing_subword_prefix": "##"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
FIRST, SECOND = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")


def load(folder: Path, **sections: Any) -> Tokenizer:
    document = {"version": "1.0", "added_tokens": [], "model": WORDS, **sections}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return Tokenizer.load(folder)


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(parts)}}


def charsmap(longest: int) -> str:
    return base64.b64encode(struct.pack("<I", 4) + bytes(4) + b"x" * longest + b"\0").decode()


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        (normalizers(*[replace("a" * 100_000, String="a")] * 2), "normalizer: with part 1, 'Replace'"),
        (normalizers(*[replace("aa", String="a")] * 30), "normalizer: with part 10, 'Replace'"),
        (normalizers({"type": "NFC"}, normalizers(*[replace("aa", String="a")] * 30)["normalizer"] | {"type": "Sequence"}),
         "normalizer: with part 11, 'Replace'"),
        (normalizers(*[replace(" ", Regex="x*")] * 30), "normalizer: with part 7, 'Replace'"),
        (normalizers(*[replace(" ", Regex="a{,3}")] * 30), "normalizer: with part 7, 'Replace'"),
        (normalizers(*[replace(" ", String="")] * 30), "normalizer: with part 7, 'Replace'"),
        (normalizers({"type": "Prepend", "prepend": "a" * 1_000}), "normalizer: with part 1, 'Prepend'"),
        (normalizers({"type": "Precompiled", "precompiled_charsmap": charsmap(1_001)}), "part 1, 'Precompiled'"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL] * 30}}, "pre_tokenizer: with part 7, 'ByteLevel'"),
        ({"post_processor": {"type": "TemplateProcessing", "single": [FIRST] * 1_001, "pair": [FIRST, SECOND],
                             "special_tokens": {}}}, "post_processor: with part 1, 'TemplateProcessing'"),
        ({"decoder": {"type": "Sequence", "decoders": [replace("a" * 99, String="a")] * 2}}, "decoder: with part 2, 'Replace'"),
        ({"decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": ""}] * 30}}, "part 7, 'BPEDecoder'"),
        ({"model": {**PIECE, "max_input_chars_per_word": 10**18}}, "model.max_input_chars_per_word: expected 1,000 at most"),
        ({"model": {"type": "Unigram", "vocab": [["a" * n, -1.0] for n in range(1, 300)], "unk_id": 0}},
         "model.vocab: the token 'aaa"),
    ],
)  # fmt: skip
def test_what_has_no_bound_is_refused_by_name(tmp_path: Path, sections: dict[str, Any], named: str) -> None:
    with pytest.raises(TokenizerError) as error:
        load(tmp_path, **sections)
    assert named in str(error.value)


@pytest.mark.parametrize(
    "sections",
    [
        normalizers(*[replace('"', Regex="[“”]")] * 50, *[replace(" ", Regex=r"\s+")] * 50, {"type": "Lowercase"}),
        normalizers({"type": "NFKC"}, replace("▁", String=" "), {"type": "Prepend", "prepend": "▁"}),
        {"model": {**PIECE, "max_input_chars_per_word": 1_000}},
        {"model": {"type": "Unigram", "vocab": [["a" * n, -1.0] for n in range(1, 257)], "unk_id": 0}},
    ],
)
def test_what_has_a_bound_is_loaded(tmp_path: Path, sections: dict[str, Any]) -> None:
    assert load(tmp_path, **sections).encode("a")


def test_a_text_that_would_grow_beyond_memory_is_refused(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, **normalizers(replace("a" * 999, String="a")))
    assert tokenizer.encode("a" * 100) == [1]
    with pytest.raises(TokenizerError, match="a text of 1,000,000 characters more than 6 times as long"):
        tokenizer.encode("a" * 10**6)
    assert tokenizer.encode("b" * 10**6) == [1]
