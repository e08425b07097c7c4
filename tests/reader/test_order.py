"""A keyed order is a permutation with an inverse, the same for ever, and looks like one that was drawn at random."""

import hashlib
from collections import Counter
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_reader.order import Order, mix, order_key

_MASK = (1 << 64) - 1


def naive_item_at(n: int, key: bytes, position: int) -> int:
    """The permutation as the docstring of Order says it, for one position."""
    n_bits = max(6, (n - 1).bit_length())
    n_low = n_bits // 2
    n_high = n_bits - n_low

    def f(i: int, half: int, n_bits: int) -> int:
        x = half ^ int.from_bytes(hashlib.sha256(key + bytes([i])).digest()[:8], "little")
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
        return (x ^ x >> 31) >> 64 - n_bits

    while True:
        high, low = position >> n_low, position & (1 << n_low) - 1
        for i in range(0, 10, 2):
            high ^= f(i, low, n_high)
            low ^= f(i + 1, high, n_low)
        position = high << n_low | low
        if position < n:
            return position


def keys(n: int) -> list[bytes]:
    return [order_key("digest", 0, epoch, "train") for epoch in range(n)]


def items(n: int, key: bytes) -> npt.NDArray[np.int64]:
    return Order(n, key).item_at(np.arange(n))


def assert_even(counts: npt.ArrayLike) -> None:
    """Chi-square of counts that are all expected to be the same, within five of its standard deviations."""
    found = np.asarray(counts, float).ravel()
    chi_square = ((found - found.mean()) ** 2).sum() / found.mean()
    freedom = len(found) - 1
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5


def test_no_item_and_one_item_have_one_order() -> None:
    nothing = Order(0, b"key").item_at(np.array([], np.int64))
    assert nothing.dtype == np.int64
    assert nothing.shape == (0,)
    assert items(1, b"key").tolist() == [0]
    assert Order(1, b"key").position_of(np.array([0, 0])).tolist() == [0, 0]


def test_two_and_three_items_come_in_each_of_their_orders() -> None:
    assert {tuple(items(2, key)) for key in keys(40)} == {(0, 1), (1, 0)}
    assert len({tuple(items(3, key)) for key in keys(80)}) == 6


@pytest.mark.parametrize("key", keys(2))
def test_every_item_has_one_position_for_each_number_of_items(key: bytes) -> None:
    for n in [*range(300), 511, 512, 513, 1023, 1024, 1025]:
        found = items(n, key)
        assert np.array_equal(np.sort(found), np.arange(n))
        assert np.array_equal(Order(n, key).position_of(found), np.arange(n))


@given(st.integers(1, 2**40) | st.integers(1, 2**62), st.binary(max_size=40), st.data())
def test_the_position_of_the_item_at_a_position_is_that_position(n: int, key: bytes, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1))
    order = Order(n, key)
    found = order.item_at(np.array(positions))
    assert found.min() >= 0
    assert found.max() < n
    assert order.position_of(found).tolist() == positions
    assert order.item_at(order.position_of(np.array(positions))).tolist() == positions


@given(st.integers(1, 200) | st.integers(1, 2**62), st.binary(max_size=40), st.data())
def test_it_is_the_permutation_that_its_docstring_defines(n: int, key: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, n - 1))
    assert Order(n, key).item_at(np.array([position])).tolist() == [naive_item_at(n, key, position)]


def test_more_positions_than_fit_a_block_are_as_those_asked_one_by_one() -> None:
    n = 100_001
    order = Order(n, b"key")
    found = items(n, b"key")
    assert np.array_equal(np.sort(found), np.arange(n))
    for position in (0, 32_767, 32_768, 65_536, 100_000):
        assert order.item_at(np.array([position]))[0] == found[position]
    square = np.arange(6).reshape(2, 3)
    assert order.item_at(square).tolist() == [found[:3].tolist(), found[3:6].tolist()]


def test_the_orders_are_those_of_every_earlier_version() -> None:
    key = order_key("0" * 64, 17, 3, "train")
    assert key.hex() == "695f4226b237a8cbfef0eef0ca5a68984df8b2c046bc45ffc3644b07e2d1b687"
    assert items(1, key).tolist() == [0]
    assert items(10, key).tolist() == [6, 4, 5, 2, 3, 0, 8, 9, 1, 7]
    at = np.array([0, 1, 2, 999_999])
    assert Order(10**6, key).item_at(at).tolist() == [722383, 706262, 127576, 473297]
    assert Order(2**20, key).item_at(at).tolist() == [722383, 706262, 127576, 473297]
    assert Order(2**40 - 1, key).item_at(at).tolist() == [536372557260, 867780705878, 443475695337, 106441679875]


def test_the_key_is_another_for_each_change_of_an_argument() -> None:
    every = list(product(["a", "b"], [0, 1, 10], [0, 1, 10], ["", "1", "train", 'a",1,"', "é"]))
    assert len({order_key(*one) for one in every}) == len(every)


def test_a_position_outside_the_order_is_an_error() -> None:
    order = Order(5, b"key")
    for bad in (-1, 5):
        with pytest.raises(IndexError, match=f"position {bad} of an order of 5 items"):
            order.item_at(np.array([0, bad]))
        with pytest.raises(IndexError, match=f"item {bad} of an order of 5 items"):
            order.position_of(np.array([bad]))
    with pytest.raises(IndexError):
        Order(0, b"key").item_at(np.array([0]))
    for n in (-1, 2**62 + 1):
        with pytest.raises(ValueError, match="items; found"):
            Order(n, b"key")


@pytest.mark.parametrize(("n", "n_orders"), [(3, 6), (4, 24), pytest.param(5, 120, marks=pytest.mark.slow)])
def test_each_order_of_a_few_items_is_as_likely_as_any_other(n: int, n_orders: int) -> None:
    tally = Counter(tuple(items(n, key)) for key in keys(12 * n_orders))
    assert len(tally) == n_orders
    assert_even(list(tally.values()))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "positions"), [(8, (0, 1)), (16, (0, 8)), (17, (0, 16))])
def test_each_pair_of_items_is_as_likely_at_two_positions_as_any_other(n: int, positions: tuple[int, int]) -> None:
    counts = np.zeros((n, n))
    for key in keys(10 * n * (n - 1)):
        counts[tuple(Order(n, key).item_at(np.array(positions)))] += 1
    assert not counts.diagonal().any()
    assert_even(counts[~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("n", [4096, 100_000, 2**17, 2**17 + 1])
def test_items_of_each_part_go_evenly_to_all_parts(n: int) -> None:
    for key in keys(5):
        found = items(n, key)
        counts, *_ = np.histogram2d(np.arange(n), found, bins=16, range=[(0, n), (0, n)])
        assert_even(counts)


@pytest.mark.parametrize("n", [4096, 100_000, 2**17, 2**17 + 1])
@pytest.mark.parametrize("distance", [1, 2, 64, 256, 512])
def test_positions_near_each_other_hold_items_that_have_nothing_to_do_with_each_other(n: int, distance: int) -> None:
    n_next = 0
    for key in keys(5):
        found = items(n, key)
        apart = (found[distance:] - found[:-distance]) % n
        n_next += int((apart == distance).sum())
        counts, _ = np.histogram(apart, bins=64, range=(0, n))
        assert_even(counts)
        exclusive, _ = np.histogram(found[distance:] ^ found[:-distance], bins=16, range=(0, 1 << 12))
        if n == 4096:
            assert_even(exclusive)
    assert n_next <= 20  # five are expected of five random permutations, as many as items stay neighbours by chance


@pytest.mark.parametrize("n", [100, 4096, 100_000])
def test_orders_of_different_epochs_are_independent(n: int) -> None:
    n_same, n_pairs = 0, 40
    orders = [Order(n, key) for key in keys(n_pairs + 1)]
    for one, other in pairwise(orders):
        moved = other.position_of(one.item_at(np.arange(n)))
        n_same += int((moved == np.arange(n)).sum())
        if n > 1000:
            counts, *_ = np.histogram2d(np.arange(n), moved, bins=8, range=[(0, n), (0, n)])
            assert_even(counts)
    assert n_pairs / 3 < n_same < n_pairs * 2  # one for each pair is expected


def test_the_mixer_gives_the_published_values_of_splitmix64() -> None:
    # The outputs of the generator are the mixes of seed + step, seed + 2 step, …
    seed, step = 1234567, 0x9E3779B97F4A7C15
    values = np.array([(seed + i * step) % 2**64 for i in range(1, 6)], np.uint64)
    mix(values, np.empty_like(values))
    assert values.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_each_bit_of_the_mixers_input_changes_about_half_of_the_output() -> None:
    values = np.arange(1, 1001, dtype=np.uint64)
    mixed = values.copy()
    mix(mixed, np.empty_like(mixed))
    for bit in range(64):
        other = values ^ np.uint64(1 << bit)
        mix(other, np.empty_like(other))
        assert 31 < np.unpackbits((mixed ^ other).view(np.uint8)).sum() / len(values) < 33
