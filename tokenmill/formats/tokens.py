"""The rows of the token dataset: one per document, with the columns `id`, `input_ids`, `n_bytes`, and more for conversations."""

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.reader import Batch, digests_of


def id_type(id_max: int) -> pa.DataType:
    """The narrowest type for token ids: uint16 if the largest id fits, else uint32."""
    return pa.uint16() if id_max < 2**16 else pa.uint32()


def list_of(name: str, type: pa.DataType) -> pa.Field:
    """A column of lists without nulls."""
    return pa.field(name, pa.list_(pa.field("element", type, nullable=False)), nullable=False)


def schema(ids: pa.DataType, has_names: bool, has_mask: bool = False) -> pa.Schema:
    """`id`: string; or int64, the row in the shard from 0, if documents have no names. `input_ids`: list of `ids`. `n_bytes`:
    int64, the bytes of the document's text in UTF-8.

    With `has_mask`, for conversations: `loss_mask`, a list of int8 as long as `input_ids`, 1 where the token is to be learned and
    else 0; and `sha256`, 32 bytes, of the conversation, which with `turns: each` all samples of it have. The text is then the one
    that the template made of it.
    """
    fields = [
        pa.field("id", pa.string() if has_names else pa.int64(), nullable=False),
        list_of("input_ids", ids),
        pa.field("n_bytes", pa.int64(), nullable=False),
    ]
    if has_mask:
        fields += [list_of("loss_mask", pa.int8()), pa.field("sha256", pa.binary(32), nullable=False)]
    return pa.schema(fields)


def rows(
    batch: Batch, input_ids: pa.LargeListArray, shape: pa.Schema, loss_mask: pa.LargeListArray | None = None
) -> pa.RecordBatch:
    """The dataset's rows for a batch of documents and their token ids. Raises ArrowInvalid for an id too large for its type.

    `loss_mask`: the conversations' mask; `batch.texts` are then the rendered texts. None for texts.
    """
    if batch.ids is None:
        names = batch.rows()
    else:
        names = batch.ids.cast(pa.string())
    n_bytes = pc.binary_length(batch.texts).cast(pa.int64())
    columns = [names, input_ids.cast(shape.field("input_ids").type), n_bytes]
    if loss_mask is not None:
        columns += [loss_mask.cast(shape.field("loss_mask").type), digests_of(batch)]
    return pa.RecordBatch.from_arrays(columns, schema=shape)
