"""Parquet files that pyarrow would end the process over are errors, as is any other damage of their numbers."""

import io
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.changes import parquet_numbers, with_number
from tokenmill.config.sources import Reading
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.errors import CorpusError
from tokenmill_reader.checked_parquet import parquet_file, read_table
from tokenmill_reader.errors import ValidationError
from tokenmill_reader.formats.index import read_index_file
from tokenmill_reader.formats.sidecar import read_source_ids_of_parquet
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
    with pytest.raises(pa.ArrowInvalid, match="or the size statistics in the footer are damaged"):
        parquet_file(path if is_path else io.BytesIO(damaged))


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_any_number_in_a_footer_or_a_page_header_may_be_another(tmp_path: Path, encoding: str) -> None:
    texts = pa.table({"text": ["the cat"] * 9 + ["sat"], "id": [f"{i}" for i in range(10)]})
    kind: dict[str, Any] = {} if encoding == "dictionary" else {"use_dictionary": False, "column_encoding": encoding}
    pq.write_table(texts, file := io.BytesIO(), compression="zstd", store_schema=False, **kind)
    content = file.getvalue()
    path = tmp_path / "a.parquet"
    for place, number in product(parquet_numbers(content), (0, 2**31 - 1, 2**33 + 1, 2**64 - 2)):
        path.write_bytes(with_number(content, place, number))
        (shard,) = find_shards(tmp_path, path.name)
        with suppress(CorpusError):
            for batch in read_batches(shard, Reading("text", "id", None), limits=Limits(1 << 22, 1 << 24)):
                batch.texts.validate(full=True)
        for read in (read_table, lambda path: parquet_file(path).read()):
            with suppress(OSError, ValueError, pa.ArrowException):
                read(path)


def many_in_few_bytes(path: Path, kind: str) -> Path:
    """A small file with 20 million equal values, as an index of packed sequences or as the sources of documents."""
    n = 20_000_000
    if kind == "index":
        column: pa.Array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([0]))
    else:
        values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([0], pa.int32()))
        column = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), values)
    pq.write_table(pa.table({kind: column}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 100_000
    return path


@pytest.mark.parametrize(("kind", "read"), [("index", read_index_file), ("source_ids", read_source_ids_of_parquet)])
def test_more_values_than_a_file_of_that_size_has_are_not_loaded(
    tmp_path: Path, kind: str, read: Callable[[Path], object]
) -> None:
    with pytest.raises(ValidationError, match=r"values in .* bytes, and they were not loaded"):
        read(many_in_few_bytes(tmp_path / "x.parquet", kind))
