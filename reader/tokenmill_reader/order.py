"""The shuffled order of n items: a keyed permutation of 0…n-1 that needs no memory, in both directions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Longs


_N_ROUNDS = 10  # With 6, pairs of positions of 64 items differ from random in a million keys; with 8, single runs were doubtful.
_BITS_MIN = 6  # With 2, 8 rounds reach the 120 orders of 5 items unevenly: chi-square says so after 20,000 keys.
_BITS_MAX = 62
_BLOCK_ITEMS = 1 << 15  # the arrays of a block stay in a core's cache
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


def order_key(tokens_digest: str, seed: int, epoch: int, name: str) -> bytes:
    """The key of the order of one epoch: 32 bytes, another for each change of an argument.

    `tokens_digest`: the digest of the dataset to be ordered, so that an order never applies to other data. `name`: what is put in
    order, such as a split. The key is the sha256 of a list in JSON, in ASCII and without spaces.

    >>> order_key("d1f0", 7, 0, "train").hex()[:16]
    '553fccb467c33dee'
    """
    text = json.dumps(["tokenmill order", 1, tokens_digest, seed, epoch, name], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


@dataclass(frozen=True)
class Order:
    """An order of `n` items, 0 to 2^62, that `key` decides: which item is at a position, and at which position an item is.

    The same `n` and `key` give the same order in every version. Each call takes time for the positions that it is asked for, and
    no memory for the others.

    A Feistel network of ten rounds permutes the numbers of b bits, where 2^b is the smallest power of two that holds n, and at
    least 64. Its halves are b // 2 low bits and the other, high bits. Rounds 0, 2, … replace high by high ^ f(low), rounds
    1, 3, … low by low ^ f(high). f is the top bits of splitmix64's mix of (half ^ round key), as many as the other half has;
    the round key is the first 8 bytes, little-endian, of the sha256 of `key` and the number of the round as one byte. A result
    of n or more goes through the network again until it is below n (cycle walking), less than twice on average from 32 items on.
    Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002).

    >>> order = Order(5, order_key("d1f0", 7, 0, "train"))
    >>> order.item_at(np.arange(5)).tolist()
    [0, 1, 3, 2, 4]
    >>> order.position_of(order.item_at(np.arange(5))).tolist()
    [0, 1, 2, 3, 4]
    """

    n: int
    key: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.n <= 1 << _BITS_MAX:
            raise ValueError(f"an order: expected 0 to 2^{_BITS_MAX} items; found {self.n}.")

    def item_at(self, positions: Longs) -> Longs:
        """The item at each position: int64, of the shape of `positions`. Raises IndexError for a position that is not in 0…n-1."""
        return self._permuted(positions, range(_N_ROUNDS), "position")

    def position_of(self, items: Longs) -> Longs:
        """The position of each item: int64, of the shape of `items`. Raises IndexError for an item that is not in 0…n-1."""
        return self._permuted(items, range(_N_ROUNDS)[::-1], "item")

    def _permuted(self, values: Longs, steps: Sequence[int], what: str) -> Longs:
        values = np.asarray(values, np.int64)
        outside = values[(values < 0) | (values >= self.n)]
        if len(outside):  # from there, cycle walking might never end
            raise IndexError(f"{what} {outside[0]} of an order of {self.n:,} items: expected 0 to n - 1.")
        permuted = values.reshape(-1).astype(np.uint64)
        self._pass(permuted, steps)
        walking = np.flatnonzero(permuted >= np.uint64(self.n))
        while len(walking):
            again = permuted[walking]
            self._pass(again, steps)
            permuted[walking] = again
            walking = walking[again >= np.uint64(self.n)]
        return permuted.view(np.int64).reshape(values.shape)

    def _pass(self, values: npt.NDArray[np.uint64], steps: Sequence[int]) -> None:
        """Replaces each value by what the network makes of it."""
        n_low = self._n_bits // 2
        n_high = self._n_bits - n_low
        for first in range(0, len(values), _BLOCK_ITEMS):
            block = values[first : first + _BLOCK_ITEMS]
            high = block >> np.uint64(n_low)
            low = block & np.uint64((1 << n_low) - 1)
            mixed, scratch = np.empty_like(block), np.empty_like(block)
            for i in steps:
                source, target, n_bits = (high, low, n_low) if i % 2 else (low, high, n_high)
                np.bitwise_xor(source, self._round_keys[i], out=mixed)
                mix(mixed, scratch)
                np.right_shift(mixed, np.uint64(64 - n_bits), out=mixed)
                np.bitwise_xor(target, mixed, out=target)
            np.left_shift(high, np.uint64(n_low), out=high)
            np.bitwise_or(high, low, out=block)

    @property
    def _n_bits(self) -> int:
        return max(_BITS_MIN, (self.n - 1).bit_length())

    @cached_property
    def _round_keys(self) -> npt.NDArray[np.uint64]:
        digests = b"".join(hashlib.sha256(self.key + bytes([i])).digest()[:8] for i in range(_N_ROUNDS))
        return np.frombuffer(digests, "<u8").astype(np.uint64)


def mix(values: npt.NDArray[np.uint64], scratch: npt.NDArray[np.uint64]) -> None:
    """Replaces each value by its mix, one to one, so that each bit of it changes half of the result. `scratch`, of the same shape,
    is overwritten.

    Source: the last step of splitmix64 (Steele, Lea and Flood 2014, with the constants of Stafford's variant 13).

    >>> values = np.array([0, 1], np.uint64)
    >>> mix(values, np.empty_like(values))
    >>> values.tolist()
    [0, 6238072747940578789]
    """
    for shift, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR), (31, None)):
        np.right_shift(values, np.uint64(shift), out=scratch)
        np.bitwise_xor(values, scratch, out=values)
        if factor is not None:
            np.multiply(values, factor, out=values)
