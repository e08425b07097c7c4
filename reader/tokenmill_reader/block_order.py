"""The order of items that are shuffled in blocks of parts, so that few parts are read at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tokenmill_reader.order import Order

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Longs


class BlockOrder:
    """An order of the items of several parts. `first_items`: the first item of each part, and the end. `block`: parts of a block,
    at least 1. `key_of`: the key of an order (tokenmill_reader.order) with a name. `run`: parts that stay neighbours, at least 1.

    Each `run` parts are a run, and the runs come in the Order with the key of "parts". Each `block` parts in this order are a
    block. The items of block k, in the order of its parts, come in the Order with the key of "block k".
    `parts_digest`: the first 16 hex digits of the sha256 of `first_items`, as JSON without spaces.
    """

    def __init__(self, first_items: Longs, block: int, key_of: Callable[[str], bytes], run: int = 1) -> None:
        n_parts = len(first_items) - 1
        n_runs = -(-n_parts // run)
        runs = Order(n_runs, key_of("parts")).item_at(np.arange(n_runs))
        parts = (runs[:, None] * run + np.arange(run)).ravel()
        self.parts: Longs = parts[parts < n_parts]  # the last run may be shorter
        self._block, self._key_of = block, key_of
        self._part_starts = first_items[self.parts]
        n_items = np.diff(first_items)[self.parts]
        self._starts = np.append(0, np.cumsum(n_items))  # the first item of each part among those of the blocks
        numbers = json.dumps(first_items.tolist(), separators=(",", ":"))
        self.parts_digest: str = hashlib.sha256(numbers.encode()).hexdigest()[:16]
        self._block_starts = np.append(self._starts[:-1:block], self._starts[-1])

    @property
    def blocks(self) -> list[list[int]]:
        """The parts of each block."""
        parts: list[int] = self.parts.tolist()
        return [parts[at : at + self._block] for at in range(0, len(parts), self._block)]

    def item_at(self, positions: Longs) -> Longs:
        """The item at each position: int64, of the shape of `positions`, which are in 0…n-1."""
        positions = np.asarray(positions, np.int64)
        of_block = self.block_of(positions)
        slot_items = np.empty_like(positions)
        for k in np.unique(of_block).tolist():
            start, end = self._block_starts[k : k + 2].tolist()
            chosen = of_block == k
            slot_items[chosen] = start + self._order_of(k, end - start).item_at(positions[chosen] - start)
        slots = np.searchsorted(self._starts, slot_items, side="right") - 1
        items: Longs = self._part_starts[slots] + (slot_items - self._starts[slots])
        return items

    def block_of(self, positions: Longs) -> Longs:
        """The number of the block of each position."""
        blocks: Longs = np.searchsorted(self._block_starts, positions, side="right") - 1
        return blocks

    def _order_of(self, k: int, n_items: int) -> Order:
        return Order(n_items, self._key_of(f"block {k}"))
