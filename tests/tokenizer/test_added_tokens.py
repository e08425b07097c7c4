"""Tokenizers of every mix of features give the ids of `tokenizers`, with special tokens as text and as tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders.tokenizer_files import DOCUMENT, GPT2, ISOLATED, LAST, VOCAB, with_added
from tokenmill import Tokenizer, _core
from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.added_tokens import normalized

DIGITS = {"type": "Digits", "individual_digits": True}
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def a_split(regex: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


PRE_TOKENIZERS = [
    GPT2,
    LAST,
    {**GPT2, "add_prefix_space": True},
    {**LAST, "add_prefix_space": True},
    sequence(GPT2),
    sequence(DIGITS, GPT2),
    sequence({**DIGITS, "individual_digits": False}, sequence(LAST)),
    sequence(a_split(CL100K), LAST),
    sequence(a_split(CL100K, "Removed", True), LAST),
    sequence(a_split(CL100K, "Isolated", True), GPT2),
    sequence(a_split(r"\p{N}{1,3}"), a_split("[\r\n]"), LAST),
    sequence({**ISOLATED, "pattern": {"String": " "}}, {**LAST, "add_prefix_space": True}),
    sequence({"type": "Punctuation", "behavior": "Isolated"}, LAST),
    sequence(LAST, DIGITS),
    *(sequence(a_split(r"\s|[a-c]", behavior, invert), LAST) for behavior in BEHAVIORS for invert in (False, True)),
]
NORMALIZERS = [
    None,
    None,
    {"type": "NFC"},
    {"type": "NFC"},
    {"type": "Sequence", "normalizers": []},
    {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    {"type": "NFKC"},
    {"type": "Lowercase"},
]
TEXTS = [
    "<a>",
    "<a",
    "a>",
    ">",
    "cat",
    "catch",
    "return",
    " ",
    "\n",
    "  ",
    "\n\n",
    "é",
    "e\u0301",
    "<|pad|>",
    "|>",
    "[X]",
    " x",
    "東京",
    "K",
]
PIECES = [
    *TEXTS,
    "<|endoftext|>",
    "\t",
    "\u00a0",
    "\u200d",
    "\u0301",
    "\u0338",
    "\u212a",
    "\u1e9b\u0323",
    "\u1100\u1161",
    "a",
    "b",
    "c",
    "x",
    "_",
    "1",
    "12345",
    "²",
    "!",
    "'s",
    "🙂",
    "\x00",
    "\x1c",
    "\x85",
    "가",
    "\U00011938",
    "the cat sat",
]

a_text = st.lists(st.one_of(st.sampled_from(PIECES), st.characters(exclude_categories=["Cs"])), max_size=12).map(
    "".join
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A tokenizer.json: the small one of these tests with other parts around it."""
    texts = draw(st.lists(st.sampled_from(TEXTS), max_size=6, unique=True))
    taken = {one["content"] for one in DOCUMENT["added_tokens"]}
    flag = st.sampled_from([False, False, True])
    added, next_id = [], len(VOCAB)
    default = draw(st.sampled_from([None, False, True]))
    for text in texts:
        if text in taken:
            continue
        id = VOCAB.get(text, next_id)
        next_id += text not in VOCAB
        flags = {name: draw(flag) for name in ("special", "single_word", "lstrip", "rstrip", "normalized")}
        if default is not None:  # as most files have it
            flags |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": default}
        added.append({"id": id, "content": text, **flags})
    merges = DOCUMENT["model"]["merges"]
    model = {
        **DOCUMENT["model"],
        "ignore_merges": draw(st.booleans()),
        "unk_token": draw(st.sampled_from([None, None, "<|pad|>"])),
        "merges": draw(st.sampled_from([merges, [" ".join(pair) for pair in merges]])),
    }
    return {
        **DOCUMENT,
        "added_tokens": [*DOCUMENT["added_tokens"], *added],
        "normalizer": draw(st.sampled_from(NORMALIZERS)),
        "pre_tokenizer": draw(st.sampled_from(PRE_TOKENIZERS)),
        "model": model,
    }


def outcome(encode: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return encode(*arguments, **named)
    except TokenizerError as error:
        return str(error)


def ids_of(peer: Any, text: str) -> list[int] | None:
    """None where `tokenizers` panics: a token takes white space on both sides that the one before has taken."""
    try:
        ids: list[int] = peer.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None
    return ids


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents(), st.lists(a_text, min_size=1, max_size=8))
def test_any_mix_of_features_gives_the_ids_of_tokenizers(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any], texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("mix") / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        tokenizer = Tokenizer.load(path)
    except TokenizerError as error:  # a special token that text would become, or two tokens that normalizing makes one
        assert "special token" in str(error) or "after normalizing" in str(error)
        return
    control = set(tokenizer.special_tokens.values())
    peer = tokenizers.Tokenizer.from_str(json.dumps(document))
    for allow in (False, True):
        peer.encode_special_tokens = not allow
        expected = [ids_of(peer, text) for text in texts]
        special = "allow" if allow else "as_text"
        for text, ids in zip(texts, expected, strict=True):
            found = outcome(tokenizer.encode, text, special)
            if ids is None:
                continue
            if not allow and set(ids) & control:  # made by the model itself, which tokenizers lets pass
                assert isinstance(found, str) or not set(found) & control
            else:
                assert found == ids, (tokenizer.engine, tokenizer.engine_reason)
        batch = outcome(tokenizer.encode_batch, texts, special=special)
        assert isinstance(batch, str) or batch.to_pylist() == [tokenizer.encode(text, special) for text in texts]
    tokenizer.save(path.parent / "saved")
    again = Tokenizer.load(path.parent / "saved")
    assert (again.digest, again.engine) == (tokenizer.digest, tokenizer.engine)
    assert [outcome(again.encode, text, "allow") for text in texts] == [
        tokenizer.encode(text, "allow") for text in texts
    ]


@pytest.mark.parametrize(
    ("added", "text", "ids"),
    [
        ([{"content": " ", "lstrip": True, "rstrip": True}], "a  b", ["a", " ", "b"]),
        ([{"content": "<x>", "rstrip": True}, {"content": "\n", "lstrip": True}], "<x>\n", ["<x>"]),
        ([{"content": "<x>", "rstrip": True}, {"content": "\n"}], "<x>\n", ["<x>", "\n"]),
    ],
)
def test_white_space_that_the_token_before_took_is_no_token(
    tmp_path: Path, added: list[dict[str, Any]], text: str, ids: list[str]
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(with_added(*added)), encoding="utf-8")
    tokenizer, peer = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    assert tokenizer.encode(text) == peer.encode(text).ids == [peer.token_to_id(one) for one in ids]


@pytest.mark.parametrize(
    ("added", "text", "ids"),
    [
        ([{"content": "<x>", "rstrip": True}, {"content": "\n", "lstrip": True}], "<x>\n\n", ["<x>"]),
        (
            [{"content": "\n", "lstrip": True}, {"content": "<x>", "lstrip": True, "rstrip": True}],
            "<x>\n a",
            ["<x>", "a"],
        ),
    ],
)
def test_the_core_gives_ids_where_tokenizers_panics(
    tmp_path: Path, added: list[dict[str, Any]], text: str, ids: list[str]
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(with_added(*added)), encoding="utf-8")
    tokenizer, peer = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    assert ids_of(peer, text) is None
    assert tokenizer.encode(text) == [peer.token_to_id(one) for one in ids]


COMBINING = st.sampled_from("\u0301\u0323\u0344\u1100\u1161\u11a8\u3099\u0f71\u07fd\u0898가かéeệ\u212b \n")


@given(st.lists(COMBINING | st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(1, 40))
def test_text_of_any_length_is_normalized_as_tokenizers_has_it(chars: list[str], n: int) -> None:
    for text in ("".join(chars) * n, "".join(one * n * 10 for one in chars)):
        expected = tokenizers.normalizers.NFC().normalize_str(text)
        assert normalized(text) == expected
        assert expected == text or _core.not_nfc([text]) == [0]


@pytest.mark.slow
def test_not_nfc_finds_every_character_that_normalizing_changes() -> None:
    characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    for texts in (characters, [f"e{one}\u0301" for one in characters], [f"\u1100{one}\u11a8" for one in characters]):
        told = set(_core.not_nfc(texts))
        nfc = tokenizers.normalizers.NFC()
        assert not [i for i, text in enumerate(texts) if i not in told and nfc.normalize_str(text) != text]
    assert len(told) < len(texts) // 100


@pytest.mark.parametrize("normalizer", ["NFC", "NFKC"])
def test_two_tokens_that_normalizing_makes_one_are_refused(tmp_path: Path, normalizer: str) -> None:
    flags = {"special": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [
        *DOCUMENT["added_tokens"],
        {"id": len(VOCAB), "content": "<e\u0301>", **flags, "normalized": True},
        {"id": len(VOCAB) + 1, "content": "<\u00e9>", **flags, "normalized": True},
    ]
    document = {**DOCUMENT, "normalizer": {"type": normalizer}, "added_tokens": added}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"added_tokens\[3\]: .* are the same text after normalizing"):
        Tokenizer.load(path)
    added[-1]["normalized"] = False
    path.write_text(json.dumps(document), encoding="utf-8")
    assert Tokenizer.load(path).encode("<\u00e9>") == [len(VOCAB) + 1]
