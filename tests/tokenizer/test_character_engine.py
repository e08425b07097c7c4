"""The core gives the ids of `tokenizers` for character-level BPE with byte fallback, and leaves every other shape to it."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.character_tokenizers import ADDED, SHAPES, TEXTS
from tests.conftest import SHARED
from tokenmill import Tokenizer
from tokenmill.errors import CorpusError, SpecialTokenError, TokenizerError

PLAIN_PIECES = [
    " ",
    "  ",
    "▁",
    "a",
    "b",
    "ab",
    "the",
    "ä",
    "中",
    "文",
    "😀",
    "é",
    "e\u0301",
    "\t",
    "\n",
    "\n\n",
    "<table>",
    "\0",
    "x",
    "<0x41>",
]
PIECES = st.sampled_from([*PLAIN_PIECES, "<s>", "</s>", "<unk>", *(one["content"] for one in ADDED)])
MIXES = st.lists(PIECES, max_size=30).map("".join)


def load(made: dict[str, Any], folder: Path) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(made))
    return Tokenizer.load(folder)


def peer_of(made: dict[str, Any], allow: bool) -> tokenizers.Tokenizer:
    peer = tokenizers.Tokenizer.from_str(json.dumps(made))
    peer.encode_special_tokens = not allow
    return peer


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SHAPES[request.param]


@pytest.mark.parametrize("name", SHAPES)
def test_ids_and_decoded_text_are_those_of_tokenizers(name: str, tmp_path: Path) -> None:
    ours, made = load(SHAPES[name], tmp_path), SHAPES[name]
    assert (ours.engine, ours.engine_reason, ours.model) == ("core", None, None)
    plain, allowing = (peer_of(made, allow) for allow in (False, True))

    @settings(max_examples=150, deadline=None)
    @given(st.lists(MIXES, min_size=1, max_size=4))
    def compare(texts: list[str]) -> None:
        for special, peer in (("as_text", plain), ("allow", allowing)):
            expected = [peer.encode(text, add_special_tokens=False).ids for text in texts]
            assert [ours.encode(text, special=special) for text in texts] == expected  # type: ignore[arg-type]
            found = ours.encode_batch(texts, threads=2, begin_id=1, end_id=2, special=special)  # type: ignore[arg-type]
            assert found.to_pylist() == [[1, *ids, 2] for ids in expected]
            counted = ours.count_tokens(texts, special=special)  # type: ignore[arg-type]
            assert counted.to_pylist() == [len(ids) for ids in expected]
            for ids in expected:
                assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=False)

    compare()


def test_long_texts_without_a_space_are_merged_like_short_ones(shape: dict[str, Any], tmp_path: Path) -> None:
    ours, peer = load(shape, tmp_path), peer_of(shape, False)
    choose = random.Random(5)
    for letters in ("ab", "the", "ä中文a", "中😀ßx", " ab", "  \tthe ab"):
        text = "".join(choose.choices(letters, k=60_000))
        assert ours.encode(text) == peer.encode(text, add_special_tokens=False).ids


@pytest.mark.slow
def test_a_document_of_ten_megabytes_without_a_space_works(tmp_path: Path) -> None:
    ours = load(SHAPES["words"], tmp_path)
    text = "".join(random.Random(6).choices("theab中", k=7_600_000))
    assert len(text.encode()) >= 10_000_000
    ids = ours.encode(text)
    assert sum(len(ours.token_bytes(id).decode()) for id in ids) == len(text) + 1


def test_a_rejected_text_and_one_that_is_no_text_are_errors(tmp_path: Path) -> None:
    ours = load(SHAPES["added tokens"], tmp_path)
    with pytest.raises(SpecialTokenError):
        ours.encode("a <s> b", special="reject")
    assert ours.encode("a < s> b", special="reject") == ours.encode("a < s> b")
    with pytest.raises(CorpusError, match="text 1 is null"):
        ours.encode_batch(pa.array(["a", None]))
    with pytest.raises(CorpusError, match="text 1 is not UTF-8 at byte 1"):
        ours.encode_batch([b"a", b"a\xff"])
    with pytest.raises(CorpusError, match="lone surrogate"):
        ours.encode("a\ud800")
    assert ours.encode_batch([]).to_pylist() == [] and ours.encode_batch([""]).to_pylist() == [[]]
    with pytest.raises(TokenizerError, match="starts of tokens"):
        ours.encode_batch_with_starts(["a"])
    assert ours.shared_in(tmp_path).encode("the cat <s>", "allow") == ours.encode("the cat <s>", "allow")
    assert ours.shared_in(tmp_path).encode("the cat <s>") == ours.encode("the cat <s>")


def test_a_saved_tokenizer_has_the_same_digest(tmp_path: Path) -> None:
    ours = load(SHAPES["words"], tmp_path)
    ours.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert (again.engine, again.digest) == ("core", ours.digest)


def with_a_merge_of_a_byte(made: dict[str, Any]) -> None:
    vocab = made["model"]["vocab"]
    del made["added_tokens"][-len(ADDED) :]
    vocab["a<0x41>"] = len(vocab)
    made["model"]["merges"].append(["a", "<0x41>"])


def changed(change: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(SHAPES["added tokens"]))
    change(made)
    return made


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["model"].update(byte_fallback=False),
        lambda made: made["model"]["vocab"].update({"<no byte>": made["model"]["vocab"].pop("<0x41>")}),
        lambda made: made["model"].update(ignore_merges=True),
        lambda made: made["normalizer"]["normalizers"].append({"type": "NFKC"}),
        lambda made: made.update(normalizer={"type": "Prepend", "prepend": "▁"}),
        lambda made: made.update(normalizer=None),
        lambda made: made.update(
            pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
        ),
        with_a_merge_of_a_byte,
    ],
)
def test_other_shapes_are_run_by_tokenizers(change: Any, tmp_path: Path) -> None:
    made = changed(change)
    ours, peer = load(made, tmp_path), peer_of(made, False)
    assert ours.engine == "tokenizers"
    for text in ("the cat ▁ sat", "äöü 中", "A<0x41> a<left>b"):
        assert ours.encode(text) == peer.encode(text, add_special_tokens=False).ids


def test_the_reason_for_tokenizers_is_the_one_that_counts_for_characters(tmp_path: Path) -> None:
    with_prefix = changed(lambda made: made["model"].update(ignore_merges=True))
    assert load(with_prefix, tmp_path).engine_reason == "model.ignore_merges is True"


def test_a_split_at_spaces_after_they_are_marked_changes_nothing(tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    made = changed(lambda made: made.update(pre_tokenizer=split))
    ours, peer = load(made, tmp_path), peer_of(made, False)
    assert ours.engine == "core"
    for text in [*TEXTS[:3], "", " ", "▁ ▁"]:
        assert ours.encode(text) == peer.encode(text, add_special_tokens=False).ids


@pytest.mark.slow
@pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs the published tokenizer and texts, which are not the project's own"
)
def test_the_published_tokenizer_gives_the_ids_of_tokenizers_on_hard_text() -> None:
    folder = SHARED / "tokenizers" / "llama-2-spm"
    ours = Tokenizer.load(folder)
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    peer.encode_special_tokens = True
    for path in sorted(one for one in (SHARED / "corpus" / "hard").iterdir() if one.is_file()):
        text = path.read_bytes()[:200_000].decode(errors="replace")
        ids = peer.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, path.name
        assert ours.encode_batch([text]).to_pylist() == [ids], path.name
