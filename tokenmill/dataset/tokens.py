"""The rows of the token dataset: one per document, with the columns `id`, `input_ids`, `n_bytes`."""

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.reader import Batch


def id_type(id_max: int) -> pa.DataType:
    """The narrowest type for token ids: uint16 if the largest id fits, else uint32."""
    return pa.uint16() if id_max < 2**16 else pa.uint32()


def schema(ids: pa.DataType, has_names: bool) -> pa.Schema:
    """`id`: string; or int64, the row in the shard from 0, if documents have no names. `input_ids`: list of `ids`. `n_bytes`:
    int64, the bytes of the document's text in UTF-8."""
    return pa.schema(
        [
            pa.field("id", pa.string() if has_names else pa.int64(), nullable=False),
            pa.field("input_ids", pa.list_(pa.field("element", ids, nullable=False)), nullable=False),
            pa.field("n_bytes", pa.int64(), nullable=False),
        ]
    )


def rows(batch: Batch, input_ids: pa.LargeListArray, shape: pa.Schema) -> pa.RecordBatch:
    """The dataset's rows for a batch of documents and their token ids. Raises ArrowInvalid for an id too large for its type."""
    if batch.ids is None:
        names = batch.rows()
    else:
        names = batch.ids.cast(pa.string())
    n_bytes = pc.binary_length(batch.texts).cast(pa.int64())
    return pa.RecordBatch.from_arrays([names, input_ids.cast(shape.field("input_ids").type), n_bytes], schema=shape)
