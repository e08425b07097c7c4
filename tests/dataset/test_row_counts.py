"""A file of a dataset with more ids than its manifest says is refused before they are decoded."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.errors import ValidationError
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import schema
from tokenmill_reader.formats.parquet import check_counts
from tokenmill_reader.open_parts import Place
from tokenmill_reader.parquet_parts import ParquetParts

N_IDS = 100_000_000


def bomb(path: Path) -> None:
    """A row of 100 million equal ids, in a file of some hundred bytes."""
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(N_IDS, np.int8)), pa.array([7], pa.uint16()))
    lists = pa.ListArray.from_arrays(pa.array([0, N_IDS], pa.int32()), ids)
    columns = {"id": ["a"], "input_ids": lists, "n_bytes": pa.array([3], pa.uint32())}
    pq.write_table(pa.table(columns), path, store_schema=False, compression="zstd")


@pytest.mark.slow
def test_more_ids_than_the_manifest_says_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    bomb(path)
    assert path.stat().st_size < 10_000
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    with pytest.raises(ValidationError, match=r"expected 1 documents with 30 ids, .* found 1 with 100,000,000"):
        check_counts(path, 1, 30)
    with pytest.raises(ValidationError, match=r"expected 1 documents with 30 ids, .* found 1 with 100,000,000"):
        ParquetParts([Place(tmp_path, "part", 1, 30)]).open(0)
    assert pool.bytes_allocated() <= before + 1_000_000


def test_right_files_pass_with_empty_documents_too(tmp_path: Path) -> None:
    shape = schema(pa.uint16(), True, False)
    columns = [pa.array(["a", "b", "c"]), pa.array([[1, 2], [], [3]]), pa.array([1, 0, 2])]
    rows = pa.RecordBatch.from_arrays(
        [one.cast(field.type) for one, field in zip(columns, shape, strict=True)], schema=shape
    )
    with write_tokens(tmp_path / "a.parquet", shape) as add:
        add(rows)
    check_counts(tmp_path / "a.parquet", 3, 3)
