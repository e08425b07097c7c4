"""A table is a lazy frame whose rows are numbered, and whose damage is found."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.report.table_frame import scan_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "documents.parquet"
    rows = pa.table({"n_tokens": list(range(0, 100, 2)), "file": ["a.parquet"] * 20 + ["b.parquet"] * 30})
    pq.write_table(rows, path, row_group_size=7, write_page_checksum=True)
    return path


@pytest.mark.parametrize("engine", ["streaming", "in-memory"])
def test_a_query_gives_what_it_gives_of_the_whole_table(table: Path, engine: pl._typing.EngineType) -> None:
    whole = pl.read_parquet(table).with_columns(number=pl.int_range(50)).lazy()
    for query in (
        lambda rows: rows,
        lambda rows: rows.head(9),
        lambda rows: rows.slice(5, 8).select("number"),
        lambda rows: rows.tail(3).select("file"),
        lambda rows: rows.filter(pl.col("n_tokens") > 50).select("number").head(2),
        lambda rows: rows.group_by("file").agg(pl.sum("n_tokens"), pl.min("number")).sort("file"),
    ):
        assert query(scan_table(table)).collect(engine=engine).equals(query(whole).collect())


def test_damage_is_an_error_while_a_query_is_collected(table: Path) -> None:
    content = bytearray(table.read_bytes())
    chunk = pq.read_metadata(table).row_group(3).column(0)
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    table.write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum"):
        scan_table(table).select("n_tokens").collect(engine="streaming")
