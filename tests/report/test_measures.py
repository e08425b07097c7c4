"""Measures of counts are those of cases worked out by hand, and of naive twins."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill import Counter, train_vocab
from tokenmill.report.measures import by_vocab_size, coverage, gini, lengths, log_spaced, ranks, renyi_efficiency
from tokenmill.tokenizer.model import Merges
from tokenmill.tokenizer.tokenizer import Tokenizer


def naive_renyi(counts: list[int], alpha: float) -> float:
    total = sum(counts)
    return math.log2(sum((n / total) ** alpha for n in counts)) / (1 - alpha) / math.log2(len(counts))


def naive_gini(values: list[float]) -> float:
    differences = sum(abs(one - other) for one in values for other in values)
    return differences / (2 * len(values) * sum(values))


def test_renyi_efficiency_of_a_half_used_vocabulary_is_a_half() -> None:
    # Two of four tokens, equally often: an entropy of 1 bit of 2, whatever alpha is.
    assert renyi_efficiency(np.array([5, 5, 0, 0]), 2) == pytest.approx(0.5)
    assert renyi_efficiency(np.array([5, 5, 0, 0]), 2.5) == pytest.approx(0.5)
    # Shares 3/4 and 1/4: -log2(9/16 + 1/16) = 0.678.
    assert renyi_efficiency(np.array([3, 1]), 2) == pytest.approx(0.678072)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20).filter(any), st.sampled_from([0.5, 2.0, 2.5]))
def test_renyi_efficiency_is_that_of_its_formula(counts: list[int], alpha: float) -> None:
    assert renyi_efficiency(np.array(counts), alpha) == pytest.approx(naive_renyi(counts, alpha), abs=1e-9)


def test_a_measure_of_nothing_is_none() -> None:
    assert renyi_efficiency(np.array([0, 0]), 2) is None
    assert renyi_efficiency(np.array([3]), 2) is None
    assert gini([2.0]) is None
    assert gini([0.0, 0.0]) is None


def test_gini_of_one_of_four_that_has_all_is_three_quarters() -> None:
    assert gini([0, 0, 0, 8]) == pytest.approx(0.75)
    assert gini([1, 3]) == pytest.approx(0.25)


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=12))
def test_gini_is_the_mean_difference_of_all_pairs(values: list[float]) -> None:
    assert gini(values) == pytest.approx(naive_gini(values), abs=1e-9)


def test_coverage_is_the_share_of_the_most_frequent_tokens() -> None:
    assert coverage(np.array([0, 2, 10, 4])) == [
        {"tokens": 1, "share": 10 / 16},
        {"tokens": 2, "share": 14 / 16},
        {"tokens": 3, "share": 1.0},
    ]
    assert coverage(np.array([0, 0])) == []


def test_ranks_begin_with_the_most_frequent_token_and_leave_out_what_does_not_occur() -> None:
    assert ranks(np.array([0, 2, 9, 4])) == [
        {"rank": 1, "count": 9},
        {"rank": 2, "count": 4},
        {"rank": 3, "count": 2},
    ]


@given(st.integers(0, 5000), st.integers(2, 50))
def test_log_spaced_numbers_have_both_ends_and_rise(n: int, points_max: int) -> None:
    found = log_spaced(n, points_max)
    assert found == sorted(set(found)) and len(found) <= points_max
    assert n == 0 or (found[0], found[-1]) == (1, n)


def test_lengths_are_in_bins_that_double() -> None:
    found = lengths(np.array([0, 1, 2, 3, 4, 9]), np.array([1, 2, 3, 4, 5, 5]))
    assert found["n_documents"] == 20
    assert found["mean"] == pytest.approx((2 + 6 + 12 + 20 + 45) / 20)
    assert found["percentiles"] == {"min": 0, "p10": 1, "p50": 3, "p90": 9, "p99": 9, "max": 9}
    assert found["histogram"] == [
        {"from": 0, "documents": 1},
        {"from": 1, "documents": 2},
        {"from": 2, "documents": 7},
        {"from": 4, "documents": 5},
        {"from": 8, "documents": 5},
    ]


def test_lengths_of_no_documents_have_no_bins() -> None:
    assert lengths(np.array([]), np.array([]))["histogram"] == []


def trained(texts: list[str], n_merges: int) -> Tokenizer:
    counter = Counter(pattern="gpt2")
    counter.update(texts)
    return train_vocab(
        counter.finish(), vocab_size=257 + n_merges, pattern="gpt2", special_tokens=["<s>"], pair_count_min=1
    )


def test_the_curve_is_that_of_tokenizers_with_the_first_merges() -> None:
    random.seed(5)
    texts = ["".join(random.choice("ab ") for _ in range(60)) for _ in range(40)]
    tokenizer = trained(texts, 40)
    model = tokenizer.model
    assert model is not None
    ids = [id for text in texts for id in tokenizer.encode(text)]
    n_bytes = sum(map(len, texts))
    found = by_vocab_size(model, {id: ids.count(id) for id in set(ids)}, n_bytes)
    assert found is not None
    assert found[-1]["vocab_size"] == tokenizer.vocab_size
    for row in found:
        smaller = trained(texts, int(row["vocab_size"]) - 257)
        assert smaller.vocab_size == row["vocab_size"]
        n_tokens = sum(len(smaller.encode(text)) for text in texts)
        assert row["bytes_per_token"] == pytest.approx(n_bytes / n_tokens)


def test_there_is_no_curve_where_two_merges_make_one_token() -> None:
    model = trained(["abab abab"], 4).model
    assert model is not None
    first = model.merges[0]
    twice = Merges.of([*model.merges, first._replace(rank=99)])
    assert by_vocab_size(type(model)(model.tokens, twice, model.steps, model.added, False), {97: 1}, 1) is None
    assert by_vocab_size(type(model)(model.tokens, model.merges, model.steps, model.added, True), {97: 1}, 1) is None
