"""Checks items before they are written and after they are read, and gives their ids as flat arrays."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.format_facts import FORMATS, that_hold_labels, that_hold_masks
from tokenmill_reader.formats.columns import SOURCE_IDS, check_beside, flat_of, list_values, named, schema_of
from tokenmill_reader.formats.items import INT32_MAX, REBUILD, Flat, Lists, Shape, check_segments

_NOT_WRITTEN = "Nothing of this part was kept; choose another format, or correct the items."


def checked(batch: pa.RecordBatch, shape: Shape, place: Path, n_before: int) -> pa.RecordBatch:
    """Casts the batch to exactly the shape's schema. `n_before`: the number of items written before it.

    Raises ValidationError if a value does not fit its column (nothing wraps) or is null, and where the other checks do."""
    try:
        if not batch.schema.equals(schema_of(shape), check_metadata=True):
            batch = batch.cast(schema_of(shape))
        if any(column.null_count for column in batch.columns):
            raise ValueError("a value is null")
    except (pa.ArrowInvalid, ValueError) as error:
        raise ValidationError(
            place,
            f"items from {n_before:,}: expected the columns {named(schema_of(shape))}, without nulls; found "
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
    if SOURCE_IDS in batch.schema.names:
        check_source_ids(list_values(batch[SOURCE_IDS])[1], flat.starts, place, n_before, fix)


def check_ids(flat: Flat, shape: Shape, place: Path, n_before: int = 0, fix: str = REBUILD) -> None:
    """Raises ValidationError for an id over the tokenizer's largest. `n_before`: the number of the first item."""
    ids = flat.ids.view(np.uint32) if flat.ids.dtype == np.int32 else flat.ids  # as unsigned, a negative id is large
    if int(ids.max(initial=0)) <= shape.id_max:
        return
    position = int(np.argmax(ids > shape.id_max))
    item = n_before + int(np.searchsorted(flat.offsets, position, side="right")) - 1
    raise ValidationError(
        place,
        f"item {item:,}: expected ids of 0 to {shape.id_max}, the tokenizer's largest; found {flat.ids[position]}.",
        fix,
    )


def check_source_ids(
    offsets: npt.NDArray[np.int64], starts: Lists | None, place: Path, n_before: int = 0, fix: str = REBUILD
) -> None:
    """Raises ValidationError unless there is a number of a source for each start, or of documents, one for each. `offsets`: where
    the numbers of each item begin, with the end of the last."""
    expected = np.ones(len(offsets) - 1, np.int64) if starts is None else np.diff(starts.offsets)
    if not np.array_equal(np.diff(offsets), expected):
        row = int(np.argmax(np.diff(offsets) != expected))
        raise ValidationError(
            place,
            f"item {n_before + row:,}: expected {expected[row]:,} numbers of sources, one for each start; found "
            f"{np.diff(offsets)[row]:,}.",
            fix,
        )


def may_be_empty(shape: Shape) -> bool:
    """Whether an item can have no tokens: an empty document without begin and end ids. Conversations always have tokens."""
    return shape.length is None and shape.begin_id is None and shape.end_id is None and not shape.has_mask


def refuse_lists(shape: Shape, name: str) -> str | None:
    """Says why a format cannot hold the loss mask or the labels, or None."""
    if shape.has_mask and not FORMATS[name].holds_mask:
        all_trained = (
            "" if FORMATS[name].needs_end else ", or set encode.chat.mask: all if every token is to be trained"
        )
        return (
            f"{name} has no place for the loss mask of conversations, without which every token is trained; choose "
            f"{that_hold_masks(is_packed=shape.length is not None)}{all_trained}"
        )
    if shape.has_labels:
        return f"{name} has no place for labels; choose {that_hold_labels()}"
    return None


def refuse_over_uint16(shape: Shape, name: str) -> str | None:
    """Says why a format of uint16 ids cannot hold larger ids, or None."""
    if shape.ids.itemsize == 2:
        return None
    return f"{name} holds ids up to {2**16 - 1:,}; the tokenizer's largest is {shape.id_max:,}; choose another format"


def refuse_over_int32(shape: Shape, name: str) -> str | None:
    """Says why a format of int32 ids cannot hold larger ids, or None."""
    if shape.id_max <= INT32_MAX:
        return None
    return f"{name} holds ids up to {INT32_MAX:,}; the tokenizer's largest is {shape.id_max:,}; choose parquet or arrow"
