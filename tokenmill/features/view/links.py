"""The links between documents and the items of file sets that hold them, each compared with the files."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenmill.errors import ValidationError
from tokenmill.features.view.arranged_items import ArrangedItems, Segment
from tokenmill.features.view.item_sets import ItemSet
from tokenmill_reader.array_types import Ids

_LINKS_MAX = 500


class Link(NamedTuple):
    """A piece of a document in an item of the file set number `of_set`. `n_of_document`: the tokens of the whole document."""

    of_set: int
    segment: Segment
    n_of_document: int


def links_of(
    dataset: Path, sets: Sequence[ItemSet], arranged: ArrangedItems, number: int, i: int, position: int
) -> tuple[list[Link], int]:
    """The first links of item `i` of the set `number`, and how many more there are: of a document to all items of file sets that
    hold it, and of such an item to its documents from `position` on. Raises ValidationError if files have other items."""
    if sets[number].key is None:
        links = [
            (k, piece) for k, item_set in enumerate(sets) for piece in _pieces(dataset, item_set, arranged, document=i)
        ]
    else:
        pieces = _pieces(dataset, sets[number], arranged, item=i)
        links = [(number, piece) for piece in pieces if piece.position + piece.n_tokens > position]
    kept = links[:_LINKS_MAX]
    ids = _ids(sets, {(0, piece.document) for _, piece in kept} | {(k, piece.item) for k, piece in kept})
    for k, piece in kept:
        part = ids[k, piece.item][piece.position : piece.position + piece.n_tokens]
        if not np.array_equal(part, ids[0, piece.document][piece.start : piece.start + piece.n_tokens]):
            raise _differs(dataset, sets[k], f"item {piece.item:,} has other tokens than its documents.")
    return [Link(k, piece, len(ids[0, piece.document])) for k, piece in kept], len(links) - len(kept)


def _pieces(
    dataset: Path, item_set: ItemSet, arranged: ArrangedItems, item: int | None = None, document: int | None = None
) -> Iterable[Segment]:
    """The pieces of documents that make an item of a set, or those of a document in its items; none if these are all documents."""
    if item_set.key is None:
        return []
    if (n_items := arranged.n_items(item_set.key)) != item_set.n_items:
        raise _differs(dataset, item_set, f"expected {n_items:,} items; found {item_set.n_items:,}.")
    if item is not None:
        return arranged.segments_of(item_set.key, item)
    assert document is not None
    return arranged.segments_with(item_set.key, document)


def _differs(dataset: Path, one: ItemSet, what: str) -> ValidationError:
    return ValidationError(dataset, f"{one.name}: {what}", "Run `tokenmill verify`, which finds wrong files.")


def _ids(sets: Sequence[ItemSet], wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], Ids]:
    """The ids of items, each asked for by the number of its set and its own."""
    ids_of: dict[tuple[int, int], Ids] = {}
    for k in {k for k, _ in wanted}:
        numbers = sorted(i for of_set, i in wanted if of_set == k)
        lists = sets[k].open().take(np.array(numbers, np.int64))
        ids_of |= {(k, i): ids for i, ids in zip(numbers, lists, strict=True)}
    return ids_of
