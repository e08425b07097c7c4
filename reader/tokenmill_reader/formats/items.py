"""What the items of a file set look like, and their ids as flat arrays that are checked after they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokenmill_reader.errors import ValidationError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import FileIds

INT32_MAX = 2**31 - 1
REBUILD = "Delete the dataset and build it again."
ARROW_SUFFIX = ".arrow"
STARTS_SUFFIX = ".starts.arrow"
"""Suffix of the file beside a part for what its format cannot hold: an Arrow IPC file with a row for each item. Columns: `starts`
for sequences, `source_ids` in a set that mixes sources, and `n_tokens` if the format does not say where an item ends."""

_SHOWN_STARTS_MAX = 8  # in a message


@dataclass(frozen=True)
class Shape:
    """What the items of a file set look like: documents, or sequences that were packed from documents.

    `id_max`: the tokenizer's largest id. `begin_id`, `end_id`: the ids that begin and end every document, or None. `has_names`:
    documents have string ids; otherwise a document's id is its row. `length`: the largest number of tokens of a sequence; None:
    the items are documents. `has_labels`: sequences have labels. `has_mask`: the documents are conversations, whose tokens have a
    loss mask. `is_pair`: each is a pair of them, with the chosen answer and with the rejected one, and so is each sequence.
    `has_sources`: the set mixes named sources, so its files have the numbers of the items' sources.
    """

    id_max: int
    tokenizer_digest: str
    begin_id: int | None
    end_id: int | None
    has_names: bool
    length: int | None = None
    has_labels: bool = False
    has_mask: bool = False
    is_pair: bool = False
    has_sources: bool = False

    @property
    def ids(self) -> np.dtype[Any]:
        """The type of the ids in files, little-endian: uint16 if the largest id fits, else uint32."""
        return np.dtype("<u2" if self.id_max < 2**16 else "<u4")

    def packed(self, length: int, has_labels: bool) -> Shape:
        """The shape of the sequences that these documents are packed into. `length`: encode.pack.length, which of a pair each
        conversation may have."""
        return replace(self, length=length * 2 if self.is_pair else length, has_labels=has_labels)


class Lists(NamedTuple):
    """Lists of integers. `values`: all of them, one list after another. `offsets`: int64, where each list begins in `values`, then
    the end of the last one."""

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]


class Flat(NamedTuple):
    """Items whose ids lie one after another in a memory-mapped array: all items of a part, or a record batch of them.

    `offsets`: int64, where each item begins in `ids`, then the end of the last one. `starts`: the int32 positions in each
    sequence where documents or parts of documents begin; None for documents. `labels` int32, `loss_mask` int8: a value for each
    id; None if the items have none.
    """

    ids: FileIds
    offsets: npt.NDArray[np.int64]
    starts: Lists | None = None
    labels: npt.NDArray[np.int32] | None = None
    loss_mask: npt.NDArray[np.int8] | None = None


def check_segments(flat: Flat, shape: Shape, place: Path, n_before: int = 0, fix: str = REBUILD) -> None:
    """Raises ValidationError for a sequence that is empty or too long, for starts that do not begin with 0 and rise within it, and
    for a mask that is not 0 at a start. Documents pass."""
    if shape.length is None:
        return
    assert flat.starts is not None
    lengths, n_found = np.diff(flat.offsets), len(flat.starts.offsets) - 1
    if n_found != len(lengths):
        raise ValidationError(place, f"expected starts of {len(lengths):,} sequences; found {n_found:,}.", fix)
    wrong = (lengths < 1) | (lengths > shape.length)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValidationError(
            place,
            f"item {n_before + row:,}: expected a sequence of 1 to {shape.length:,} tokens; found {lengths[row]:,}.",
            fix,
        )
    first = first_wrong_starts(flat.starts, lengths)
    if first is not None:
        starts = flat.starts.values[flat.starts.offsets[first] : flat.starts.offsets[first + 1]][:_SHOWN_STARTS_MAX]
        raise ValidationError(
            place,
            f"item {n_before + first:,}: expected starts that begin with 0 and rise within its {lengths[first]:,} "
            f"tokens; found {starts.tolist()}.",
            fix,
        )
    if flat.loss_mask is not None:
        first_places = segment_places(flat)
        if flat.loss_mask[first_places].any():
            first = (
                int(
                    np.searchsorted(
                        flat.offsets, first_places[np.argmax(flat.loss_mask[first_places] != 0)], side="right"
                    )
                )
                - 1
            )
            raise ValidationError(
                place,
                f"item {n_before + first:,}: loss_mask: expected 0 at each start, where no token before is of the "
                "same document; found 1.",
                fix,
            )


def first_wrong_starts(starts: Lists, lengths: npt.NDArray[np.int64]) -> int | None:
    """The first sequence whose starts do not begin with 0 and rise within its length; None where all do."""
    values, offsets = starts
    first, end = offsets[:-1], offsets[1:]
    wrong = first == end
    full = ~wrong
    wrong[full] |= values[first[full]] != 0
    wrong[full] |= values[end[full] - 1] >= lengths[full]
    falls = np.flatnonzero(np.diff(values) <= 0) + 1  # a decrease is fine where a new list begins
    falls = falls[~np.isin(falls, first[full])]
    wrong[np.searchsorted(offsets, falls, side="right") - 1] = True
    return int(np.argmax(wrong)) if wrong.any() else None


def segment_ends(flat: Flat) -> npt.NDArray[np.int64]:
    """Where documents, or the segments of sequences, end among the ids."""
    if flat.starts is None:
        return flat.offsets[1:]
    places = segment_places(flat)
    return np.append(places[1:], flat.offsets[-1:]) if places.size else places


def segment_places(flat: Flat) -> npt.NDArray[np.int64]:
    """Where the segments of sequences begin among the ids."""
    assert flat.starts is not None
    places: npt.NDArray[np.int64] = flat.starts.values + np.repeat(flat.offsets[:-1], np.diff(flat.starts.offsets))
    return places
