"""Checks items before they are written and after they are read, and gives their ids as flat arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.interface import Flat, Shape

INT32_MAX = 2**31 - 1
REBUILD = "Delete the dataset and build it again."
_NOT_WRITTEN = "Nothing of this part was kept; choose another format, or mend the items."
_BESIDE_IDS = ("loss_mask", "labels", "position_ids")  # lists with a value for each id


def columns(shape: Shape) -> pa.Schema:
    """The columns that a table format holds: those of the shape, without the documents' `shard` and `row`."""
    if shape.length is not None:
        return shape.schema
    return pa.schema([field for field in shape.schema if field.name not in ("shard", "row")])


def named(columns: pa.Schema) -> str:
    """Lists columns with their types, for a message."""
    return ", ".join(f"{field.name} ({field.type})" for field in columns)


def numpy_type(shape: Shape) -> "np.dtype[Any]":
    """The type of the ids, little-endian."""
    return np.dtype("<u2") if shape.ids == pa.uint16() else np.dtype("<u4")


def checked(batch: pa.RecordBatch, shape: Shape, place: Path, n_before: int) -> pa.RecordBatch:
    """Casts the batch to exactly the shape's schema. `n_before`: the number of items written before it.

    Raises ValidationError if a value does not fit its column (nothing wraps) or is null, and where the other checks do."""
    try:
        if not batch.schema.equals(shape.schema, check_metadata=True):
            batch = batch.cast(shape.schema)
        if any(column.null_count for column in batch.columns):
            raise ValueError("a value is null")
    except (pa.ArrowInvalid, ValueError) as error:
        raise ValidationError(
            place,
            f"items from {n_before:,}: expected the columns {named(shape.schema)}, without nulls; found "
            f"{named(batch.schema)}: {error}. {_NOT_WRITTEN}",
        ) from None
    check_items(batch, shape, place, n_before, _NOT_WRITTEN)
    return batch


def checking(add: Callable[[pa.RecordBatch], None], shape: Shape, place: Path) -> Callable[[pa.RecordBatch], None]:
    """A function that checks a batch of items and passes it to `add`. Raises as `checked` does."""
    n_items = 0

    def add_checked(batch: pa.RecordBatch) -> None:
        nonlocal n_items
        add(checked(batch, shape, place, n_items))
        n_items += batch.num_rows

    return add_checked


def check_items(batch: pa.RecordBatch, shape: Shape, place: Path, n_before: int = 0, fix: str = REBUILD) -> None:
    """Raises ValidationError for an id over the tokenizer's largest, and for lists that do not fit their item."""
    flat = flat_of(batch)
    check_ids(flat, shape, place, n_before, fix)
    check_beside(batch, flat.offsets, place, n_before, fix)
    check_segments(flat, shape, place, n_before, fix)


def flat_of(batch: pa.RecordBatch) -> Flat:
    """The ids of a batch as one array that shares its memory, with starts, labels and mask if it has them."""
    ids, offsets = list_values(batch.column("input_ids"))
    names = batch.schema.names
    labels, mask = (list_values(batch.column(name))[0] if name in names else None for name in ("labels", "loss_mask"))
    return Flat(ids, offsets, batch.column("starts") if "starts" in names else None, labels, mask)


def check_beside(
    batch: pa.RecordBatch, offsets: npt.NDArray[np.int64], place: Path, n_before: int = 0, fix: str = REBUILD
) -> None:
    """Raises ValidationError for labels or a mask of another length than their item's ids, and for a mask with other values than 0
    and 1. `offsets`: where the ids of each item begin, with the end of the last."""
    for name in _BESIDE_IDS:
        if name not in batch.schema.names:
            continue
        found, own = list_values(batch.column(name))
        if not np.array_equal(own, offsets):
            row = int(np.argmax(np.diff(own) != np.diff(offsets)))
            expected, n_found = np.diff(offsets)[row], np.diff(own)[row]
            raise ValidationError(
                place,
                f"item {n_before + row:,}: expected {expected:,} values of {name}, one for each id; found {n_found:,}.",
                fix,
            )
        if name == "loss_mask" and found.size and (found.view(np.uint8) > 1).any():
            at = int(np.argmax(found.view(np.uint8) > 1))
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            raise ValidationError(
                place, f"item {n_before + row:,}: loss_mask: expected 0 or 1; found {found[at]}.", fix
            )


def check_ids(flat: Flat, shape: Shape, place: Path, n_before: int = 0, fix: str = REBUILD) -> None:
    """Raises ValidationError for an id over the tokenizer's largest. `n_before`: the number of the first item."""
    ids = flat.ids.view(np.uint32) if flat.ids.dtype == np.int32 else flat.ids  # as unsigned, a negative id is large
    if int(ids.max(initial=0)) <= shape.id_max:
        return
    at = int(np.argmax(ids > shape.id_max))
    item = n_before + int(np.searchsorted(flat.offsets, at, side="right")) - 1
    raise ValidationError(
        place,
        f"item {item:,}: expected ids of 0 to {shape.id_max}, the tokenizer's largest; found {flat.ids[at]}.",
        fix,
    )


def check_segments(flat: Flat, shape: Shape, place: Path, n_before: int = 0, fix: str = REBUILD) -> None:
    """Raises ValidationError for a sequence that is empty or too long, for starts that do not begin with 0 and rise within it, and
    for a mask that is not 0 at a start. Documents pass."""
    if shape.length is None:
        return
    assert flat.starts is not None
    lengths = np.diff(flat.offsets)
    if len(flat.starts) != len(lengths):
        raise ValidationError(place, f"expected starts of {len(lengths):,} sequences; found {len(flat.starts):,}.", fix)
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
        raise ValidationError(
            place,
            f"item {n_before + first:,}: expected starts that begin with 0 and rise within its {lengths[first]:,} "
            f"tokens; found {flat.starts[first].as_py()[:8]}.",
            fix,
        )
    if flat.loss_mask is not None:
        at = segment_places(flat)
        if flat.loss_mask[at].any():
            first = int(np.searchsorted(flat.offsets, at[np.argmax(flat.loss_mask[at] != 0)], side="right")) - 1
            raise ValidationError(
                place,
                f"item {n_before + first:,}: loss_mask: expected 0 at each start, where no token before is of the "
                "same document; found 1.",
                fix,
            )


def first_wrong_starts(starts: pa.ListArray, lengths: npt.NDArray[np.int64]) -> int | None:
    """The first sequence whose starts do not begin with 0 and rise within its length; None where all do."""
    values, offsets = list_values(starts)
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
    starts, first = list_values(flat.starts)
    places: npt.NDArray[np.int64] = starts + np.repeat(flat.offsets[:-1], np.diff(first))
    return places


def may_be_empty(shape: Shape) -> bool:
    """Whether an item can have no tokens: an empty document without begin and end ids. Conversations always have tokens."""
    return shape.length is None and shape.begin_id is None and shape.end_id is None and not shape.has_mask


def refuse_lists(shape: Shape, name: str) -> str | None:
    """Says why a format that holds only ids cannot hold the loss mask or the labels, or None."""
    if shape.has_mask:
        packed = "" if shape.length is None else ", megatron_sft or megatron_sft_parquet"
        return (
            f"{name} has no place for the loss mask of conversations, without which every token is trained; choose parquet, "
            f"arrow, mds{packed}"
        )
    return f"{name} has no place for labels; choose parquet, arrow or mds" if shape.has_labels else None


def refuse_over_int32(shape: Shape, name: str) -> str | None:
    """Says why a format of int32 ids cannot hold larger ids, or None."""
    if shape.id_max <= INT32_MAX:
        return None
    return f"{name} holds ids up to {INT32_MAX:,}; the tokenizer's largest is {shape.id_max:,}; choose parquet or arrow"


def list_values(lists: pa.ListArray) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The values of a list column without a copy, and where each list begins in them, with the end of the last."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    return values.to_numpy(), offsets - offsets[0]
