"""The Parquet files of token ids are those that pyarrow and polars read, value by value."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import schema
from tokenmill_reader.parquet_pages import pages_of

TYPES = {pa.uint16(): 2**16 - 1, pa.uint32(): 2**32 - 1}
IDS = pa.uint16()


def batch_of(lists: list[Any], type: pa.DataType = IDS, has_mask: bool = False) -> pa.RecordBatch:
    shape = schema(type, has_names=True, has_mask=has_mask)
    names = pa.array([f"document {i}" for i in range(len(lists))], pa.string())
    columns = [names, pa.array(lists, shape.field("input_ids").type), pa.array(range(len(lists)), pa.int64())]
    if has_mask:
        masks = [[-1 if id % 2 else 1 for id in ids] for ids in lists]
        columns += [pa.array(masks, shape.field("loss_mask").type), pa.array([b"d" * 32] * len(lists), pa.binary(32))]
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def written(path: Path, batches: list[pa.RecordBatch], shape: pa.Schema) -> bytes:
    with write_tokens(path, shape) as write:
        for batch in batches:
            write(batch)
    return path.read_bytes()


@st.composite
def groups(draw: st.DrawFn) -> tuple[pa.DataType, bool, list[list[list[int]]]]:
    type = draw(st.sampled_from(list(TYPES)))
    lists = st.lists(st.lists(st.integers(0, TYPES[type]), max_size=300), max_size=20)
    return type, draw(st.booleans()), draw(st.lists(lists, max_size=3))


@given(groups())
def test_lists_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[pa.DataType, bool, list[list[list[int]]]]
) -> None:
    type, has_mask, lists = made
    path = tmp_path_factory.getbasetemp() / "lists.parquet"
    batches = [batch_of(some, type, has_mask) for some in lists]
    shape = batch_of([], type, has_mask).schema
    file = written(path, batches, shape)
    expected = pa.Table.from_batches(batches, shape)
    found = pa.Table.from_batches(read_tokens(path), shape)
    found.validate(full=True)
    assert found.equals(expected)
    assert pq.read_schema(path).equals(shape)
    assert pl.read_parquet(path)["input_ids"].to_list() == expected["input_ids"].to_pylist()
    assert pq.ParquetFile(path).num_row_groups == (len(batches) > 0)
    assert written(path, batches, shape) == file


@pytest.mark.parametrize(
    "lengths", [(1 << 18,), ((1 << 18) + 1, 0, 3), (5, 3 << 18, 5), (1,) * 300_000, (0,) * 300_000]
)
def test_long_columns_are_read_back(lengths: tuple[int, ...], tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 2**16, sum(lengths), np.uint16)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    shape = schema(pa.uint16(), has_names=False)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=shape.field("input_ids").type)
    rows = pa.array(range(len(lengths)), pa.int64())
    batch = pa.RecordBatch.from_arrays([rows, lists, rows], schema=shape)
    written(tmp_path / "a.parquet", [batch], shape)
    assert pq.read_table(tmp_path / "a.parquet").equals(pa.Table.from_batches([batch]))
    assert pl.read_parquet(tmp_path / "a.parquet")["input_ids"].to_arrow().values.equals(pa.array(ids))


def test_pages_are_of_about_a_megabyte(tmp_path: Path) -> None:
    batch = batch_of([[7] * 1000] * 1000)
    written(tmp_path / "a.parquet", [batch], batch.schema)
    chunk = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).column(1)
    with (tmp_path / "a.parquet").open("rb") as file:
        n_values = [page.n_values for page in pages_of(file, chunk)]
    assert sum(n_values) == 1_000_000
    assert max(n_values) <= 2 << 18


def test_a_slice_is_written_without_the_rest(tmp_path: Path) -> None:
    batch = batch_of([[1, 2], [3], [], [4, 5, 6]])
    shape = batch.schema
    file = written(tmp_path / "a.parquet", [batch.slice(1, 2)], shape)
    assert file == written(tmp_path / "b.parquet", [batch_of([[1, 2], [3], []]).slice(1)], shape)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == batch.slice(1, 2).to_pylist()


def test_ids_are_split_into_streams_of_bytes_and_only_names_have_statistics(tmp_path: Path) -> None:
    batch = batch_of([[1, 2], [3]], has_mask=True)
    written(tmp_path / "a.parquet", [batch], batch.schema)
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "BYTE_STREAM_SPLIT" in columns["input_ids.list.element"].encodings
    assert "BYTE_STREAM_SPLIT" in columns["loss_mask.list.element"].encodings
    assert [name for name, column in columns.items() if column.is_stats_set] == ["id"]
    assert (columns["id"].statistics.min, columns["id"].statistics.max) == ("document 0", "document 1")
