"""Which documents make each item of the file sets, and how long the items are: planned again from the document index."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import Files
from tokenmill.dataset.manifest import Manifest
from tokenmill.features.view.document_index import DocumentIndex
from tokenmill.file_sets.items import EncodedUnit, Part, chosen_lengths
from tokenmill.file_sets.packing import Segments, pack
from tokenmill.file_sets.planned import PlannedSet, plan_sets
from tokenmill_reader.array_types import Longs

_PARTS_HELD_MAX = 2


class SetKey(NamedTuple):
    """Which file set it is. `split`, `source`: None if there is only one."""

    split: str | None
    source: str | None
    epoch: int


Lengths = Iterator[tuple[Longs, Longs]]
"""The numbers of items and their numbers of tokens, some at a time."""


class Segment(NamedTuple):
    """A piece of a document in an item. `number`: the pieces before it in the item. `position`, `start`: where it begins in the
    item and in the document."""

    item: int
    number: int
    position: int
    document: int
    start: int
    n_tokens: int


class _PartItems(NamedTuple):
    """The numbers in the dataset of the documents of a part, and the segments that make its items."""

    documents: Longs
    segments: Segments
    n_items: int


class ArrangedItems:
    """The items of the file sets of a dataset. Holds the numbers of a few parts, each with about `encode.file_bytes` of ids."""

    def __init__(self, manifest: Manifest, files: Files, index: DocumentIndex) -> None:
        self._manifest, self._files = manifest, files
        names = manifest.source_names() if manifest.sources else {}
        firsts = [*accumulate((shard.n_documents for _, shard in manifest.outputs()), initial=0)]
        self._units: list[EncodedUnit] = []
        self._rows: dict[str, range] = {}
        for (name, shard), first in zip(manifest.outputs(), firsts, strict=False):
            rows = self._rows[name] = range(first, first + shard.n_documents)
            read, source = partial(index.columns, rows), names.get(shard.rows[0].name, "")
            self._units.append(EncodedUnit(name, Path(shard.name), read, shard.pieces, source=source))
        self._items_of_part = lru_cache(_PARTS_HELD_MAX)(self._read_part)
        self._firsts: dict[tuple[str | None, str | None], list[int]] = {}  # equal in all epochs

    def n_items(self, key: SetKey) -> int:
        """The number of items of a set; 0 for a set that the dataset does not have."""
        return self._first_items(key)[-1]

    def segments_of(self, key: SetKey, item: int) -> list[Segment]:
        """The pieces of documents that make an item, in order."""
        firsts = self._first_items(key)
        place = self._places(key, np.array([item]), to_files=False).item()
        i = bisect_right(firsts, place) - 1
        return self._pieces(key, i, place - firsts[i])

    def segments_with(self, key: SetKey, document: int) -> Iterator[Segment]:
        """The pieces of a document in the items of a set, which has it several times if it repeats its source."""
        for i, part in enumerate(self._parts(key)):
            if not any(document in self._rows[unit.file] for unit in part.units):
                continue
            documents, segments, _ = self._items_of_part(*key[:2], i)
            is_in = documents[segments.document] == document
            for place in np.unique(segments.sequence[is_in]).tolist():
                yield from (piece for piece in self._pieces(key, i, place) if piece.document == document)

    def lengths(self, key: SetKey) -> Lengths:
        """The lengths of the items of a set, part by part."""
        pack, pad_id, firsts = self._files.pack, self._files.pad_id, self._first_items(key)
        for i in range(len(firsts) - 1):
            _, segments, n_items = self._items_of_part(*key[:2], i)
            lengths = np.bincount(segments.sequence, segments.n_tokens, n_items).astype(np.int64)
            if pack is not None and pad_id is not None:
                lengths[:] = pack.length
            yield self._places(key, np.arange(firsts[i], firsts[i + 1]), to_files=True), lengths

    @cached_property
    def _planned(self) -> dict[SetKey, PlannedSet]:
        """The sets in the order of the manifest."""
        planned = plan_sets(self._units, self._files, np.dtype(self._manifest.id_type).itemsize, threads=1)
        return {SetKey(one.split, one.source, one.epoch or 0): one for one in planned}

    def _parts(self, key: SetKey) -> Sequence[Part]:
        return self._planned[key].parts if key in self._planned else ()

    def _first_items(self, key: SetKey) -> list[int]:
        """The number of the first item of each part, before they are shuffled, and the end."""
        if key[:2] not in self._firsts:
            n_items = (self._items_of_part(*key[:2], i).n_items for i in range(len(self._parts(key))))
            self._firsts[key[:2]] = [*accumulate(n_items, initial=0)]
        return self._firsts[key[:2]]

    def _places(self, key: SetKey, numbers: Longs, to_files: bool) -> Longs:
        """The numbers in the files of items with these numbers in the order of the dataset; `to_files=False`: the other way."""
        if self._files.shuffle is None:
            return numbers
        seed, digest = self._files.shuffle.seed, self._manifest.tokens_digest()
        order = self._planned[key].order(self.n_items(key), seed, digest)
        return order.position_of(numbers) if to_files else order.item_at(numbers)

    def _pieces(self, key: SetKey, i: int, place: int) -> list[Segment]:
        """The pieces of an item of part `i`. `place`: its number in the part."""
        documents, segments, _ = self._items_of_part(*key[:2], i)
        first = self._first_items(key)[i]
        item = self._places(key, np.array([first + place]), to_files=True).item()
        low, high = np.searchsorted(segments.sequence, [place, place + 1])
        n_tokens = segments.n_tokens[low:high]
        positions = (np.cumsum(n_tokens) - n_tokens).tolist()
        columns = documents[segments.document[low:high]], segments.start[low:high], n_tokens
        rows = zip(positions, *(column.tolist() for column in columns), strict=True)
        return [Segment(item, number, *row) for number, row in enumerate(rows)]

    def _read_part(self, split: str | None, source: str | None, i: int) -> _PartItems:
        part = self._parts(SetKey(split, source, 0))[i]
        numbers = [np.empty(0, np.int64)]
        for unit in part.units:
            is_chosen = part.choice.of(unit, read_unit_index(unit.index, ["sha256", "group"]))
            numbers.append(self._rows[unit.file].start + np.flatnonzero(is_chosen))
        documents, lengths = np.concatenate(numbers), chosen_lengths(part.units, part.choice)
        if self._files.pack is None:
            each = np.arange(len(documents))
            return _PartItems(documents, Segments(each, each, np.zeros_like(each), lengths), len(documents))
        packing = pack(lengths, self._files.pack.length, self._files.pack.mode, self._files.pack.long)
        return _PartItems(documents, packing.segments, packing.n_sequences)


def first_by_length(items: Lengths, is_longest: bool, n: int, first: tuple[int, int] | None = None) -> list[int]:
    """The numbers of the `n` shortest or longest items; items of one length are in the order of their numbers. Holds so many.

    `first`: the number and the length of the item that the list begins with.

    >>> items = np.array([0, 1, 2]), np.array([7, 9, 7])
    >>> first_by_length(iter([items]), False, 2), first_by_length(iter([items]), True, 2, (0, 7))
    ([0, 2], [0, 2])
    """
    sign = -1 if is_longest else 1
    held = np.empty((2, 0), np.int64)  # lengths, negative if the longest are first, and numbers
    for numbers, lengths in items:
        ranks = sign * lengths
        is_wanted = np.ones(len(ranks), np.bool_) if held.shape[1] < n else ranks <= held[0, -1]
        if first is not None:
            rank = sign * first[1]
            is_wanted &= (ranks > rank) | ((ranks == rank) & (numbers >= first[0]))
        both = np.concatenate([held, np.stack([ranks[is_wanted], numbers[is_wanted]])], axis=1)
        held = both[:, np.lexsort((both[1], both[0]))[:n]]
    found: list[int] = held[1].tolist()
    return found
