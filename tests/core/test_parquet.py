"""The Parquet files of the core are those that pyarrow and polars read, value by value."""

import io
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill._core import ParquetRows, interrupt
from tokenmill.formats.tokens import list_of

PAGE_VALUES = 1 << 18
TYPES = {
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
}
IDS = pa.uint16()
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), list_of("input_ids", IDS)])


def written(batches: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> bytes:
    rows = ParquetRows(schema, ["id"])
    return b"".join([*map(rows.row_group, batches), rows.finish()])


def batch_of(lists: list[Any], type: pa.DataType = IDS) -> pa.RecordBatch:
    schema = pa.schema([SCHEMA.field("id"), list_of("input_ids", type)])
    names = pa.array([f"document {i}" for i in range(len(lists))], pa.string())
    return pa.RecordBatch.from_arrays([names, pa.array(lists, schema.field("input_ids").type)], schema=schema)


@st.composite
def groups(draw: st.DrawFn) -> tuple[pa.DataType, list[list[list[int]]]]:
    type = draw(st.sampled_from(list(TYPES)))
    low, high = TYPES[type]
    lists = st.lists(st.lists(st.integers(low, high), max_size=300), max_size=20)
    return type, draw(st.lists(lists, max_size=3))


@given(groups())
def test_lists_are_read_back(made: tuple[pa.DataType, list[list[list[int]]]]) -> None:
    type, lists = made
    batches = [batch_of(some, type) for some in lists]
    schema = batch_of([], type).schema
    file = written(batches, schema)
    expected = pa.Table.from_batches(batches, schema)
    found = pq.read_table(io.BytesIO(file))
    found.validate(full=True)
    assert found.equals(expected)
    assert found.schema.equals(schema)
    assert pl.read_parquet(io.BytesIO(file))["input_ids"].to_list() == expected["input_ids"].to_pylist()
    assert pq.ParquetFile(io.BytesIO(file)).num_row_groups == len(lists)
    assert written(batches, schema) == file


@pytest.mark.parametrize(
    "lengths", [(PAGE_VALUES,), (PAGE_VALUES + 1, 0, 3), (5, 3 * PAGE_VALUES, 5), (1,) * 300_000, (0,) * 300_000]
)
def test_long_columns_have_several_pages(lengths: tuple[int, ...]) -> None:
    ids = np.random.default_rng(0).integers(0, 2**16, sum(lengths), np.uint16)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=SCHEMA.field("input_ids").type)
    names = pa.array(["name"] * len(lengths))
    batch = pa.RecordBatch.from_arrays([names, lists], schema=SCHEMA)
    file = written([batch])
    assert pq.read_table(io.BytesIO(file)).equals(pa.Table.from_batches([batch]))
    assert pl.read_parquet(io.BytesIO(file))["input_ids"].to_arrow().values.equals(pa.array(ids))


def test_a_slice_is_written_without_the_rest() -> None:
    batch = batch_of([[1, 2], [3], [], [4, 5, 6]])
    assert written([batch.slice(1, 2)]) == written([batch_of([[1, 2], [3], []]).slice(1)])
    assert pq.read_table(io.BytesIO(written([batch.slice(1, 2)]))).to_pylist() == batch.slice(1, 2).to_pylist()


def test_columns_that_are_no_lists_are_kept() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            list_of("loss_mask", pa.int8()),
            pa.field("sha256", pa.binary(32), nullable=False),
        ]
    )
    columns = [
        pa.array([7, 9]),
        pa.array([[1, 0], []], schema.field(1).type),
        pa.array([b"a" * 32, b"b" * 32], pa.binary(32)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    file = pq.ParquetFile(io.BytesIO(written([batch], schema)))
    assert file.read().equals(pa.Table.from_batches([batch]))
    statistics = file.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == (7, 9)


def test_a_batch_of_another_schema_is_refused_and_the_file_goes_on() -> None:
    rows = ParquetRows(SCHEMA, [])
    first = rows.row_group(batch_of([[1]]))
    with pytest.raises(TypeError, match="expected a batch with the schema of the file"):
        rows.row_group(batch_of([[1]], pa.uint32()))
    file = first + rows.finish()
    assert pq.read_table(io.BytesIO(file)).equals(pa.Table.from_batches([batch_of([[1]])]))
    with pytest.raises(ValueError, match="the file is finished"):
        rows.finish()
    with pytest.raises(ValueError, match="the file is finished"):
        rows.row_group(batch_of([[1]]))


def test_a_null_that_the_schema_excludes_is_refused() -> None:
    values = pa.array([1, None, 3], pa.uint16())
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 3], pa.int32()), values, type=SCHEMA.field(1).type)
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), lists], schema=SCHEMA)
    rows = ParquetRows(SCHEMA, [])
    with pytest.raises(TypeError, match="expected no null"):
        rows.row_group(batch)
    rows.row_group(batch.slice(1))


def test_a_file_that_was_interrupted_cannot_be_finished() -> None:
    rows = ParquetRows(SCHEMA, [])
    interrupt(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            rows.row_group(batch_of([[1]]))
    finally:
        interrupt(False)
    with pytest.raises(ValueError, match="could not be written"):
        rows.finish()


@pytest.mark.parametrize("lists", [[[1, None]], [None, [1]], [[1], [2, 3]]])
def test_lists_that_can_be_null_are_kept(lists: list[Any]) -> None:
    schema = pa.schema([pa.field("input_ids", pa.list_(pa.uint16()))])
    batch = pa.RecordBatch.from_arrays([pa.array(lists, schema.field(0).type)], schema=schema)
    assert pq.read_table(io.BytesIO(written([batch], schema)))["input_ids"].to_pylist() == lists
