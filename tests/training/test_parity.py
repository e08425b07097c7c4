"""Parity-aware training gives the merges of a naive trainer, and of `tokenizers`' ParityBpeTrainer."""

import json
import random
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from tests.reference import Pair, merged
from tokenmill import Counter, Tokenizer
from tokenmill.errors import ParamsError
from tokenmill.tokenizer.model import characters_of
from tokenmill.training.bpe import Goal
from tokenmill.training.parity import Turns, learn_parity

Texts = Sequence[str]


def counted(texts: Texts) -> pa.Table:
    counter = Counter("gpt2")
    counter.update(list(texts))
    return counter.finish()


def merges_of(tokenizer: Tokenizer) -> list[Pair]:
    model = tokenizer.model
    assert model is not None
    return [(model.tokens[one.left], model.tokens[one.right]) for one in model.merges]


def naive(
    groups: Sequence[pa.Table],
    n_tokens_max: int,
    pair_count_min: int,
    turns: Turns,
    ratio: Sequence[float] | None = None,
    dev: Sequence[pa.Table] | None = None,
) -> list[Pair]:
    """Every pair and length is counted again for each merge."""
    texts = [dict(zip(*one.to_pydict().values(), strict=True)) for one in (*groups, *(dev or ()))]
    words: list[dict[bytes, list[bytes]]] = [{text: [bytes([b]) for b in text] for text in one} for one in texts]
    n_groups, closed, made = len(groups), set[int](), list[Pair]()
    chosen: list[int] = []

    def length(i: int) -> int:
        return sum(len(words[i][text]) * count for text, count in texts[i].items())

    n_bytes = [length(i) for i in range(n_groups)]

    def badness(i: int) -> float:
        if dev is not None:
            return length(n_groups + i)
        return -(n_bytes[i] / length(i) / (1.0 if ratio is None else ratio[i])) if n_bytes[i] else -float("inf")

    def pairs_of(some: Sequence[int]) -> Tally[Pair]:
        found: Tally[Pair] = Tally()
        for i in some:
            for text, count in texts[i].items():
                for pair in pairwise(words[i][text]):
                    found[pair] += count
        return found

    tokens: set[bytes] = set()
    while len(tokens) < n_tokens_max:
        if len(made) < turns.global_merges:
            turn, some = None, list(range(n_groups))
        else:
            still = sorted((i for i in range(n_groups) if i not in closed), key=lambda i: -badness(i))
            if not still:
                break
            turn = still[0]
            if turns.window is not None:
                n_turns, alpha = turns.window
                shares = {i: chosen[-n_turns:].count(i) / n_turns for i in still}
                turn = next((i for i in still if shares[i] <= alpha / n_groups), still[-1])
                chosen.append(turn)
            some = [turn]
        pairs = pairs_of(some)
        best = max(pairs, key=lambda one: (pairs[one], *map(characters_of, one)), default=None)
        if best is None or pairs[best] < pair_count_min:
            if turn is None:
                break
            closed.add(turn)
            continue
        made.append(best)
        tokens.add(b"".join(best))
        words = [{text: merged(word, best) for text, word in one.items()} for one in words]
    return made


def judged(
    groups: Sequence[Texts],
    n_merges: int,
    pair_count_min: int,
    turns: Turns,
    ratio: Sequence[float] | None,
    dev: Sequence[Texts] | None,
) -> list[Pair]:
    """The merges of ParityBpeTrainer, as bytes."""
    if not hasattr(trainers, "ParityBpeTrainer"):
        pytest.skip("this version of tokenizers has no ParityBpeTrainer")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    window: dict[str, Any] = {}
    if turns.window is not None:
        window = {"variant": "window", "window_size": turns.window[0], "alpha": turns.window[1]}
    trainer = trainers.ParityBpeTrainer(
        num_merges=n_merges,
        min_frequency=pair_count_min,
        global_merges=turns.global_merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        ratio=list(ratio or [1.0] * len(groups)) if dev is None else None,
        **window,
    )
    trainer.train_from_iterator(
        tokenizer, [iter(one) for one in groups], dev_iterators=None if dev is None else [iter(one) for one in dev]
    )
    bytes_of = {characters_of(bytes([byte])): bytes([byte]) for byte in range(256)}
    return [
        (b"".join(bytes_of[c] for c in left), b"".join(bytes_of[c] for c in right))
        for left, right in json.loads(tokenizer.to_str())["model"]["merges"]
    ]


TEXTS = st.lists(st.text("ab é", min_size=1, max_size=12), min_size=1, max_size=8)
CASES = st.fixed_dictionaries(
    {
        "groups": st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from([0.5, 1.0, 2.57])), min_size=1, max_size=4),
        "measure": st.sampled_from(["dev", "ratio", "neither"]),
        "n": st.integers(1, 25),
        "pair_count_min": st.integers(1, 3),
        "global_merges": st.sampled_from([0, 0, 3]),
        "window": st.sampled_from([None, (3, 1.0), (10, 2.0)]),
    }
)


def learned(case: Mapping[str, Any]) -> list[Pair]:
    names = [f"{i}" for i in range(len(case["groups"]))]
    groups, dev, ratio = zip(*case["groups"], strict=True)
    return merges_of(
        learn_parity(
            dict(zip(names, map(counted, groups), strict=True)),
            [256 + case["n"]],
            "gpt2",
            [],
            Goal(case["pair_count_min"]),
            Turns(case["global_merges"], case["window"]),
            dict(zip(names, ratio, strict=True)) if case["measure"] == "ratio" else None,
            dict(zip(names, map(counted, dev), strict=True)) if case["measure"] == "dev" else None,
        ).tokenizers[0]
    )


def last_of_each(merges: Sequence[Pair]) -> list[Pair]:
    """A tokenizer has one merge of each pair: the last."""
    return [pair for i, pair in enumerate(merges) if pair not in merges[i + 1 :]]


@settings(max_examples=300, deadline=None)
@given(CASES)
def test_merges_are_those_of_a_naive_trainer(case: Mapping[str, Any]) -> None:
    groups, dev, ratio = zip(*case["groups"], strict=True)
    expected = naive(
        [counted(one) for one in groups],
        case["n"],
        case["pair_count_min"],
        Turns(case["global_merges"], case["window"]),
        ratio if case["measure"] == "ratio" else None,
        [counted(one) for one in dev] if case["measure"] == "dev" else None,
    )
    assert learned(case) == last_of_each(expected)


def assert_judged(case: Mapping[str, Any]) -> None:
    groups, dev, ratio = zip(*case["groups"], strict=True)
    own = learned(case)
    theirs = judged(
        groups,
        len(own),
        case["pair_count_min"],
        Turns(case["global_merges"], case["window"]),
        ratio if case["measure"] == "ratio" else None,
        dev if case["measure"] == "dev" else None,
    )
    assert own[: len(theirs)] == theirs


@settings(max_examples=200, deadline=None)
@given(CASES)
def test_merges_are_those_of_tokenizers(case: Mapping[str, Any]) -> None:
    assert_judged({**case, "window": None})  # with a window it can run forever once a group has no pair left


@pytest.mark.parametrize("window", [(3, 1.0), (10, 1.5), (100, 2.0)])
@pytest.mark.parametrize("measure", ["dev", "ratio", "neither"])
def test_merges_with_a_window_are_those_of_tokenizers(measure: str, window: tuple[int, float]) -> None:
    draw = random.Random(measure)

    def texts(letters: str, n: int) -> list[str]:
        return ["".join(draw.choices(letters, k=60)) for _ in range(n)]

    letters = ("abcdefghi ", "ghijklmnopé ", "абвгдежзи ")
    groups = [
        (texts(one, n), texts(one, 10), ratio)
        for one, n, ratio in zip(letters, (90, 30, 9), (1.0, 1.1, 2.0), strict=True)
    ]
    shared = {"groups": groups, "measure": measure, "n": 80, "pair_count_min": 1, "window": window}
    assert_judged({**shared, "global_merges": 0})
    assert_judged({**shared, "global_merges": 20})


def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one() -> None:
    groups = {"a": counted(["low lower lowest"] * 3), "b": counted(["neu neuer am neuesten"] * 2)}
    large, small = learn_parity(groups, [275, 264], "gpt2", ["<|end|>"]).tokenizers
    assert (large.vocab_size, small.vocab_size) == (275, 264)
    assert merges_of(small) == merges_of(large)[: len(merges_of(small))]


def test_a_special_token_is_never_made_of_text() -> None:
    groups = {"a": counted(["kmkm"] * 3), "b": counted(["km km"] * 2)}
    tokenizer = learn_parity(groups, [262], "gpt2", ["km"]).tokenizers[0]
    assert (b"k", b"m") not in merges_of(tokenizer)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"ratio": {"a": 1.0}}, "no value for 'b'"),
        ({"dev": {"a": 1.0, "b": 1.0, "c": 1.0}}, "'c', which no document has"),
        ({"goal": Goal(score="wordpiece")}, "allowed with parity: count"),
    ],
)
def test_other_groups_and_scores_are_refused(asked: Mapping[str, Any], words: str) -> None:
    groups = {"a": counted(["low"]), "b": counted(["neu"])}
    with pytest.raises(ParamsError, match=words):
        learn_parity(groups, [260], "gpt2", [], **asked)
