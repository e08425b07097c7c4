"""megatron_sft_parquet: packed conversations as Parquet for Megatron-Bridge, `.idx.parquet`.

The layout is that of `write_packed_parquet` and `GPTSFTPackedParquetDataset` in src/megatron/bridge/data/packing/parquet.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checking
from tokenmill.formats.sft_items import at_inputs, at_labels, check_ends, columns, refusal
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.formats.columns import check_beside, list_of, list_values, named
from tokenmill_reader.formats.items import REBUILD, Shape
from tokenmill_reader.regular_files import naming

_SUFFIX = ".idx.parquet"
_COLUMNS = pa.schema(
    [list_of("input_ids", pa.int32()), list_of("loss_mask", pa.int8()), list_of("seq_start_id", pa.int32())]
)
_GROUP_ROWS = 500  # as the tool writes; its reader decodes and holds a row group for each sequence that it reads
_GROUP_VALUES_MAX = 1 << 23  # ids of a row group: fewer rows where they are longer than 16,777 ids


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_SUFFIX}"
    with (
        naming(path),
        pq.ParquetWriter(
            path,
            _COLUMNS,
            compression="zstd",
            use_dictionary=["loss_mask.list.element"],
            column_encoding={"input_ids.list.element": "BYTE_STREAM_SPLIT"},
            write_statistics=False,
        ) as writer,
        even_batches(writer.write_batch, "input_ids", _GROUP_ROWS, _GROUP_VALUES_MAX) as put,
        new_sidecar(folder, stem, shape, with_starts=False) as add_sources,
    ):

        def add(batch: pa.RecordBatch) -> None:
            mask = _with_values(batch["loss_mask"], pa.array(at_inputs(batch["loss_mask"].flatten().to_numpy())))
            ids = batch["input_ids"].cast(_COLUMNS.field("input_ids").type)
            put(pa.RecordBatch.from_arrays([ids, mask, batch["starts"]], schema=_COLUMNS))
            add_sources(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{_SUFFIX}"
    n_items = 0
    try:
        with parquet_file(path) as file:
            if not file.schema_arrow.equals(_COLUMNS):
                raise ValidationError(
                    path, f"expected the columns {named(_COLUMNS)}; found {named(file.schema_arrow)}.", REBUILD
                )
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    batch.validate(full=True)
                    found = _items(batch, shape, path, n_items)
                    check_items(found, shape, path, n_items)
                    yield found.cast(columns(shape))
                    n_items += batch.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name in it is not UTF-8
        raise ValidationError(path, f"cannot be read: {error}.", REBUILD) from None


def _items(batch: pa.RecordBatch, shape: Shape, path: Path, n_before: int) -> pa.RecordBatch:
    """The rows as items, whose ids are still int32."""
    offsets = list_values(batch["input_ids"])[1]
    check_beside(batch, offsets, path, n_before)
    found = list_values(batch["loss_mask"])[0]
    check_ends(found[: offsets[-1]], offsets[np.append(True, np.diff(offsets) > 0)], path, n_before)
    mask = _with_values(batch["loss_mask"], pa.array(at_labels(found)))
    return pa.RecordBatch.from_arrays(
        [batch["input_ids"], batch["seq_start_id"], mask],
        schema=columns(shape).set(0, _COLUMNS.field("input_ids")),
    )


def _with_values(lists: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """The lists with other values, as many as they have."""
    offsets = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=lists.type)


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return refusal(shape, "megatron_sft_parquet")


MEGATRON_SFT_PARQUET = Format("megatron_sft_parquet", (_SUFFIX,), _write, _read, None, _refusal)
