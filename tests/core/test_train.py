"""The core's training against the naive oracle and tokenizers' BpeTrainer."""

import json
import random
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests import reference, reference_scores
from tests.builders.core_calls import BYTES, ORDER, Pair, learned, source_text, table_of
from tokenmill import _core
from tokenmill.errors import CountsError

GPT2 = _core.patterns()["gpt2"]
NUMBERS = st.integers(1, 5) | st.sampled_from([20, 60])
COUNTS = st.dictionaries(st.text(alphabet="aab ", min_size=1, max_size=10), NUMBERS, min_size=1, max_size=6)


def by_tokenizers(counts: dict[str, int], n_tokens: int, least: int = 1, longest: int | None = None) -> list[Pair]:
    """The merges of BpeTrainer on the same pre-tokens, each text being one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    limit = {} if longest is None else {"max_token_length": longest}
    trainer = trainers.BpeTrainer(
        vocab_size=256 + n_tokens, min_frequency=least, show_progress=False, special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **limit,
    )  # fmt: skip
    tokenizer.train_from_iterator([text for text, count in counts.items() for _ in range(count)], trainer)
    return merges_of(tokenizer)


def merges_of(tokenizer: Tokenizer) -> list[Pair]:
    characters = [chr(byte) for byte in ORDER[:188]] + [chr(256 + place) for place in range(68)]
    table = dict(zip(characters, ORDER, strict=True))
    rows = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(bytes(table[c] for c in left), bytes(table[c] for c in right)) for left, right in rows]


def encoded(counts: dict[str, int]) -> dict[bytes, int]:
    return {text.encode(): count for text, count in counts.items()}


@pytest.mark.parametrize("score", reference_scores.SCORES)
@settings(max_examples=300, deadline=None)
@given(counts=COUNTS, n_tokens=st.integers(0, 12), least=st.integers(0, 4))
def test_merges_are_those_of_the_naive_trainer(score: str, counts: dict[str, int], n_tokens: int, least: int) -> None:
    expected = reference_scores.train(encoded(counts), n_tokens, ORDER, least, score)
    if not reference.makes_a_token_twice(expected):
        assert learned(encoded(counts), n_tokens, least, score=score)[0] == expected


@settings(max_examples=200, deadline=None)
@given(
    text=st.lists(st.sampled_from(["ab", "ba", "aab", "c"]), min_size=20, max_size=200).map("".join),
    count=st.sampled_from([1, 3, 2**30 - 1, 2**31]),
)
def test_a_long_pretoken_is_merged_as_a_short_one(text: str, count: int) -> None:
    counts = {text.encode(): count, b"abc": 2, text[:40].encode(): 1}
    expected = reference.train(counts, 12, ORDER)
    if not reference.makes_a_token_twice(expected):
        assert learned(counts, 12)[0] == expected


@pytest.mark.parametrize("score", reference_scores.SCORES)
def test_a_training_goes_on_from_each_checkpoint_with_the_same_merges(score: str) -> None:
    counts = {f"{a}{b}{c}x".encode(): a * b % 7 + 1 for a in range(12) for b in range(12) for c in range(12)}
    expected = learned(counts, 60, score=score)[1]
    states: list[tuple[pa.Table, pa.Table]] = []

    def keep(words: pa.Table, merges: bytes) -> None:
        states.append((words, table_of(merges)))

    pretokens = pa.array(list(counts), pa.binary())
    numbers = pa.array(list(counts.values()), pa.uint64())
    _core.train(pretokens, numbers, BYTES, 256, 60, score, 1, None, [], None, 7, keep)
    assert [merges.num_rows for _, merges in states] == list(range(7, expected.num_rows + 1, 7))
    for words, merges in states:
        tokens = list(BYTES)
        for left, right, token in zip(*(merges[name].to_pylist() for name in ("left", "right", "token")), strict=True):
            if token == len(tokens):
                tokens.append(tokens[left] + tokens[right])
        n_left = 60 - (len(tokens) - 256)
        rest, *_ = _core.train(
            words["ids"], words["count"], tokens, 256, n_left, score, 1, None, [],
            None, None, None,
        )  # fmt: skip
        assert pa.concat_tables([merges, table_of(rest)]).equals(expected)


def test_merges_are_those_of_tokenizers_when_many_places_of_the_index_are_stale() -> None:
    """So many merges in so long a text leave more than a million places behind, and what still stands is moved together."""
    draw = random.Random(0)
    counts = {"".join(draw.choices("ab", k=20)): 1 for _ in range(35_000)}
    assert learned(encoded(counts), 300)[0] == by_tokenizers(counts, 300)


def test_the_tokens_of_the_text_are_told() -> None:
    pretokens, numbers = pa.array([b"aaa", b"b", b"ab"], pa.binary()), pa.array([2, 5, 1], pa.uint64())
    told = [_core.train(pretokens, numbers, BYTES, 256, n, "count", 1, None, [], None, None, None)[1] for n in range(3)]
    assert told == [13, 11, 9]  # "aa" is joined twice, then "aaa"


def test_an_unknown_score_and_an_id_without_token_are_refused() -> None:
    words, ones = pa.array([b"ab"], pa.binary()), pa.array([1], pa.uint64())
    with pytest.raises(CountsError, match="wordpiece"):
        _core.train(words, ones, BYTES, 256, 9, "best", 1, None, [], None, None, None)
    lists = pa.array([[0, 256]], pa.large_list(pa.uint32()))
    with pytest.raises(CountsError, match="id 256"):
        _core.train(lists, ones, BYTES, 256, 9, "count", 1, None, [], None, None, None)


@settings(max_examples=300, deadline=None)
@given(counts=COUNTS, n_tokens=st.integers(1, 12), least=st.integers(0, 4), longest=st.none() | st.integers(2, 7))
def test_merges_are_those_of_tokenizers_also_when_two_make_the_same_token(
    counts: dict[str, int], n_tokens: int, least: int, longest: int | None
) -> None:
    assert learned(encoded(counts), n_tokens, least, longest)[0] == by_tokenizers(counts, n_tokens, least, longest)


@pytest.mark.parametrize("n_tokens", [44, 744, pytest.param(4744, marks=pytest.mark.slow)])
def test_merges_of_source_text_are_those_of_tokenizers(n_tokens: int) -> None:
    counter = _core.Counter(GPT2)
    counter.update(pa.array(source_text()))
    table = pa.Table.from_batches(iter(counter.drain, None))
    counts = dict(zip(table["pretoken"].to_pylist(), table["count"].to_pylist(), strict=True))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + n_tokens, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(source_text(), trainer)
    assert learned(counts, n_tokens)[0] == merges_of(tokenizer)


def test_the_byte_order_is_the_alphabet_of_tokenizers_sorted() -> None:
    assert ORDER[:3] == b'!"#'
    assert sorted(ORDER) == list(range(256))


def test_equal_counts_merge_the_smaller_pair_first() -> None:
    assert learned({b"cd": 2, b"ab": 2}, 2)[0] == [(b"a", b"b"), (b"c", b"d")]


def test_overlapping_pairs_count_twice_and_merge_from_the_left() -> None:
    merges, table = learned({b"aaa": 5}, 2)
    assert merges == [(b"a", b"a"), (b"aa", b"a")]
    assert table["count"].to_pylist() == [10, 5]


def test_a_count_above_31_bits_wins_as_it_should() -> None:
    merges, table = learned({b"aa": 2_199_978_000, b"xy": 10}, 2)
    assert merges == [(b"a", b"a"), (b"x", b"y")]
    assert table["count"].to_pylist() == [2_199_978_000, 10]


def test_a_forbidden_token_is_not_made() -> None:
    assert learned({b"abc": 2}, 9, forbidden=[b"ab"])[0] == [(b"b", b"c"), (b"a", b"bc")]


@pytest.mark.parametrize("score", reference_scores.SCORES)
def test_a_forbidden_pair_may_arise_again(score: str) -> None:
    """Its left token is made of two pairs, so the forbidden pair arises where it was not before it came up."""
    ab, bc = len(BYTES), len(BYTES) + 1
    ids = {one: place for place, one in enumerate([*BYTES, b"ab", b"bc"])}
    a, c, e, x, y = (ids[bytes([byte])] for byte in b"acexy")
    words = [[ab, c], [a, bc], [ab, c, x], [a, bc, x], [a, bc, e], [ab, c, x, y]]
    table = table_of(
        _core.train(
            pa.array(words, pa.large_list(pa.uint32())), pa.array([30, 3, 100, 1, 4, 4], pa.uint64()),
            list(ids), 256, 9, score, 1, None, [b"abcx"], None, None, None,
        )[0]
    )  # fmt: skip
    pairs = list(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True))
    abc = dict(zip(pairs, table["token"].to_pylist(), strict=True))[ab, c]
    assert (x, y) in pairs
    assert (abc, x) not in pairs


def test_no_counts_give_no_merges() -> None:
    assert learned({}, 9)[1].num_rows == 0
    assert learned({b"a": 9, b"": 3}, 9)[1].num_rows == 0


def test_progress_is_told_and_its_error_stops_training() -> None:
    counts = {("ab" * 40 + str(number)).encode(): 1 for number in range(40_000)}

    def stop(tokens_done: int, merges_done: int) -> None:
        raise LookupError(f"{tokens_done} {merges_done}")

    with pytest.raises(LookupError):
        _core.train(
            pa.array(list(counts), pa.binary()), pa.array(list(counts.values()), pa.uint64()), BYTES, 256,
            50_000, "count", 1, None, [], stop, None, None,
        )  # fmt: skip


def test_interrupt_stops_training_in_another_thread() -> None:
    counts = {("ab" * 40 + str(number)).encode(): 1 for number in range(40_000)}
    raised: list[BaseException] = []

    def work() -> None:
        try:
            learned(counts, 50_000)
        except KeyboardInterrupt as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    _core.interrupt(False)
    thread.start()
    try:
        _core.interrupt(True)
        thread.join(60)
    finally:
        _core.interrupt(False)
    assert len(raised) == 1
