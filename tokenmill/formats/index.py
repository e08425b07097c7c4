"""index: which tokens make each packed sequence, in place of the tokens; the documents are in the other formats' files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format, Shape
from tokenmill.storage.atomic import naming
from tokenmill.storage.checked_parquet import read_table

PIECES = ("part", "row", "start", "n_tokens")
SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("sequence", *PIECES)])
"""A row for each piece of a document, in the order of the sequences. `sequence`: from 0 in each file. `part`, `row`: the file
part-NNNNN of the split in every other format, and the document's row in it. `start`, `n_tokens`: the tokens of that document."""
ITEMS = pa.schema(
    [pa.field(name, pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False) for name in PIECES]
)
"""The rows as items: one per sequence, with lists that have an entry for each segment."""

_GROUP_ROWS = 1 << 18


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}.parquet"
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
    path = folder / f"{stem}.parquet"
    try:
        table = read_table(path, partitioning=None).combine_chunks()
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "Run `tokenmill build --force`.") from None
    if not table.schema.equals(SCHEMA):
        raise ValidationError(
            path, f"expected the columns {', '.join(SCHEMA.names)}, each int64; found {table.schema.names}."
        )
    sequence = table["sequence"].to_numpy()
    steps = np.diff(sequence, prepend=-1)
    if (len(sequence) and not ((steps == 0) | (steps == 1)).all()) or (len(sequence) and sequence[0] != 0):
        raise ValidationError(f"{path}: sequence", "expected numbers from 0 that rise by 1; found others.")
    starts = np.flatnonzero(steps == 1)
    offsets = pa.array(np.append(starts, len(sequence)).astype(np.int32))
    columns = [
        pa.ListArray.from_arrays(offsets, table[name].combine_chunks(), type=field.type)
        for name, field in zip(PIECES, ITEMS, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=ITEMS)


INDEX_FORMAT = Format("index", (".parquet",), _write, _read, None, lambda shape, file_bytes: None)
"""Not one of `encode.formats`: `encode.pack.output: index` asks for it."""
