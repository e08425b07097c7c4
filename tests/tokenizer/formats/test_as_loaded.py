"""A file loads as `tokenizers` loads it wherever its meaning is certain: without a type of the model, with ids that the library
changes, and with empty tokens. What is odd is said."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill import Tokenizer
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.inspect import check_tokenizer

FLAGS = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
WORDS = {"pre_tokenizer": {"type": "Whitespace"}}
VOCAB = {"[UNK]": 0, "a": 1, "b": 2, "ab": 3, "##a": 4, "##b": 5}
PIECES = [["<unk>", 0.0], ["a", -1.0], ["b", -1], ["ab", -1.5], [" ", -2.0]]
WORD_PIECE = {
    "vocab": VOCAB,
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 3,
}
BPE = {"vocab": VOCAB, "merges": [["a", "b"]], "unk_token": "[UNK]"}
UNTYPED: dict[str, dict[str, Any]] = {
    "BPE": BPE,
    "WordPiece": WORD_PIECE,
    "WordLevel": {"vocab": VOCAB, "unk_token": "[UNK]"},
}
UNTYPED["Unigram"] = {"unk_id": 0, "vocab": PIECES}
NO_TYPE = "model without a type, read as tokenizers reads it"
MOVED = "added tokens whose id tokenizers changes"
EMPTY = "added tokens without a text, which no text leads to"


def added(*tokens: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": id, "content": text, **FLAGS} for id, text in tokens]


FILES: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {
    **{f"untyped {kind}": ({"model": model, **WORDS}, {NO_TYPE: [kind]}) for kind, model in UNTYPED.items()},
    "untyped, with the fields of BPE and of WordPiece": (
        {"model": {**WORD_PIECE, **BPE, "merges": [["a", "##b"]]}},
        {NO_TYPE: ["BPE"]},
    ),
    "an id that is not the next": (
        {"model": {"type": "BPE", **BPE}, "added_tokens": added((9, "<x>"), (6, "<y>"))},
        {MOVED: ["'<x>': 9 to 6", "'<y>': 6 to 7"]},
    ),
    "an id of another token": (
        {"model": {"type": "WordLevel", **UNTYPED["WordLevel"]}, **WORDS, "added_tokens": added((1, "x"))},
        {MOVED: ["'x': 1 to 6"]},
    ),
    "an id that differs from the vocabulary's": (
        {"model": {"type": "WordPiece", **WORD_PIECE}, **WORDS, "added_tokens": added((7, "ab"))},
        {MOVED: ["'ab': 7 to 3"]},
    ),
    "an id of a scored vocabulary": (
        {"model": {"type": "Unigram", **UNTYPED["Unigram"]}, "added_tokens": added((0, "<x>"), (1, "a"))},
        {MOVED: ["'<x>': 0 to 5"]},
    ),
    "an added token without a text": (
        {"model": {"type": "BPE", **BPE}, "added_tokens": added((6, "<x>"), (7, ""), (8, "<y>"))},
        {EMPTY: ["id 7"], MOVED: ["'<y>': 8 to 7"]},
    ),
    "an empty token in the vocabulary": (
        {
            "model": {"type": "BPE", **BPE, "vocab": {**VOCAB, "": 6}},
            "added_tokens": added((6, ""), (7, "<x>")),
        },
        {EMPTY: ["id 6"]},
    ),
}


def load(tmp_path: Path, document: dict[str, Any]) -> Tokenizer:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("name", FILES)
def test_it_loads_with_the_ids_of_tokenizers_and_says_what_is_odd(tmp_path: Path, name: str) -> None:
    document, odd = FILES[name]
    tokenizer = load(tmp_path, document)
    peer = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert {id: token.decode() for id, token in tokenizer.tokens.items()} == {
        id: text for text, id in peer.get_vocab().items()
    }

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(["a", "b", "x", " ", "é", "ab", "<x>", "<y>", "[UNK]"]), max_size=12).map("".join))
    def the_ids_are_equal(text: str) -> None:
        assert tokenizer.encode(text) == peer.encode(text, add_special_tokens=False).ids

    the_ids_are_equal()
    found = {one["what"]: one["examples"] for one in check_tokenizer(tmp_path)["oddities"]}
    assert {what: found[what] for what in (NO_TYPE, MOVED, EMPTY) if what in found} == odd
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").digest == tokenizer.digest


@pytest.mark.parametrize(
    "model",
    [
        {**WORD_PIECE, "merges": [["x", "y"]]},  # WordPiece to tokenizers
        {**WORD_PIECE, "merges": None},  # the same
        {**WORD_PIECE, "max_input_chars_per_word": -1},  # WordLevel to tokenizers
        {"vocab": VOCAB, "unk_token": "[UNK]", "continuing_subword_prefix": "##"},  # the same
        {**BPE, "dropout": "much"},  # the same
        {"vocab": VOCAB},  # nothing to tokenizers
    ],
)
def test_an_untyped_model_of_which_a_field_is_wrong_is_refused(tmp_path: Path, model: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: model\.(merges|type|dropout)"):
        load(tmp_path, {"model": model, **WORDS})


def test_an_id_that_tokenizers_gives_to_two_tokens_is_refused(tmp_path: Path) -> None:
    document = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 2}, "merges": []}, "added_tokens": added((3, "<x>"))}
    with pytest.raises(TokenizerError, match=r"'<x>' and 'b' both have id 2; the file says 3, but"):
        load(tmp_path, document)
