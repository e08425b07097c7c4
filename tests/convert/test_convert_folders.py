"""The files beside the file of another program count as AutoTokenizer has it, or are a reason to refuse the folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.pieces import PIECES, PLAIN
from tests.builders.tekken import tekken_file
from tests.builders.tokenizer_files import loaded
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.convert import convert, read_form
from tokenmill.features.convert.formats.pieces import document_of

ADDING: dict[str, dict[str, Any]] = {
    "added_tokens.json": {"<x>": 330},
    "special_tokens_map.json": {"additional_special_tokens": ["<x>"]},
    "tokenizer_config.json": {"added_tokens_decoder": {"330": {"content": "<x>", "special": True}}},
}


@pytest.mark.parametrize("beside", ADDING)
@pytest.mark.parametrize("kind", ["sentencepiece", "gguf", "tekken_240911.json"])
def test_tokens_that_only_files_beside_it_have_keep_a_folder_from_being_converted(
    tmp_path: Path, kind: str, beside: str
) -> None:
    folder = tmp_path / "there"
    if kind.endswith(".json"):
        folder.mkdir()
        file = tekken_file(tmp_path, None).rename(folder / kind)
    else:
        loaded(tmp_path, document_of(PIECES, False, PLAIN, "x"))
        (file,) = convert(tmp_path / "tokenizer.json", folder, kind)
    alone = read_form(folder).tokenizer
    (folder / beside).write_text(json.dumps(ADDING[beside]), encoding="utf-8")
    with pytest.raises(TokenizerError, match=f"the files beside {file.name} name tokens that it lacks, such as '<x>'"):
        read_form(folder)
    assert read_form(file).tokenizer.tokens == alone.tokens


CHARACTERS = document_of(PIECES, False, PLAIN, "x")
UNPREFIXED = {**CHARACTERS, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}
SPACE, FLAGS, NORMAL = "puts a space in front of a whole text alone", "has flags", "after normalizing"
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "a space in front of texts": (CHARACTERS, {}, {"sentencepiece": SPACE}),
    "no space in front": (UNPREFIXED, {}, {}),
    "with a space": (UNPREFIXED, {"content": "a b"}, {"sentencepiece": "of each space"}),
    "with a mark": (UNPREFIXED, {"content": "a▁b"}, {"sentencepiece": "of each space"}),
    "normalized": (UNPREFIXED, {"normalized": True}, {"sentencepiece": NORMAL, "gguf": NORMAL}),
    "a byte": (UNPREFIXED, {"content": "<0x41>", "id": 67}, {"sentencepiece": "kind BYTE", "gguf": "kind BYTE"}),
    "unknown": (UNPREFIXED, {"content": "<unk>", "id": 0}, {"sentencepiece": "kind UNKNOWN", "gguf": "kind UNKNOWN"}),
    **{
        flag: (UNPREFIXED, {flag: True}, {"sentencepiece": FLAGS, "gguf": FLAGS})
        for flag in ("lstrip", "rstrip", "single_word")
    },
    "special": (CHARACTERS, {"special": True}, {}),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("format", ["sentencepiece", "gguf"])
def test_an_added_token_that_pieces_would_find_elsewhere_is_refused(tmp_path: Path, case: str, format: str) -> None:
    document, changes, refusals = REFUSED[case]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    one = {"id": len(PIECES), "content": "<sep>", **plain, **changes}
    kept = [added for added in document["added_tokens"] if added["content"] != one["content"]]
    tokenizer = loaded(tmp_path, {**document, "added_tokens": [*kept, one]})
    if format in refusals:
        with pytest.raises(TokenizerError, match=refusals[format]):
            convert(tmp_path, tmp_path / "there", format)
        return
    (file,) = convert(tmp_path, tmp_path / "there", format)
    for text in ("ab<sep>ab", "<sep> a b <sep><sep>b", "a▁b a bb", "<0x41><unk>"):
        assert read_form(file).tokenizer.encode(text) == tokenizer.encode(text)
