"""A tokenizer.json runs in the core where that is exact, else in `tokenizers`; a wrong one is one TokenizerError."""

import contextlib
import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers

from tests.builders.tokenizer_files import (
    DOCUMENT,
    FLAGS,
    GPT2,
    IN_TOKENIZERS,
    ISOLATED,
    LAST,
    MERGES,
    NEXT_ID,
    VOCAB,
    WORD_PIECE,
    changed,
    loaded,
    split,
    with_added,
)
from tests.builders.trained import TOKENIZER, TRICKY
from tests.conftest import SHARED
from tokenmill import Tokenizer, _core
from tokenmill.errors import CorpusError, PatternError, TokenizerError
from tokenmill.pretokenizers.json_steps import BeyondCore
from tokenmill.tokenizer.formats.schema import read_document
from tokenmill.tokenizer.formats.tokenizer_json import merges_of, model_of
from tokenmill.tokenizer.model import AddedToken, Merge, Merges, Model, digest_of, sha256_of

N_EDITS = 3  # of each published one; 1,000 take some minutes


def peer(document: dict[str, Any]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
    tokenizer.encode_special_tokens = True
    return tokenizer


IN_CORE = {
    "as saved": DOCUMENT,
    "merges as texts": changed("model", "merges", to=[" ".join(pair) for pair in MERGES]),
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
    "duplicate merge": changed("model", "merges", to=[*MERGES, MERGES[0]]),
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
        batch = tokenizer.encode_batch(TRICKY)
        assert batch.to_pylist() == expected
        assert tokenizer.decode(batch[3].values) == tokenizer.decode(expected[3])
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").digest == tokenizer.digest


def test_a_suffix_that_the_vocabulary_lacks_is_no_silent_loss(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, changed("model", "end_of_word_suffix", to="</w>"))
    assert tokenizer.engine_reason == "model.end_of_word_suffix is '</w>'"
    with pytest.raises(TokenizerError, match="no token for 'c', or a byte of it, at character 2"):
        tokenizer.encode("abc")


UNIGRAM = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "<unk>", "special": True, **FLAGS}],
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["ab", -1.5], ["b", -2]]},
}


@pytest.mark.parametrize("document", [UNIGRAM, WORD_PIECE], ids=["Unigram", "WordPiece"])
def test_other_models_run_in_tokenizers(tmp_path: Path, document: dict[str, Any]) -> None:
    tokenizer = loaded(tmp_path, document)
    assert tokenizer.engine_reason == f"model.type is '{document['model']['type']}'"
    for text in ("ab", "abab x", "", "[UNK]"):
        assert tokenizer.encode(text) == peer(document).encode(text, add_special_tokens=False).ids


def test_the_second_engine_decodes_and_ends_texts(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, IN_TOKENIZERS["normalizer is NFKC"])
    batch = tokenizer.encode_batch(["e\u0301 <|pad|>", ""], end_id=0)
    assert tokenizer.decode_batch(batch).to_pylist() == ["é <|pad|><|endoftext|>".encode(), b"<|endoftext|>"]
    assert batch.type == TOKENIZER.encode_batch(["a"]).type
    assert tokenizer.decode_bytes(TOKENIZER.encode("🙂")[:1]) == TOKENIZER.token_bytes(TOKENIZER.encode("🙂")[0])
    assert tokenizer.special_tokens == TOKENIZER.special_tokens
    assert [tokenizer.decode(row) for row in batch] == ["é <|pad|><|endoftext|>", "<|endoftext|>"]
    assert tokenizer.decode(batch[1].values) == "<|endoftext|>"
    assert tokenizer.encode_batch([""], end_id=True).to_pylist() == [[1]]
    for text, place in ((b"\xff", "not UTF-8 at byte 0"), (b"ab\xc3", "not UTF-8 at byte 2"), (None, "null")):
        with pytest.raises(CorpusError, match=f"text 1 is {place}"):
            tokenizer.encode_batch([b"ok", text])  # type: ignore[list-item]
    with pytest.raises(TokenizerError, match="not in the vocabulary"):
        tokenizer.decode([NEXT_ID])
    with pytest.raises(TokenizerError, match=r"list 1: id \d+ is not in the vocabulary"):
        tokenizer.decode_batch([[0], [NEXT_ID]])
    with pytest.raises(TypeError, match=r"found \[1\] \(list\) at 0"):
        tokenizer.decode([[1]])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text: expected a str; found bytes"):
        tokenizer.encode(b"abc")  # type: ignore[arg-type]


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


FORMS: dict[str, Callable[[list[str]], Any]] = {
    "str": list,
    "tuple": tuple,
    "bytes": lambda texts: [one.encode() for one in texts],
    "string": pa.array,
    "view": lambda texts: pa.array(texts, pa.string_view()),
    "binary": lambda texts: pa.array([one.encode() for one in texts], pa.large_binary()),
    "chunks": lambda texts: pa.chunked_array([texts[:2], [], texts[2:]], pa.large_string()),
    "slice": lambda texts: pa.array(["e\u0301", *texts, "e\u0301"])[1:-1],
}


@pytest.mark.parametrize("end_id", [None, 1])
@pytest.mark.parametrize("places", ["", "0", "4", "04", "123", "01234"])
@pytest.mark.parametrize("form", FORMS)
def test_texts_that_normalizing_changes_keep_their_places_in_a_batch(
    tmp_path: Path, form: str, places: str, end_id: int | None
) -> None:
    tokenizer = loaded(tmp_path, changed("normalizer", to={"type": "NFC"}))
    texts = [f"cafe\u0301 {i}" if str(i) in places else f"café {'a' * i}" for i in range(5)]
    texts[2] = texts[2] if "2" in places else ""
    end = [] if end_id is None else [end_id]
    given = FORMS[form](texts)
    assert tokenizer.encode_batch(given, end_id=end_id).to_pylist() == [
        TOKENIZER.encode(text.replace("e\u0301", "é")) + end for text in texts
    ]
    assert given == FORMS[form](texts)


@pytest.mark.parametrize("form", FORMS)
def test_normalizing_a_batch_makes_no_added_token_and_loses_none(tmp_path: Path, form: str) -> None:
    added = [{"content": "<é>", "normalized": False}, {"content": "<b>", "normalized": False}]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(with_added(*added) | {"normalizer": {"type": "NFC"}}), encoding="utf-8")
    tokenizer, library = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    for texts in (
        ["a", "<e\u0301> <b>", "<é>"],
        ["<e\u0301>", "plain", "<b>\u0338 cafe\u0301"],
        ["e\u0301", "<b>", "ü"],
        ["plain", "<e\u0301> e\u0301", "a"],
        ["<é>e\u0301"],
    ):
        expected = [one.ids for one in library.encode_batch(texts, add_special_tokens=False)]
        assert tokenizer.encode_batch(FORMS[form](texts)).to_pylist() == expected
        framed = tokenizer.encode_batch(FORMS[form](texts), begin_id=0, end_id=1).to_pylist()
        assert framed == [[0, *ids, 1] for ids in expected]
        assert [tokenizer.encode(one) for one in texts] == expected


def test_a_line_with_the_version_among_the_merges_is_none(tmp_path: Path) -> None:
    lines = ["#version: 0.2", *(" ".join(pair) for pair in MERGES)]
    tokenizer = loaded(tmp_path, changed("model", "merges", to=lines))
    assert tokenizer.digest == TOKENIZER.digest
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("the cat").ids == tokenizer.encode(
        "the cat"
    )


def test_a_special_token_of_the_vocabulary_never_comes_from_text(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, changed("model", "ignore_merges", to=True) | {"pre_tokenizer": LAST})
    assert not {0, 1} & set(tokenizer.encode("<|pad|>"))


MERGED = "".join(MERGES[0])
WRONG: dict[str, object] = {
    "merges of both kinds": changed("model", "merges", to=[" ".join(MERGES[0]), *MERGES[1:]]),
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
    "merges is null": changed("model", "merges", to=None),
    "merge of three": changed("model", "merges", to=["a b c"]),
    "merge of one": changed("model", "merges", to=[["a"]]),
    "merge of numbers": changed("model", "merges", to=[[1, 2]]),
    "merge of unknown": changed("model", "merges", to=[["a", "ß"]]),
    "merge to unknown": changed("model", "merges", to=[["~", "~"]]),
    "a merge that is there twice makes special": changed(
        "added_tokens", to=[{"id": VOCAB[MERGED], "content": MERGED, "special": True, **FLAGS}]
    )
    | {"model": {**DOCUMENT["model"], "merges": [*MERGES, MERGES[0]]}},
    "merge makes special": changed(
        "added_tokens", to=[{"id": VOCAB[MERGED], "content": MERGED, "special": True, **FLAGS}]
    ),
    "special is a byte": changed("added_tokens", to=[{"id": VOCAB["a"], "content": "a", "special": True, **FLAGS}]),
    "added is object": changed("added_tokens", to={}),
    "added is number": changed("added_tokens", to=[7]),
    "added without id": changed("added_tokens", to=[{"content": "x", "special": True, **FLAGS}]),
    "added is surrogate": with_added({"content": "\ud800"}),
    "added twice": with_added({"content": "xyz"}, {"content": "xyz", "id": NEXT_ID}),
    "added flag is null": with_added({"content": "xyz", "lstrip": None}),
    "key twice": json.dumps(DOCUMENT).replace('"model": {', '"model": {"type": "BPE", ', 1),
    "token twice": json.dumps(DOCUMENT).replace('"vocab": {', '"vocab": {"a": 7, ', 1),
    "NaN": changed("model", "dropout", to=float("nan")),
    "infinity": changed("version", to=float("inf")),
    "version 9.0": changed("version", to="9.0"),
    "version is null": changed("version", to=None),
    "unknown field": changed("foo", to=1),
    "dropout": changed("model", "dropout", to=0.5),
    "dropout is text": changed("model", "dropout", to="0.5"),
    "unknown token is unknown": changed("model", "unk_token", to="<none>"),
    "id far beyond the others": changed("model", "vocab", to={**VOCAB, "zzz": 4_000_000_000}),
    "id beyond 32 bits": changed("model", "vocab", to={**VOCAB, "zzz": 2**40}),
    "nested in the vocabulary": json.dumps(DOCUMENT).replace(
        f'{{"{next(iter(VOCAB))}"', '{"x": ' + "[" * 900 + "]" * 900 + f', "{next(iter(VOCAB))}"', 1
    ),
    "nested beside it": changed("x", to=json.loads("[" * 900 + "]" * 900)),
    "auto_map": changed("auto_map", to={"AutoTokenizer": ["code.Tokenizer", None]}),
    "truncation is a number": changed("truncation", to=7),
    "truncation to text": changed(
        "truncation", to={"direction": "Right", "max_length": "3", "strategy": "LongestFirst", "stride": 0}
    ),
    "padding is a list": changed("padding", to=[]),
    "post_processor is text": changed("post_processor", to="ByteLevel"),
    "template is a number": changed(
        "post_processor", to={"type": "TemplateProcessing", "single": 7, "pair": [], "special_tokens": {}}
    ),
    "template's part is text": changed(
        "post_processor", to={"type": "TemplateProcessing", "single": ["A"], "pair": [], "special_tokens": {}}
    ),
    "decoder is a list": changed("decoder", to=[]),
    "decoder without type": changed("decoder", to={}),
    "normalizer is text": changed("normalizer", to="NFC"),
    "normalizers is null": changed("normalizer", to={"type": "Sequence", "normalizers": None}),
    "pretokenizers is an object": changed("pre_tokenizer", to={"type": "Sequence", "pretokenizers": {}}),
    "add_prefix_space is text": changed("pre_tokenizer", to={**GPT2, "add_prefix_space": "false"}),
    "use_regex is null": changed("pre_tokenizer", to={**GPT2, "use_regex": None}),
    "split of nothing": split(**ISOLATED),
    "split by a number": split(**ISOLATED, pattern={"Regex": 7}),
    "split otherwise": split(type="Split", pattern={"Regex": "a"}, behavior="Shattered", invert=False),
    "digits is text": split(type="Digits", individual_digits="yes"),
    "ignore_merges is text": changed("model", "ignore_merges", to="yes"),
    "scored token twice": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["a", -1.5]]}},
    "no tokens at all": {"model": {"type": "Unigram", "vocab": []}},
    "token without score": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a"]]}},
    "score is text": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", "0"]]}},
    "type is a number": changed("model", "type", to=7),
    "merges is an object": changed("model", "merges", to={}),
    "a regex without end": split(**ISOLATED, pattern={"Regex": r"(a+)+$"}),
    "a regex of words without end": split(**ISOLATED, pattern={"Regex": r"(\w+\s?)+\z!x"}),
    "unknown model": {"model": {"type": "Magic", "vocab": {}}},
    "unknown normalizer": changed("normalizer", to={"type": "Magic"}),
    "unknown pre_tokenizer": changed("pre_tokenizer", to={"type": "Magic"}),
    "fixed length 0": changed("pre_tokenizer", to={"type": "FixedLength", "length": 0}) | {"normalizer": 7},
    "regex does not compile": split(**ISOLATED, pattern={"Regex": "("}),
    "surrogate that nothing reads": changed("model", "x", to="\ud800"),
    "surrogate in regex": split(**ISOLATED, pattern={"Regex": "\ud800"}),
    "stride over length": changed("normalizer", to={"type": "NFC"})
    | {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}, "version": 1},
    "bad template": changed("normalizer", to={"type": "NFC"})
    | {"post_processor": {"type": "TemplateProcessing", "single": "[X] $A", "pair": "$A $B", "special_tokens": {}}},
    "bad precompiled map": changed("normalizer", to={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
}


@pytest.mark.parametrize("document", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_one_tokenizer_error_that_names_it(
    tmp_path: Path, document: object, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: "):
        loaded(tmp_path, document)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (WRONG["key twice"], "model: the key 'type' is there twice"),
        (WRONG["token twice"], "model.vocab: the key 'a' is there twice"),
        (WRONG["id far beyond the others"], "model.vocab: token 'zzz' has id 4000000000"),
        (WRONG["unknown model"], "model.type: expected one of BPE, Unigram, WordLevel, WordPiece; found 'Magic'"),
        (
            WRONG["split of nothing"],
            "pretokenizers[0].pattern: expected an object with Regex or an object with String; found nothing",
        ),
        (WRONG["truncation to text"], "truncation.max_length: expected an integer; found '3'"),
        (
            WRONG["template's part is text"],
            "post_processor.single[0]: expected an object with SpecialToken or an object with Sequence; found 'A'",
        ),
        (WRONG["split by a number"], "pre_tokenizer.pretokenizers[0].pattern.Regex: expected a text; found 7"),
        (WRONG["add_prefix_space is text"], "pre_tokenizer.add_prefix_space: expected true or false; found 'false'"),
        (WRONG["a regex without end"], "a regex of the pre_tokenizer or normalizer ('(a+)+$') backtracks without end"),
        (WRONG["nested beside it"], "x: nested too deep; at most 64 levels"),
        (WRONG["version 9.0"], "version: expected \"1.0\"; found '9.0'"),
        (WRONG["unknown field"], "tokenizer.json: foo: an unknown field"),
        (WRONG["merge to unknown"], "model.merges[0]: '~~' is not in model.vocab"),
        (
            WRONG["merges of both kinds"],
            "model.merges[1]: expected all merges as strings or all as lists; found a list of 2.",
        ),
        (changed("normalizer", to={"type": "nfc"}), "tokenizer.json: normalizer: the tokenizers library cannot"),
        (split(**ISOLATED, pattern={"Regex": "("}), "tokenizer.json: pre_tokenizer: the tokenizers library cannot"),
        (changed("model", "type", to="WordLevel"), "tokenizer.json: model: the tokenizers library cannot handle"),
    ],
)
def test_the_field_is_named(tmp_path: Path, document: object, field: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        loaded(tmp_path, document)
    assert field in str(caught.value)


def test_code_beside_a_tokenizer_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path, DOCUMENT)
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"auto_map": {"AutoTokenizer": ["tokenization_x.X", null]}}', encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: auto_map: names code to run"):
        Tokenizer.load(tmp_path)
    config.write_text("{}", encoding="utf-8")
    for name in ("tokenizer.py", "tokenization_x.py", "tokenizer.pkl"):
        (tmp_path / name).touch()
        with pytest.raises(TokenizerError, match=f"{name}: there is code beside the tokenizer"):
            Tokenizer.load(tmp_path)
        (tmp_path / name).unlink()
    assert Tokenizer.load(tmp_path).engine == "core"


def test_what_is_no_file_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match="expected a file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(TokenizerError, match="has 1,099,511,627,776 bytes"):
        Tokenizer.load(tmp_path)


def reshuffled(document: Any, chance: random.Random) -> Any:
    """The same JSON with the keys of every object in another order."""
    if isinstance(document, list):
        return [reshuffled(one, chance) for one in document]
    if not isinstance(document, dict):
        return document
    keys = chance.sample(list(document), len(document))
    return {key: reshuffled(document[key], chance) for key in keys}


def edited(document: dict[str, Any], chance: random.Random) -> tuple[str, dict[str, Any]]:
    """The document with one change of what it means, and what that is."""
    changed = {
        **document,
        "model": {**document["model"]},
        "added_tokens": [{**one} for one in document["added_tokens"]],
    }
    model, added = changed["model"], changed["added_tokens"]
    kind = chance.choice(
        ["swap", "drop merge", "swap merges", "flag", "normalizer", "pattern", "ignore_merges", "rename"]
    )
    match kind:
        case "swap":
            one, other = chance.sample(sorted(model["vocab"].keys() - {token["content"] for token in added}), 2)
            model["vocab"] = {**model["vocab"], one: model["vocab"][other], other: model["vocab"][one]}
        case "drop merge":
            model["merges"] = [*model["merges"]]
            del model["merges"][chance.randrange(len(model["merges"]))]
        case "swap merges":
            model["merges"] = [*model["merges"]]
            one, other = chance.sample(range(len(model["merges"])), 2)
            model["merges"][one], model["merges"][other] = model["merges"][other], model["merges"][one]
        case "flag":
            token = chance.choice(added)
            flag = chance.choice(["special", "single_word", "lstrip", "rstrip", "normalized"])
            token[flag] = not token[flag]
        case "normalizer":
            changed["normalizer"] = {"type": chance.choice(["NFD", "NFKC", "Lowercase"])}
        case "pattern":
            extra = {
                "type": "Split",
                "pattern": {"Regex": f"x{{{chance.randrange(2, 99)}}}"},
                "behavior": "Isolated",
                "invert": False,
            }
            changed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [extra, document["pre_tokenizer"]]}
        case "ignore_merges":
            model["ignore_merges"] = not model.get("ignore_merges", False)
        case "rename":
            token = chance.choice(added)
            if token["content"] not in model["vocab"]:
                token["content"] += "!"
            else:
                token["special"] = not token["special"]
    return kind, changed


def digest(document: dict[str, Any], place: str = "x") -> str:
    """As `Tokenizer.load` has it, but without the core's tables, which take most of the time."""
    read = read_document(json.dumps(document).encode(), place)
    try:
        return digest_of(model_of(read))
    except BeyondCore:
        return sha256_of(read)


def read(content: bytes, merges_as_ids: bool) -> dict[str, Any] | str:
    """The document with its merges as ids, or what is wrong with it."""
    try:
        document = read_document(content, "x", merges_as_ids)
    except TokenizerError as error:
        return str(error)
    model = document["model"]
    if model["type"] == "BPE" and not model.get("continuing_subword_prefix"):
        model["merges"] = list(merges_of(model["merges"], model["vocab"]))
    return document


def as_bytes(document: object) -> bytes:
    return (document if isinstance(document, str) else json.dumps(document)).encode()


ALL = {**IN_CORE, **IN_TOKENIZERS, **WRONG}


@pytest.mark.parametrize("document", ALL.values(), ids=ALL.keys())
def test_the_core_reads_a_file_as_python_does(document: object) -> None:
    assert read(as_bytes(document), True) == read(as_bytes(document), False)


def test_the_core_reads_damaged_files_as_python_does() -> None:
    """Merges and tokens are exchanged, repeated, spoiled and left out, and bytes are changed."""
    chance, n_read = random.Random(6), 0
    for _ in range(300):
        merges = [*MERGES[:20]]
        vocab = {text: id for text, id in VOCAB.items() if id < 400 or text in map("".join, merges)}
        model = {**DOCUMENT["model"], "vocab": vocab, "merges": merges}
        added = [*DOCUMENT["added_tokens"]]
        for _ in range(chance.randrange(3)):
            at, token = chance.randrange(20), chance.choice([*vocab])
            match chance.randrange(6):
                case 0:
                    merges.insert(at, chance.choice(merges))
                case 1:
                    merges[at] = [token, chance.choice([*vocab])]
                case 2:
                    del vocab[token]
                case 3:
                    vocab[token] = chance.choice([*vocab.values(), 2**32 - 1, 2**32, -1, 1.5])
                case 4:
                    added.append({"id": vocab[token], "content": token, "special": True, **FLAGS})
                case 5:
                    model["merges"] = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
        content = bytearray(as_bytes({**DOCUMENT, "model": model, "added_tokens": added}))
        if chance.random() < 0.2:
            content[chance.randrange(len(content))] = chance.choice(b'" \\a1,\xff#')
        n_read += _core.read_bpe(bytes(content)) is not None
        assert read(bytes(content), True) == read(bytes(content), False)
    assert 100 < n_read < 250


def test_merges_that_the_core_has_read_are_ids() -> None:
    for document, kind in ((DOCUMENT, Merges), (IN_TOKENIZERS["decoder is null"], list)):
        assert type(read_document(as_bytes(document), "x", True)["model"]["merges"]) is kind
        assert type(read_document(as_bytes(document), "x")["model"]["merges"]) is list


def test_a_digest_is_of_canonical_json() -> None:
    added = AddedToken(9, "<é>", True, False)
    merges = [Merge(1, 0, 7, 3), Merge(0, 1, 7, 2), Merge(2, 0, 3, 4)]
    model = Model({3: b"ba", 0: b"a", 1: b"b", 2: b"ab", 4: b"aba", 5: b"\n\xff"}, merges, ("x",), (added,), False)
    expected = {
        "add_prefix_space": False,
        "added": [[9, "<é>", True, False, False, False, False]],
        "ignore_merges": False,
        "merges": [[0, 2, 0, 4], [1, 0, 1, 2], [1, 1, 0, 3]],
        "nfc": False,
        "not_applied": {},
        "steps": ["x"],
        "tokens": [[0, "61"], [1, "62"], [2, "6162"], [3, "6261"], [4, "616261"], [5, "0aff"]],
    }
    assert digest_of(model) == sha256_of(expected)


@pytest.mark.parametrize("seed", range(200))
def test_a_digest_changes_with_what_a_tokenizer_means(seed: int) -> None:
    kind, document = edited(DOCUMENT, random.Random(seed))
    try:
        found = digest(document)
    except TokenizerError:
        return  # refused: as safe as another digest
    assert found != digest(DOCUMENT), kind


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "tokenizers").is_dir(), reason="needs the published tokenizers")
@pytest.mark.parametrize("name", ["gpt-2", "starcoder", "qwen3", "llama-2-spm"])
def test_a_published_digest_changes_with_each_of_many_edits(name: str) -> None:
    document = json.loads((SHARED / "tokenizers" / name / "tokenizer.json").read_text(encoding="utf-8"))
    before, chance = digest(document), random.Random(5)
    assert digest(reshuffled(document, chance)) == before
    n_refused = 0
    for _ in range(N_EDITS):
        kind, changed = edited(document, chance)
        try:
            assert digest(changed) != before, kind
        except TokenizerError:
            n_refused += 1
    assert n_refused <= N_EDITS / 2


@pytest.mark.parametrize("document", [*IN_CORE.values(), *IN_TOKENIZERS.values()], ids=[*IN_CORE, *IN_TOKENIZERS])
def test_a_digest_is_the_same_however_the_file_is_written(tmp_path: Path, document: dict[str, Any]) -> None:
    expected = loaded(tmp_path, document).digest
    shuffled = reshuffled(document, random.Random(1))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]]
    shuffled["model"]["merges"] = merges
    assert loaded(tmp_path, json.dumps(shuffled, indent=7, ensure_ascii=True)).digest == expected
    assert loaded(tmp_path, json.dumps(shuffled, separators=(",", ":"), ensure_ascii=False)).digest == expected


def test_bytes_that_are_no_utf8_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"model": "\xff"}')
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)


JUNK: list[Any] = [
    None,
    True,
    7,
    -1,
    2**40,
    1.5,
    "",
    "x",
    "\ud800",
    [],
    [7],
    [[]],
    {},
    {"type": "Magic"},
    {"x": {"y": []}},
]


def fields(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in the document, but of the vocabulary and the merges only a few."""
    if isinstance(document, dict):
        pairs = list(document.items())[: 3 if path[-1:] == ("vocab",) else None]
    elif isinstance(document, list):
        pairs = list(enumerate(document))[:2]
    else:
        pairs = []
    return [found for key, one in pairs for found in [(*path, key), *fields(one, (*path, key))]]


def with_every_part() -> dict[str, Any]:
    document = json.loads(json.dumps(IN_CORE["template"]))
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    document["pre_tokenizer"] = split(**ISOLATED, pattern={"Regex": r"\s+"})["pre_tokenizer"]
    document["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fixed = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    document["padding"] = {**fixed, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|pad|>"}
    document["model"]["merges"] = document["model"]["merges"][:20]
    return document


@pytest.mark.slow
def test_any_value_in_any_field_gives_a_tokenizer_or_a_tokenizer_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = with_every_part()
    n_refused = 0
    for path in fields(whole):
        for junk in JUNK:
            document = copy.deepcopy(whole)
            place: Any = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = junk
            try:
                loaded(tmp_path, document).encode("the cat <|pad|>")
            except (TokenizerError, PatternError):
                n_refused += 1
    assert n_refused > 500
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_random_changes_give_a_tokenizer_or_a_tokenizer_error(tmp_path: Path) -> None:
    small = {**DOCUMENT, "model": {**DOCUMENT["model"], "merges": MERGES[:20]}}
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
        with contextlib.suppress(TokenizerError, PatternError):
            tokenizer = loaded(tmp_path, split(**ISOLATED, pattern={"Regex": regex}))
            assert tokenizer.decode(tokenizer.encode(text)) == text


def random_texts() -> list[str]:
    chance = random.Random(3)
    letters = "abcx e\u0301é\n\t0123'|<>()東🙂"
    pick: Callable[[], str] = lambda: "".join(chance.choices(letters, k=chance.randrange(40)))  # noqa: E731
    return [pick() for _ in range(100)]
