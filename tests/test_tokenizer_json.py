"""A tokenizer.json runs in the core where that is exact, else in `tokenizers`; a wrong one is one TokenizerError."""

import contextlib
import copy
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.test_tokenizer import TOKENIZER, TRICKY
from tokenmill import Tokenizer
from tokenmill.errors import PatternError, TokenizerError
from tokenmill.tokenizer_json import document_of

assert TOKENIZER._model is not None
DOCUMENT = document_of(TOKENIZER._model)
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LAST = {**GPT2, "use_regex": False}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
VOCAB = DOCUMENT["model"]["vocab"]
NEXT_ID = len(VOCAB)


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The document with another value at a path; every key but the last is there."""
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def with_added(*added: dict[str, Any]) -> dict[str, Any]:
    fresh = itertools.count(NEXT_ID)
    ids = [VOCAB[one["content"]] if one["content"] in VOCAB else next(fresh) for one in added]
    tokens = [{"id": id, "special": False, **FLAGS, **one} for id, one in zip(ids, added, strict=True)]
    return changed("added_tokens", to=[*DOCUMENT["added_tokens"], *tokens])


def split(**part: Any) -> dict[str, Any]:
    return changed("pre_tokenizer", to={"type": "Sequence", "pretokenizers": [part, LAST]})


def loaded(tmp_path: Path, document: object) -> Tokenizer:
    path = tmp_path / "tokenizer.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return Tokenizer.load(path)


def peer(document: dict[str, Any]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
    tokenizer.encode_special_tokens = True
    return tokenizer


ISOLATED = {"type": "Split", "behavior": "Isolated", "invert": False}
IN_CORE = {
    "as saved": DOCUMENT,
    "merges as texts": changed("model", "merges", to=[" ".join(pair) for pair in DOCUMENT["model"]["merges"]]),
    "ignore_merges": changed("model", "ignore_merges", to=True),
    "dropout 0": changed("model", "dropout", to=0.0),
    "no pattern": changed("pre_tokenizer", to=LAST),
    "regex": split(**ISOLATED, pattern={"Regex": r"\s+|[A-Za-z_]+"}),
    "text": split(**ISOLATED, pattern={"String": "(x)"}),
    "digits": split(type="Digits", individual_digits=True),
    "runs of digits": split(type="Digits", individual_digits=False),
    "two regexes": changed(
        "pre_tokenizer",
        to={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]},
    ),
    "deepseek-v3's class": split(
        **ISOLATED,
        pattern={"Regex": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|\s+"},
    ),
    "text tokens": with_added({"content": "return"}, {"content": "  x"}, {"content": "東京"}),
    "text tokens of a special one's letters": with_added({"content": "cat"}, {"content": "|x|"}),
    "template": changed(
        "post_processor",
        to={
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
        },
    ),
    "duplicate merge": changed("model", "merges", to=[*DOCUMENT["model"]["merges"], DOCUMENT["model"]["merges"][0]]),
}

IN_TOKENIZERS = {
    "normalizer is NFKC": changed("normalizer", to={"type": "NFKC"}),
    "normalizer is Sequence": changed(
        "normalizer", to={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    ),
    "pre_tokenizer is null": changed("pre_tokenizer", to=None),
    "ends with 'Whitespace'": changed("pre_tokenizer", to={"type": "Whitespace"}),
    "add_prefix_space is true after a split": changed(
        "pre_tokenizer",
        to={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**GPT2, "add_prefix_space": True}],
        },
    ),
    "Split with 'Removed'": split(type="Split", pattern={"Regex": r"\s"}, behavior="Removed", invert=False),
    "invert True": split(type="Split", pattern={"Regex": r"\s"}, behavior="Contiguous", invert=True),
    "otherwise than Oniguruma": split(**ISOLATED, pattern={"Regex": r"\p{N}{1,3}+|\s+$"}),
    "Punctuation": split(type="Punctuation", behavior="Isolated"),
    "decoder is null": changed("decoder", to=None),
    "stands for other bytes": with_added({"content": "é"}),
    "is a byte's token": with_added({"content": "a"}),
    "outside the byte-level alphabet": changed("model", "vocab", to={**DOCUMENT["model"]["vocab"], "a b": NEXT_ID}),
}

# tokenizers leaves out characters that have no token here, without a word.
LEAVES_OUT = ("pre_tokenizer is null", "ends with 'Whitespace'")


@pytest.mark.parametrize("document", IN_CORE.values(), ids=IN_CORE.keys())
def test_the_core_gives_the_ids_of_tokenizers(tmp_path: Path, document: dict[str, Any]) -> None:
    tokenizer = loaded(tmp_path, document)
    assert tokenizer.engine_reason is None
    reference = peer(document)
    for text in [*TRICKY, "(x) return  x é returncat |x|", *random_texts()]:
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("document", IN_CORE.values(), ids=IN_CORE.keys())
def test_what_the_core_runs_is_saved_without_loss(tmp_path: Path, document: dict[str, Any]) -> None:
    tokenizer = loaded(tmp_path, document)
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").digest == tokenizer.digest


@pytest.mark.parametrize(("reason", "document"), IN_TOKENIZERS.items(), ids=IN_TOKENIZERS.keys())
def test_what_the_core_cannot_runs_in_tokenizers_and_says_why(
    tmp_path: Path, reason: str, document: dict[str, Any]
) -> None:
    tokenizer = loaded(tmp_path, document)
    assert tokenizer.engine == "tokenizers"
    assert reason in (tokenizer.engine_reason or "")
    reference = peer(document)
    expected = [reference.encode(text, add_special_tokens=False).ids for text in TRICKY]
    if reason in LEAVES_OUT:
        assert tokenizer.encode_batch(["abc"]).to_pylist() == [reference.encode("abc", add_special_tokens=False).ids]
        with pytest.raises(TokenizerError, match="text 5: the vocabulary has no token for"):
            tokenizer.encode_batch(["a"] * 5 + ["a東"])
    else:
        assert tokenizer.encode_batch(TRICKY).to_pylist() == expected
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").digest == tokenizer.digest


def test_a_suffix_that_the_vocabulary_lacks_is_no_silent_loss(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, changed("model", "end_of_word_suffix", to="</w>"))
    assert tokenizer.engine_reason == "model.end_of_word_suffix is '</w>'"
    with pytest.raises(TokenizerError, match="no token for 'c', or a byte of it, at character 2"):
        tokenizer.encode("abc")


def test_the_second_engine_decodes_and_ends_texts(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, IN_TOKENIZERS["normalizer is NFKC"])
    batch = tokenizer.encode_batch(["e\u0301 <|pad|>", ""], end_id=0)
    assert tokenizer.decode_batch(batch).to_pylist() == ["é <|pad|><|endoftext|>".encode(), b"<|endoftext|>"]
    assert batch.type == TOKENIZER.encode_batch(["a"]).type
    assert tokenizer.decode_bytes(TOKENIZER.encode("🙂")[:1]) == TOKENIZER.token_bytes(TOKENIZER.encode("🙂")[0])
    assert tokenizer.special_tokens == TOKENIZER.special_tokens
    with pytest.raises(TokenizerError, match="not in the vocabulary"):
        tokenizer.decode([NEXT_ID])


def test_truncation_and_padding_of_the_file_drop_and_add_nothing(tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    for normalizer in (None, {"type": "NFC"}):
        document = {
            **DOCUMENT,
            "normalizer": normalizer,
            "truncation": cut,
            "padding": {**fill, "pad_type_id": 0, "pad_token": "<|pad|>"},
        }
        tokenizer = loaded(tmp_path, document)
        assert [tokenizer.encode(text) for text in ("a", TRICKY[8])] == [
            TOKENIZER.encode(text) for text in ("a", TRICKY[8])
        ]


def test_a_special_token_of_the_vocabulary_never_comes_from_text(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, changed("model", "ignore_merges", to=True) | {"pre_tokenizer": LAST})
    assert not {0, 1} & set(tokenizer.encode("<|pad|>"))


MERGED = "".join(DOCUMENT["model"]["merges"][0])
WRONG: dict[str, object] = {
    "empty": "",
    "not JSON": "{",
    "nested": "[" * 100_000,
    "nested objects": '{"model":' * 100_000,
    "huge number": '{"model": {"vocab": {"a": ' + "9" * 5000 + "}}}",
    "a list": [],
    "no model": {},
    "model is text": {"model": "BPE"},
    "vocab is a number": changed("model", "vocab", to=7),
    "id is text": changed("model", "vocab", "a", to="7"),
    "id is true": changed("model", "vocab", "a", to=True),
    "id is fraction": changed("model", "vocab", "a", to=7.5),
    "id is negative": changed("model", "vocab", "a", to=-1),
    "id too large": changed("model", "vocab", "a", to=2**32 - 1),
    "one id twice": changed("model", "vocab", to={**VOCAB, "a": VOCAB["b"]}),
    "empty token": changed("model", "vocab", to={**VOCAB, "": NEXT_ID}),
    "merges is null": changed("model", "merges", to=None),
    "merge of three": changed("model", "merges", to=["a b c"]),
    "merge of one": changed("model", "merges", to=[["a"]]),
    "merge of numbers": changed("model", "merges", to=[[1, 2]]),
    "merge of unknown": changed("model", "merges", to=[["a", "ß"]]),
    "merge to unknown": changed("model", "merges", to=[["~", "~"]]),
    "merge makes special": changed(
        "added_tokens", to=[{"id": VOCAB[MERGED], "content": MERGED, "special": True, **FLAGS}]
    ),
    "special is a byte": changed("added_tokens", to=[{"id": VOCAB["a"], "content": "a", "special": True, **FLAGS}]),
    "added is object": changed("added_tokens", to={}),
    "added is number": changed("added_tokens", to=[7]),
    "added without id": changed("added_tokens", to=[{"content": "x", "special": True, **FLAGS}]),
    "added is empty": with_added({"content": ""}),
    "added is surrogate": with_added({"content": "\ud800"}),
    "added twice": with_added({"content": "xyz"}, {"content": "xyz", "id": NEXT_ID}),
    "added with id of another": with_added({"content": "xyz", "id": 5}),
    "added with another id": with_added({"content": "xyz", "id": NEXT_ID + 7}),
    "added flag is null": with_added({"content": "xyz", "lstrip": None}),
    "unknown model": {"model": {"type": "Magic", "vocab": {}}},
    "unknown normalizer": changed("normalizer", to={"type": "Magic"}),
    "unknown pre_tokenizer": changed("pre_tokenizer", to={"type": "Magic"}),
    "fixed length 0": changed("pre_tokenizer", to={"type": "FixedLength", "length": 0}) | {"normalizer": 7},
    "regex does not compile": split(**ISOLATED, pattern={"Regex": "("}),
    "surrogate in regex": split(**ISOLATED, pattern={"Regex": "\ud800"}),
    "stride over length": changed("normalizer", to={"type": "NFC"})
    | {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}, "version": 1},
    "bad template": changed("normalizer", to={"type": "NFC"})
    | {"post_processor": {"type": "TemplateProcessing", "single": "[X] $A", "pair": "$A $B", "special_tokens": {}}},
    "bad precompiled map": changed("normalizer", to={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
}


@pytest.mark.parametrize("document", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_one_tokenizer_error_that_names_it(tmp_path: Path, document: object) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: "):
        loaded(tmp_path, document)


def test_bytes_that_are_no_utf8_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"model": "\xff"}')
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)


@pytest.mark.slow
def test_random_changes_give_a_tokenizer_or_a_tokenizer_error(tmp_path: Path) -> None:
    small = {**DOCUMENT, "model": {**DOCUMENT["model"], "merges": DOCUMENT["model"]["merges"][:20]}}
    content = json.dumps(small)
    chance = random.Random(7)
    for _ in range(300):
        at = chance.randrange(len(content))
        damaged = content[:at] + chance.choice(['"', "{", "]", "7", "-", "null", "\\", ""]) + content[at + 1 :]
        with contextlib.suppress(TokenizerError, PatternError):
            loaded(tmp_path, damaged).encode("the cat <|pad|>")


def test_a_pattern_that_gives_up_is_an_error_in_both_engines(tmp_path: Path) -> None:
    text = "a" * 41 + "b"
    for regex in (r"(a+)+(?=c)", r"(a+)+$"):
        tokenizer = loaded(tmp_path, split(**ISOLATED, pattern={"Regex": regex}))
        with contextlib.suppress(TokenizerError, PatternError):
            assert tokenizer.decode(tokenizer.encode(text)) == text


def random_texts() -> list[str]:
    chance = random.Random(3)
    letters = "abcx e\u0301é\n\t0123'|<>()東🙂"
    pick: Callable[[], str] = lambda: "".join(chance.choices(letters, k=chance.randrange(40)))  # noqa: E731
    return [pick() for _ in range(100)]
