"""index: which tokens make each packed sequence, in place of the tokens; the documents are in the other formats' files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill_reader.formats.index import PIECES, SCHEMA, read_index_file
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.formats.table import INDEX_NAME, PARQUET_SUFFIX
from tokenmill_reader.regular_files import naming

ITEMS = pa.schema(
    [pa.field(name, pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False) for name in PIECES]
)
"""The rows as items: one per sequence, with lists that have an entry for each segment."""

_GROUP_ROWS = 1 << 18


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{PARQUET_SUFFIX}"
    n_sequences = 0
    with (
        naming(path),
        pq.ParquetWriter(
            path,
            SCHEMA,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(SCHEMA.names, "DELTA_BINARY_PACKED"),
        ) as writer,
        even_batches(writer.write_batch, None, _GROUP_ROWS, 0) as put,
    ):

        def add(batch: pa.RecordBatch) -> None:
            nonlocal n_sequences
            lengths = pc.list_value_length(batch["part"]).to_numpy()
            sequence = np.repeat(np.arange(n_sequences, n_sequences + len(lengths)), lengths)
            put(pa.record_batch([sequence, *(batch[name].flatten() for name in PIECES)], schema=SCHEMA))
            n_sequences += len(lengths)

        yield add


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    bounds, columns = read_index_file(folder / f"{stem}{PARQUET_SUFFIX}")
    offsets = pa.array(bounds.astype(np.int32))
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type)
        for values, field in zip(columns, ITEMS, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(lists, schema=ITEMS)


INDEX_FORMAT = Format(INDEX_NAME, (PARQUET_SUFFIX,), _write, _read, None, lambda shape, file_bytes: None, is_table=True)
"""Not one of `encode.formats`: `encode.pack.output: index` asks for it."""
