"""A document's split and its repeats depend on its key alone, in the shares and passes that were asked for."""

import hashlib
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.corpus.text_digests import text_keys
from tokenmill.dataset.splits import epochs_of_budget, group_key, group_keys, repeats, split_of

SHARES = {"train": 0.9, "validation": 0.06, "test": 0.04}
KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=30)


def drawn(n: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64, endpoint=False)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_a_key_is_the_first_eight_bytes_of_the_digest() -> None:
    digests = [bytes([1, 2, 0, 0, 0, 0, 0, 128]) + bytes(24), digest("a"), b"\xff" * 32]
    expected = [1 + 2 * 256 + 128 * 256**7, int.from_bytes(digest("a")[:8], "little"), 2**64 - 1]
    for kind in (pa.binary(), pa.binary(32), pa.large_binary()):
        keys = text_keys(pa.array(digests, kind))
        assert keys.dtype == np.uint64
        assert keys.tolist() == expected
        assert text_keys(pa.array(digests, kind)[1:]).tolist() == expected[1:]
        assert text_keys(pa.array(digests, kind)[1:2]).tolist() == expected[1:2]
        assert text_keys(pa.array([], kind)).tolist() == []


def test_a_key_needs_a_digest() -> None:
    with pytest.raises(ValueError, match="1 nulls"):
        text_keys(pa.array([bytes(32), None], pa.binary(32)))
    with pytest.raises(pa.ArrowInvalid):
        text_keys(pa.array([b"short"]))


def test_the_key_of_a_group_is_that_of_its_value_as_a_text() -> None:
    values = ["example.com", "", "é", "example.com", "x" * 1000, "é"]
    expected = [int.from_bytes(digest(value)[:8], "little") for value in values]
    assert [group_key(value) for value in values] == expected
    for kind in (pa.string(), pa.large_string()):
        assert group_keys(pa.array(values, kind)).tolist() == expected
        assert group_keys(pa.array(values, kind)[2:]).tolist() == expected[2:]
        assert group_keys(pa.array([], kind)).tolist() == []
    with pytest.raises(ValueError, match="1 nulls"):
        group_keys(pa.array(["a", None]))


def test_a_document_of_this_text_is_in_the_same_split_in_every_version() -> None:
    keys = text_keys(pa.array([digest(str(i)) for i in range(40)]))
    assert (
        "".join("abc"[i] for i in split_of(keys, {"a": 0.5, "b": 0.3, "c": 0.2}))
        == "caaaacacabbabbaabbacaababaccacacacbaabbc"
    )
    assert "".join(map(str, repeats(keys, 1.5, "web"))) == "1111212122122121212112112212121121122211"


@given(KEYS, KEYS)
def test_a_document_stays_in_its_split_whatever_else_there_is(some: list[int], others: list[int]) -> None:
    keys = np.array(some + others, np.uint64)
    found = split_of(keys, SHARES)
    assert found.dtype == np.uint8
    assert found[: len(some)].tolist() == split_of(np.array(some, np.uint64), SHARES).tolist()
    assert found[::-1].tolist() == split_of(keys[::-1], dict(zip("xyz", SHARES.values(), strict=True))).tolist()


def test_splits_have_their_shares() -> None:
    n = 200_000
    counts = np.bincount(split_of(drawn(n), SHARES), minlength=3)
    for count, share in zip(counts, SHARES.values(), strict=True):
        assert abs(count - n * share) < 5 * (n * share * (1 - share)) ** 0.5
    in_order = np.arange(n, dtype=np.uint64)  # keys that are no digests
    assert abs((split_of(in_order, SHARES) == 2).mean() - 0.04) < 0.003


def test_a_share_of_none_gets_no_document_and_a_share_of_all_gets_each() -> None:
    keys = np.concatenate([drawn(1000), np.array([0, 2**64 - 1], np.uint64)])
    assert set(split_of(keys, {"all": 1.0})) == {0}
    assert set(split_of(keys, {"none": 0.0, "all": 1.0})) == {1}
    assert set(split_of(keys, {"all": 1.0, "none": 0.0})) == {0}
    assert set(split_of(keys, {**{str(i): 0.1 for i in range(10)}, "none": 0.0})) == set(range(10))


def test_256_splits_have_an_index_each() -> None:
    assert split_of(drawn(100_000), {str(i): 1 / 256 for i in range(256)}).max() == 255


def test_only_documents_between_the_old_and_the_new_sum_of_shares_move() -> None:
    keys = drawn(100_000)
    before = split_of(keys, {"train": 0.9, "validation": 0.05, "test": 0.05})
    after = split_of(keys, {"train": 0.8, "validation": 0.15, "test": 0.05})
    moved = before != after
    assert abs(moved.mean() - 0.1) < 0.005
    assert set(before[moved]) == {0}
    assert set(after[moved]) == {1}


def test_whole_passes_take_every_document_as_often() -> None:
    keys = drawn(100)
    for epochs in (0, 1, 3):
        for kind in (float, Fraction, int):
            assert repeats(keys, kind(epochs), "web").tolist() == [epochs] * 100
    assert repeats(keys, 1, "web").dtype == np.int64


@given(KEYS, st.fractions(0, 3), st.fractions(0, 3))
def test_the_documents_of_fewer_passes_are_among_those_of_more(some: list[int], one: Fraction, other: Fraction) -> None:
    keys = np.array(some, np.uint64)
    low, high = sorted((one, other))
    few, many = repeats(keys, low, "web"), repeats(keys, high, "web")
    assert (few <= many).all()
    assert ((few == int(low)) | (few == int(low) + 1)).all()


def test_a_part_of_a_pass_takes_that_part_of_the_documents_and_another_for_another_source() -> None:
    keys = drawn(100_000)
    web, code = repeats(keys, 2.3, "web"), repeats(keys, 2.3, "code")
    for found in (web, code):
        assert abs(found.mean() - 2.3) < 0.01
    assert abs(((web == 3) & (code == 3)).mean() - 0.09) < 0.005
    in_split = split_of(keys, {"a": 0.5, "b": 0.5}) == 1
    assert abs(((web == 3) & in_split).mean() - 0.15) < 0.005


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), min_size=1, max_size=12), st.integers(0, 500))
def test_the_passes_of_a_budget_reach_the_most_tokens_that_it_allows(
    documents: list[tuple[int, int]], tokens: int
) -> None:
    lengths = np.array([length for length, _ in documents])
    keys = np.array([group_key(str(text)) for _, text in documents], np.uint64)  # few texts: some occur twice
    total = int(lengths.sum())
    if not total and tokens:
        with pytest.raises(ValueError, match=f"source web: expected documents for {tokens}"):
            epochs_of_budget(lengths, keys, tokens, "web")
        return
    epochs = epochs_of_budget(lengths, keys, tokens, "web")
    assert float(epochs) == epochs
    reached = int((repeats(keys, epochs, "web") * lengths).sum())
    assert reached <= tokens
    if reached < tokens:  # one hash more is too much
        assert (repeats(keys, epochs + Fraction(1, 1 << 40), "web") * lengths).sum() > tokens


def test_a_budget_is_missed_by_less_than_one_document() -> None:
    lengths, keys = np.random.default_rng(1).integers(1, 1000, 5000), drawn(5000)
    total = int(lengths.sum())
    for tokens in (0, 1, total // 3, total - 1, total, 5 * total, 7 * total + total // 2):
        epochs = epochs_of_budget(lengths, keys, tokens, "web")
        reached = int((repeats(keys, epochs, "web") * lengths).sum())
        assert 0 <= tokens - reached < 1000
        if tokens % total == 0:
            assert epochs == tokens // total
            assert reached == tokens
    assert epochs_of_budget(np.zeros(0, np.int64), np.zeros(0, np.uint64), 0, "web") == 0
