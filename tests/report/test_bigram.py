"""The bigram model is a probability distribution, smoothed as its paper says."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.report.bigram import HELD_OUT_ONE_IN, bigram

START = -1


def naive(train: list[list[int]], held_out: list[list[int]], n_bytes: int) -> float:
    pairs = Counter(pair for document in train for pair in zip([START, *document], document, strict=False))
    once, twice = (sum(1 for n in pairs.values() if n == times) for times in (1, 2))
    discount = once / (once + 2 * twice) if once and twice else 0.75
    n_ids = max(id for document in (*train, *held_out) for id in document) + 1
    total = sum(pairs.values())
    bits = 0.0
    for document in held_out:
        for context, token in zip([START, *document], document, strict=False):
            seen = sum(n for (before, _), n in pairs.items() if before == context)
            unigram = (sum(n for (_, after), n in pairs.items() if after == token) + 1) / (total + n_ids)
            kinds = sum(1 for before, _ in pairs if before == context)
            chance = unigram
            if seen:
                chance = max(pairs[context, token] - discount, 0) / seen + discount * kinds / seen * unigram
            bits -= math.log2(chance)
    return bits / n_bytes


def measured(documents: list[list[int]], keys: list[int]) -> float | None:
    ids = np.array([id for document in documents for id in document], np.uint32)
    lengths = np.array([len(document) for document in documents], np.int64)
    return bigram(ids, lengths, lengths * 3, np.array(keys, np.uint64)).bits_per_byte


def test_a_text_worked_out_by_hand() -> None:
    # Trained on 0 1 0 1, held out 0 2. Pairs: start-0 and 1-0 once, 0-1 twice, so D = 2 / (2 + 2 * 1) = 1/2. Three ids and four
    # tokens: p(0) = 3/7, p(2) = 1/7. p(0 | start) = 1/2 + 1/2 * 3/7 = 5/7; p(2 | 0) = 1/2 * 1/2 * 1/7 = 1/28. Six bytes.
    assert measured([[0, 1, 0, 1], [0, 2]], [1, 0]) == pytest.approx(-(math.log2(5 / 7) + math.log2(1 / 28)) / 6)


documents = st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=2, max_size=8)


@given(documents)
def test_bits_are_those_of_the_formula(texts: list[list[int]]) -> None:
    keys = [HELD_OUT_ONE_IN * i if i % 2 else HELD_OUT_ONE_IN * i + 1 for i in range(len(texts))]
    train, held_out = texts[0::2], texts[1::2]
    found = measured(texts, keys)
    if not any(train) or not any(held_out):
        assert found is None
    else:
        assert found == pytest.approx(naive(train, held_out, 3 * sum(map(len, held_out))))


def test_without_text_that_is_held_out_there_is_no_number() -> None:
    assert measured([[1, 2], [3]], [1, 2]) is None
    assert measured([], []) is None
