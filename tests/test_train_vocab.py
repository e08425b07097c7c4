"""Training gives the merges and ids of `tokenizers`' BpeTrainer."""

import inspect
import json
import random
import textwrap
from collections.abc import Sequence
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.errors import CountsError, ParamsError, PatternError
from tokenmill.vocabulary import characters_of

TEXT = [inspect.getsource(module) for module in (json.decoder, json.encoder, textwrap, random, inspect)]
END = "<|endoftext|>"


def trained(texts: Sequence[str], pattern: str | None = "gpt2", **settings: Any) -> Tokenizer:
    counter = Counter(pattern)
    counter.update(texts)
    return train_vocab(counter.finish(), pattern=pattern, **settings)


def judge(texts: Sequence[str], vocab_size: int, **settings: Any) -> dict[str, object]:
    """model.vocab and model.merges as BpeTrainer makes them."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **settings,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model: dict[str, object] = json.loads(tokenizer.to_str())["model"]
    return model


def assert_equal(tokenizer: Tokenizer, model: dict[str, object]) -> None:
    assert tokenizer._model is not None
    text = {id: characters_of(token) for id, token in tokenizer._model.tokens.items()}
    text |= {id: special for special, id in tokenizer.special_tokens.items()}
    assert [[text[one.left], text[one.right]] for one in tokenizer._model.merges] == model["merges"]
    assert {token: id for id, token in text.items()} == model["vocab"]


@pytest.mark.parametrize("vocab_size", [256, 257, 300, 1000, 3000])
def test_merges_and_ids_are_those_of_tokenizers(vocab_size: int) -> None:
    tokenizer = trained(TEXT, vocab_size=vocab_size, pair_count_min=2)
    assert_equal(tokenizer, judge(TEXT, vocab_size, min_frequency=2))
    assert tokenizer.vocab_size == vocab_size


def test_special_tokens_come_first_in_the_order_given() -> None:
    special = [END, "<|b|>", "<|a|>", "ﬁ special"]
    tokenizer = trained(TEXT, vocab_size=800, special_tokens=special)
    assert_equal(tokenizer, judge(TEXT, 800, special_tokens=special, min_frequency=2))
    assert tokenizer.special_tokens == {text: id for id, text in enumerate(special)}


@pytest.mark.parametrize("token_bytes_max", [2, 3, 5])
def test_token_bytes_max_is_max_token_length(token_bytes_max: int) -> None:
    tokenizer = trained(TEXT, vocab_size=900, token_bytes_max=token_bytes_max)
    assert_equal(tokenizer, judge(TEXT, 900, max_token_length=token_bytes_max, min_frequency=2))
    lengths = {len(tokenizer.token_bytes(id)) for id in range(tokenizer.vocab_size)}
    assert max(lengths) == max(token_bytes_max - 1, 2)


@settings(max_examples=40)
@given(st.lists(st.text("ab \nä", max_size=30), max_size=8), st.integers(1, 3), st.integers(256, 300))
def test_ties_and_repeats_are_merged_as_tokenizers_does(texts: list[str], count_min: int, vocab_size: int) -> None:
    tokenizer = trained(texts, vocab_size=vocab_size, pair_count_min=count_min)
    assert_equal(tokenizer, judge(texts, vocab_size, min_frequency=count_min))


def test_a_small_corpus_stops_early() -> None:
    tokenizer = trained(["low low lower"], vocab_size=5000)
    assert tokenizer.vocab_size == 256 + 3
    assert tokenizer.n_merges == 3


def test_threads_make_no_difference() -> None:
    assert len({trained(TEXT, vocab_size=700, threads=threads).digest for threads in (1, 2, 3)}) == 1


def test_text_never_learns_a_special_token() -> None:
    texts = ["hello hello hello Ġworld"] * 9
    tokenizer = trained(texts, vocab_size=300, special_tokens=["hello", "Ġhel"])
    for text in ("hello", " hello", "hellohello"):
        assert not set(tokenizer.encode(text)) & set(tokenizer.special_tokens.values())
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_progress_ends_with_all_tokens() -> None:
    seen: list[tuple[int, int]] = []
    tokenizer = trained(TEXT, vocab_size=400, progress=lambda *now: seen.append(now))
    assert seen[-1] == (400 - 256, tokenizer.n_merges)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vocab_size": 256, "special_tokens": [END]}, r"allowed: 257 \(256 bytes \+ 1 special tokens\)"),
        ({"vocab_size": 2**32}, "vocab_size"),
        ({"special_tokens": END}, "expected a list"),
        ({"special_tokens": [""]}, "not empty"),
        ({"special_tokens": [END, END]}, "every token once"),
        ({"special_tokens": ["\ud800"]}, "special_tokens"),
        ({"special_tokens": ["b"]}, "how tokenizer.json writes a byte"),
        ({"special_tokens": ["Ġ"]}, "how tokenizer.json writes a byte"),
        ({"pair_count_min": 0}, "pair_count_min"),
        ({"token_bytes_max": 1}, "token_bytes_max"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        trained(["a"], **{"vocab_size": 300, **wrong})


@pytest.mark.parametrize(
    "pattern",
    [r"\p{N}{1,3}+|\s+", r"\s+$|\S+", r"^\s+|\S+", r"\w+|\W+", r"[[:alpha:]]+", r"a{2,1}", "(?i:ss)|s", "(?i)ß|s"],
)
def test_a_pattern_that_tokenizers_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="does not mean the same"):
        trained(["a b"], pattern, vocab_size=300)


def test_a_table_that_holds_no_counts_is_refused() -> None:
    counter = Counter("gpt2")
    counter.update(["a"])
    with pytest.raises(CountsError, match="expected"):
        train_vocab(counter.finish().rename_columns(["word", "count"]), vocab_size=300, pattern="gpt2")
