"""A damaged footer that pyarrow would end the process over is an error."""

import io
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.thrift import read_struct, structs_in

TABLE = pa.table({"n": pa.array([1, 2], pa.int64()), "ids": pa.array([[1], [2, 3]], pa.list_(pa.uint16()))})


def written(path: Path) -> bytes:
    """The bytes of a file with two row groups, whose size statistics have the histograms of levels alone."""
    pq.write_table(TABLE, path, row_group_size=1)
    return path.read_bytes()


def footer(content: bytes) -> bytes:
    n_bytes = int.from_bytes(content[-8:-4], "little")
    return content[-8 - n_bytes : -8]


def test_row_groups_are_read_one_by_one(tmp_path: Path) -> None:
    data = footer(written(tmp_path / "a.parquet"))
    assert list(structs_in(io.BytesIO(data), 4)) == read_struct(io.BytesIO(data))[4]
    assert list(structs_in(io.BytesIO(data), 99)) == []
    with pytest.raises(EOFError):
        list(structs_in(io.BytesIO(data[: len(data) // 2]), 4))


@pytest.mark.parametrize("is_path", [True, False])
def test_a_histogram_of_another_length_than_its_column_has_is_an_error(tmp_path: Path, is_path: bool) -> None:
    path = tmp_path / "a.parquet"
    content = written(path)
    assert parquet_file(path).read().equals(TABLE)
    # Field 2, a list of two numbers, becomes field 3, whose list has four.
    damaged = re.sub(rb"\x29(\x26..\x19\x46)", rb"9\1", content, count=1, flags=re.DOTALL)
    assert damaged != content
    path.write_bytes(damaged)
    with pytest.raises(pa.ArrowInvalid, match="the size statistics in the footer are damaged"):
        parquet_file(path if is_path else io.BytesIO(damaged))
