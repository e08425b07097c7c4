"""The items of a file set as columns of Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.items import REBUILD, Flat, Lists, Shape

if TYPE_CHECKING:
    import numpy.typing as npt

SOURCE_IDS = "source_ids"
_BESIDE_IDS = ("loss_mask", "labels", "position_ids")  # lists with a value for each id


def list_of(name: str, type: pa.DataType) -> pa.Field:
    """A column of lists without nulls."""
    return pa.field(name, pa.list_(pa.field("element", type, nullable=False)), nullable=False)


def id_type_of(shape: Shape) -> pa.DataType:
    """The Arrow type of the token ids: uint16 or uint32."""
    return pa.from_numpy_dtype(shape.ids)


def schema_of(shape: Shape) -> pa.Schema:
    """The columns of the items.

    Documents: `id` string, or int64 for the row; `input_ids` list of ids; `n_bytes` int64, of the text in UTF-8; `shard`
    string, the input file; `row` int64, the position in that file from 0. Sequences: `input_ids`; `starts` list of int32,
    the position in the sequence of the first token of each document or part of one, from 0; and with labels, what trainers
    read beside the ids: `labels` list of int32, the ids, with -100 where nothing is to be learned; `position_ids` list of
    int32, the position of each token behind the last start; `seq_lengths` list of int32, the tokens from each start to the
    next one or to the end. Of conversations, documents and sequences also have `loss_mask` list of int8: 1 where the token is
    to be learned, else 0. In sequences it is 0 at each start, since what comes before a token there is not its own. Where
    sources are mixed, there is `source_ids` list of int32: for each start, the number of the source that the document is of, from
    0 in the order of the manifest; a document has one.
    """
    ids, mask = list_of("input_ids", id_type_of(shape)), [list_of("loss_mask", pa.int8())] * shape.has_mask
    sources = [list_of(SOURCE_IDS, pa.int32())] * shape.has_sources
    if shape.length is None:
        return pa.schema(
            [
                pa.field("id", pa.string() if shape.has_names else pa.int64(), nullable=False),
                ids,
                pa.field("n_bytes", pa.int64(), nullable=False),
                pa.field("shard", pa.string(), nullable=False),
                pa.field("row", pa.int64(), nullable=False),
                *mask,
                *sources,
            ]
        )
    labels = [list_of(name, pa.int32()) for name in ("labels", "position_ids", "seq_lengths") if shape.has_labels]
    return pa.schema([ids, list_of("starts", pa.int32()), *sources, *mask, *labels])


def columns(shape: Shape) -> pa.Schema:
    """The columns that a table format holds: those of the shape, without the documents' `shard` and `row`."""
    found = schema_of(shape)
    if shape.length is not None:
        return found
    return pa.schema([field for field in found if field.name not in ("shard", "row")])


def named(columns: pa.Schema) -> str:
    """Lists columns with their types, for a message."""
    return ", ".join(f"{field.name} ({field.type})" for field in columns)


def list_values(lists: pa.ListArray) -> Lists:
    """The lists of a column, whose values are not copied."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    return Lists(values.to_numpy(), offsets - offsets[0])


def flat_of(batch: pa.RecordBatch) -> Flat:
    """The ids of a batch as one array that shares its memory, with starts, labels and mask if it has them."""
    ids, offsets = list_values(batch.column("input_ids"))
    names = batch.schema.names
    labels, mask = (list_values(batch.column(name))[0] if name in names else None for name in ("labels", "loss_mask"))
    starts = list_values(batch.column("starts")) if "starts" in names else None
    return Flat(ids, offsets, starts, labels, mask)


def check_beside(
    batch: pa.RecordBatch, offsets: npt.NDArray[np.int64], place: Path, n_before: int = 0, fix: str = REBUILD
) -> None:
    """Raises ValidationError for labels or a mask of another length than their item's ids, and for a mask with other values than 0
    and 1. `offsets`: where the ids of each item begin, with the end of the last."""
    for name in _BESIDE_IDS:
        if name not in batch.schema.names:
            continue
        values, own = list_values(batch.column(name))
        if not np.array_equal(own, offsets):
            row = int(np.argmax(np.diff(own) != np.diff(offsets)))
            expected, n_found = np.diff(offsets)[row], np.diff(own)[row]
            raise ValidationError(
                place,
                f"item {n_before + row:,}: expected {expected:,} values of {name}, one for each id; found {n_found:,}.",
                fix,
            )
        if name == "loss_mask" and values.size and (values.view(np.uint8) > 1).any():
            position = int(np.argmax(values.view(np.uint8) > 1))
            row = int(np.searchsorted(offsets, position, side="right")) - 1
            raise ValidationError(
                place, f"item {n_before + row:,}: loss_mask: expected 0 or 1; found {values[position]}.", fix
            )
