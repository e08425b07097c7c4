"""All ids of a dataset as one row of items: found by item or by token, in whatever blocks of whatever files they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.open_parts import Block, OpenPart, Parts

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Ids, Longs, Mask, Starts
    from tokenmill_reader.cached_files import CachedFiles


_PER_BLOCK_MIN = 16  # items of a block; fewer are found faster one by one


class Blocks:
    """The items of all parts, one after another. A part's files are opened when they are first needed. `cached`: fetches the files
    of a remote dataset.

    Arrays are read-only: views of memory-mapped files, otherwise copies, so that a few ids do not keep the memory of a row group.
    A process that gets a copy of this object opens the files again.
    """

    def __init__(self, parts: Parts, cached: CachedFiles | None = None) -> None:
        self.n_items_of_part: list[int] = [place.n_items for place in parts.places]
        self._first_items = list(accumulate(self.n_items_of_part, initial=0))
        self._first_tokens = list(accumulate((place.n_tokens for place in parts.places), initial=0))
        self.n_items: int = self._first_items.pop()
        self.n_tokens: int = self._first_tokens.pop()
        self._parts, self._are_mapped = parts, parts.are_mapped
        self._opened: dict[int, OpenPart] = {}
        self.cached: CachedFiles | None = cached

    def item(self, i: int) -> Ids:
        """The ids of the item number i of all."""
        block, i = self.find(i)
        ids = block.ids[block.offsets.item(i) : block.offsets.item(i + 1)]
        return ids if self._are_mapped else joined([ids])

    def mask(self, i: int) -> Mask:
        """The loss mask of the item number i of all, of a dataset that has masks."""
        block, i = self.find(i)
        found = _mask(block)[block.offsets.item(i) : block.offsets.item(i + 1)]
        return found if self._are_mapped else found.copy()

    def find(self, i: int) -> tuple[Block, int]:
        """The block that has the item number i of all, and the item's number in it."""
        part = bisect_right(self._first_items, i) - 1
        opened = self._opened.get(part) or self._open(part)
        i -= self._first_items[part]
        number = bisect_right(opened.first_items, i) - 1
        return opened.load(number), i - opened.first_items[number]

    def place_of(self, i: int) -> tuple[int, int]:
        """The part that has the item number i of all, and the item's number in it. The files of a remote part are here then."""
        part = bisect_right(self._first_items, i) - 1
        if self.cached is not None and part not in self._opened:
            self._open(part)
        return part, i - self._first_items[part]

    def place_of_token(self, token: int) -> tuple[int, int]:
        """The part that has this token, a number among those of all items, and the number in it of the token's item."""
        part = bisect_right(self._first_tokens, token) - 1
        opened = self._opened.get(part) or self._open(part)
        at = token - self._first_tokens[part]
        number = bisect_right(opened.first_tokens, at) - 1
        offsets = opened.load(number).offsets
        row = int(offsets.searchsorted(at - opened.first_tokens[number], side="right")) - 1
        return part, opened.first_items[number] + row

    def number_of(self, part: int, i: int) -> int:
        """The number among all items of the item number i of a part."""
        return self._first_items[part] + i

    def items(self, indexes: Longs) -> list[Ids]:
        """The ids of these items, in this order. A block is read once, however many of them it has."""
        items: list[Any] = [None] * len(indexes)
        of_parts = list(_groups(np.searchsorted(self._first_items, indexes, side="right") - 1))
        if self.cached is not None:  # else a part of the next block would come between two of this one
            turns = self.cached.turns
            of_parts.sort(key=lambda part_turn: turns[part_turn[0]])
        for part, in_part in of_parts:
            opened = self._opened.get(part) or self._open(part)
            if self._are_mapped and len(in_part) < _PER_BLOCK_MIN * len(opened.first_items):
                for i, index in zip(in_part.tolist(), indexes[in_part].tolist()):
                    items[i] = self.item(index)
                continue
            local = indexes[in_part] - self._first_items[part]
            for number, in_block in _groups(np.searchsorted(opened.first_items, local, side="right") - 1):
                block = opened.load(number)
                rows = local[in_block] - opened.first_items[number]
                starts, stops = block.offsets[rows].tolist(), block.offsets[rows + 1].tolist()
                for i, start, stop in zip(in_part[in_block].tolist(), starts, stops):
                    ids = block.ids[start:stop]
                    items[i] = ids if self._are_mapped else joined([ids])
        return items

    def tokens(self, first: int, n_tokens: int) -> Ids:
        """The `n_tokens` ids of all items back to back from the id number `first` on; a copy where they are in several blocks."""
        part = bisect_right(self._first_tokens, first) - 1
        opened = self._opened.get(part) or self._open(part)
        start = first - self._first_tokens[part]
        number = bisect_right(opened.first_tokens, start) - 1
        start -= opened.first_tokens[number]
        ids = opened.load(number).ids[start : start + n_tokens]
        if len(ids) < n_tokens:
            return joined([block.ids[start:stop] for block, start, stop in self._span(first, n_tokens)])
        return ids if self._are_mapped else joined([ids])

    def masks(self, first: int, n_tokens: int) -> Mask:
        """A new array of the loss mask of the ids that `tokens` gives."""
        pieces = [_mask(block)[start:stop] for block, start, stop in self._span(first, n_tokens)]
        return np.concatenate([np.empty(0, np.int8), *pieces])

    def starts(self, first: int, n_tokens: int) -> Starts:
        """Where items begin among the ids that `tokens` gives: rising positions, of which the first is always 0."""
        starts_of_blocks, n_before = [np.zeros(1, np.int64)], 0
        for block, start, stop in self._span(first, n_tokens):
            low, high = block.offsets.searchsorted(start), block.offsets.searchsorted(stop)
            starts_of_blocks.append(block.offsets[low:high] + (n_before - start))
            n_before += stop - start
        all_starts = np.concatenate(starts_of_blocks)
        is_first = np.append(True, all_starts[1:] > all_starts[:-1])  # an empty item begins where the next one does
        starts: Starts = all_starts[is_first].astype(np.int32)
        return starts

    def _span(self, first: int, n_tokens: int) -> Iterator[tuple[Block, int, int]]:
        """The blocks that hold these ids, each with its range of them: the first id and the end."""
        part = bisect_right(self._first_tokens, first) - 1
        while n_tokens:
            opened = self._opened.get(part) or self._open(part)
            first_tokens, position = opened.first_tokens, first - self._first_tokens[part]
            for number in range(max(bisect_right(first_tokens, position) - 1, 0), len(first_tokens)):
                block = opened.load(number)
                start = position - first_tokens[number]
                stop = min(start + n_tokens, len(block.ids))
                if stop > start:
                    yield block, start, stop
                position, n_tokens = position + stop - start, n_tokens - stop + start
                if not n_tokens:
                    return
            first, part = self._first_tokens[part] + position, part + 1

    @property
    def first_items(self) -> Longs:
        """The number of the first item of each part, and the end."""
        return np.array([*self._first_items, self.n_items], np.int64)

    @property
    def first_tokens(self) -> Longs:
        """Likewise for the ids of all items back to back."""
        return np.array([*self._first_tokens, self.n_tokens], np.int64)

    def _open(self, part: int) -> OpenPart:
        if self.cached is None:
            opened = self._parts.open(part)
        else:
            for closed in self.cached.to_close(list(self._opened), part):
                self._opened.pop(closed, None)
            held = self.cached.hold_part(part)
            opened = copy(self._parts).open(part)._replace(held=held)  # a copy, which keeps no files open
        self._opened[part] = opened
        return opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}


def _mask(block: Block) -> Mask:
    assert block.loss_mask is not None
    return block.loss_mask


def joined(pieces: Sequence[Any]) -> Ids:
    """A new read-only array of the ids of these, one after another."""
    ids: Ids = np.concatenate(pieces)
    ids.flags.writeable = False
    return ids


def _groups(numbers: Longs) -> Iterator[tuple[int, Longs]]:
    """Each number that is there, with the positions where it is."""
    order = np.argsort(numbers, kind="stable")
    values, firsts = np.unique(numbers[order], return_index=True)
    for value, start, stop in zip(values.tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(order)]):
        yield value, order[start:stop]
