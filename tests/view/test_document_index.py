"""A document index that disagrees with itself is an error, not a search without an end."""

import io
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.errors import ValidationError
from tokenmill.features.view.document_index import DocumentIndex


def index_with_a_wrong_footer(path: Path) -> None:
    """Seven rows in groups of three, three and one. The footer says that the last group has five, and the file eleven."""
    table = pa.table({"id": pa.array(range(7)), "sha256": pa.array([b"x"] * 7)})
    pq.write_table(table, path, row_group_size=3)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    places = [[i for i in range(start, len(content) - 8) if content[i] == 2 * n] for n in (1, 7)]  # as Thrift writes n
    for of_group, of_file in product(*places):
        wrong = bytearray(content)
        wrong[of_group], wrong[of_file] = 2 * 5, 2 * 11
        try:
            found = pq.ParquetFile(io.BytesIO(wrong)).metadata
            sizes = [found.row_group(k).num_rows for k in range(found.num_row_groups)]
        except (OSError, ValueError, pa.ArrowException):
            continue
        if (found.num_rows, sizes) == (11, [3, 3, 5]):
            path.write_bytes(wrong)
            return
    raise AssertionError("the footer has no such numbers")


def test_a_group_with_fewer_rows_than_its_footer_says_is_an_error(tmp_path: Path) -> None:
    index_with_a_wrong_footer(tmp_path / "documents.parquet")
    index = DocumentIndex(tmp_path / "documents.parquet", 11)
    assert [row["id"] for row in index.rows(range(2, 7))] == [2, 3, 4, 5, 6]
    with pytest.raises(ValidationError, match="row group 2 has fewer rows than its footer says"):
        index.rows(range(5, 11))
