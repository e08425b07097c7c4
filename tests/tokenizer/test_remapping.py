"""Remapped ids are those of the trimmed tokenizer: the oracle encodes every text again."""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.trained import END, PATTERNS, SPECIAL, TEXT, TOKENIZER, TRICKY, trained
from tests.conftest import SHARED
from tokenmill import Tokenizer, _core
from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers.patterns import names, steps_of
from tokenmill.tokenizer.remapping import Remapping, _closes, _opens
from tokenmill.training.trim import trim

WIDE, NARROW = pa.large_list(pa.uint32()), pa.list_(pa.uint16())


def uses(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    ids = tokenizer.encode_batch(pa.array(texts, pa.large_string()), 1).values.to_numpy()
    return np.bincount(ids, minlength=tokenizer.id_max + 1).tolist()


def assert_remaps(old: Tokenizer, new: Tokenizer, texts: Sequence[str], **options: Any) -> int:
    """Compares with the oracle, and gives the number of ids that were encoded again."""
    array = pa.array(texts, pa.large_string())
    ends = {name: options[name] for name in ("begin_id", "end_id") if name in options}
    special = options.get("special", "as_text")
    remapping = Remapping(old, new)
    before = old.encode_batch(array, 1, special=special, **ends)
    after = new.encode_batch(array, 1, special=special, **{name: remapping.new_id(id) for name, id in ends.items()})
    found = remapping(before)
    assert found.ids.cast(WIDE).to_pylist() == after.to_pylist()
    return found.n_again


@settings(max_examples=300)
@given(
    texts=st.lists(st.text("abd", min_size=1, max_size=12), min_size=1, max_size=6),
    more=st.lists(st.text("abd", max_size=16), max_size=6),
    keep=st.integers(256, 276),
)
def test_remapping_a_document_without_a_split_is_encoding_it_again(
    texts: list[str], more: list[str], keep: int
) -> None:
    old = trained(texts, pattern=None, vocab_size=276, pair_count_min=1)
    new = trim(old, uses(old, texts), min(keep, old.vocab_size)).tokenizer
    assert_remaps(old, new, [*texts, *more])


@settings(max_examples=300)
@given(
    texts=st.lists(st.text("abd  .1\n\u3000é", min_size=1, max_size=24), min_size=1, max_size=6),
    more=st.lists(st.text("abd  .1\n\u3000é", max_size=40), max_size=6),
    pattern=st.sampled_from(PATTERNS),
    n_drop=st.integers(0, 60),
    seed=st.integers(0, 9),
)
def test_remapping_pretokens_is_encoding_them_again(
    texts: list[str], more: list[str], pattern: str | None, n_drop: int, seed: int
) -> None:
    old = trained(texts, pattern=pattern, vocab_size=330, pair_count_min=1, special_tokens=[END, "<|b|>"])
    counts = np.random.default_rng(seed).integers(0, 9, old.vocab_size).tolist()  # leaves of all lengths go
    new = trim(old, counts, max(old.vocab_size - n_drop, 258)).tokenizer
    assert_remaps(old, new, [*texts, *more], begin_id=1, end_id=0)


@pytest.mark.parametrize("pattern", [*names()])
@settings(max_examples=300)
@given(text=st.text("ab1.' \t\r\n\x85\u3000é中ये/A٣", max_size=16))
def test_a_known_end_of_a_pretoken_is_one_in_every_text(pattern: str, text: str) -> None:
    """The claim on which the ranges rest: the text in front of such a place, and from it on, are split as they are together."""
    steps = list(steps_of(pattern))
    for at in range(1, len(text)):
        if _closes(text[:at].encode()) and _opens(text[at:].encode(), pattern):
            assert _core.split(steps, text) == [*_core.split(steps, text[:at]), *_core.split(steps, text[at:])]


def test_a_token_that_may_end_in_white_space_closes_nothing() -> None:
    ends = ["a", "é", "中", "\u3000", "\xa0", "\n", "\x85", "\u2028"]
    assert [_closes(text.encode()) for text in ends] == [True, True, True, False, False, False, False, False]
    assert not _closes("\u3000".encode()[-1:]) and not _closes("\u3000".encode()[-2:])
    assert _closes("中".encode()[:2])  # the rest of the character follows: a text does not end here


@pytest.mark.parametrize("keep", [258, 400, 700, 1199, 1200])
@pytest.mark.parametrize("special", ["as_text", "allow"])
def test_texts_that_are_hard_to_encode_are_remapped(keep: int, special: str) -> None:
    new = trim(TOKENIZER, uses(TOKENIZER, TEXT), keep).tokenizer
    n_again = assert_remaps(TOKENIZER, new, [*TEXT, *TRICKY], special=special, end_id=TOKENIZER.special_tokens[END])
    assert bool(n_again) == (keep < 1200)


def test_only_the_words_around_a_dropped_token_are_encoded_again() -> None:
    old = trained(["low lower lowest " * 9], vocab_size=270)
    new = trim(old, [9] * 256 + [0] * (old.vocab_size - 256), old.vocab_size - 1).tokenizer
    [dropped] = {*old.tokens.values()} - {*new.tokens.values()}
    texts = ["".join([" a b c d", dropped.decode(), " e f g h"])]
    assert 1 <= assert_remaps(old, new, texts) <= 4


def test_lists_of_each_kind_and_parts_of_them_are_remapped() -> None:
    new = trim(TOKENIZER, uses(TOKENIZER, TEXT), 500).tokenizer
    remapping = Remapping(TOKENIZER, new)
    ids = TOKENIZER.encode_batch(pa.array(["x", *TEXT, "", *TRICKY], pa.large_string()), 1)
    expected = new.encode_batch(pa.array(["x", *TEXT, "", *TRICKY], pa.large_string()), 1).to_pylist()
    for some in (ids, ids.cast(NARROW), ids.cast(pa.list_(pa.uint32()))):
        assert remapping(some.slice(1, 9)).ids.to_pylist() == expected[1:10]
        assert remapping(some.slice(3, 0)).ids.to_pylist() == []
    assert remapping(ids).ids.type.value_type == pa.uint16()


def changed(**changes: Any) -> Tokenizer:
    assert TOKENIZER.model is not None
    return Tokenizer(replace(TOKENIZER.model, **changes))


def test_a_tokenizer_that_is_no_trim_is_refused() -> None:
    assert TOKENIZER.model is not None
    merges, added = TOKENIZER.model.merges, TOKENIZER.model.added
    swapped = [merges[1]._replace(rank=0), merges[0]._replace(rank=1), *merges[2:]]
    for new, words in [
        (trained(TEXT, vocab_size=1300, special_tokens=SPECIAL), "it has others"),
        (changed(merges=swapped), "its merges are others"),
        (changed(merges=merges[:-1]), "its merges are others"),
        (changed(steps=steps_of("llama3")), "its steps is another"),
        (changed(nfc=True), "its nfc is another"),
        (changed(added=added[:1]), "its added tokens are others"),
        (changed(added=(replace(added[0], special=False), *added[1:])), "its added tokens are others"),
    ]:
        with pytest.raises(TokenizerError, match=words):
            Remapping(TOKENIZER, new)


PUBLISHED = SHARED / "tokenizers"


def shared_texts() -> Iterator[list[str]]:
    """All texts of the shared corpus, some at a time."""
    import polars as pl

    corpus = SHARED / "corpus"
    for path in sorted((corpus / "english").glob("*.zst")):
        yield pl.read_ndjson(path)["text"].to_list()
    for path in sorted((corpus / "code").glob("*.parquet")):
        yield pq.read_table(path)["text"].to_pylist()
    for path in sorted((corpus / "multilingual").glob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield [json.loads(line)["body"] for line in lines]
    yield [path.read_bytes().decode(errors="replace") for path in sorted((corpus / "hard").iterdir())]
    yield [path.read_text(encoding="utf-8") for path in sorted(corpus.glob("*.txt"))]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published tokenizers, which are not the project's own")
@pytest.mark.parametrize("name", ["gpt-2", "qwen3", "starcoder", "deepseek-llm", "cl100k_base", "o200k_base"])
def test_real_texts_are_remapped(name: str) -> None:
    old = Tokenizer.load(PUBLISHED / name)
    every = 1 if name == "gpt-2" else 5
    counts = np.zeros(old.id_max + 1, np.int64)
    for texts in islice(shared_texts(), 0, None, every):
        counts += uses(old, texts)
    n_used = int((counts > 0).sum())
    new = trim(old, counts.tolist(), n_used // 3).tokenizer
    for texts in islice(shared_texts(), 0, None, every):
        assert assert_remaps(old, new, texts) > 0
