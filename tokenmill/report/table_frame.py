"""Tables in Parquet files as lazy frames of polars, which aggregates them without holding them."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source

from tokenmill_reader.checked_parquet import parquet_file


def scan_table(path: Path) -> pl.LazyFrame:
    """The rows of a table, and `number`, int64: that of the row, which in a document index is that of the document, from 0.

    pyarrow reads the columns that a query needs, batch by batch, because polars does not check the checksums of pages. A query
    counts documents in int64, because polars's own counts end at 2^32. Raises OSError and pyarrow.ArrowException, also while a
    query is collected."""

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows_max: int | None, _batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        with parquet_file(path) as file:
            wanted = list(schema) if columns is None else columns
            n_rows, n_rows_max = 0, file.metadata.num_rows if n_rows_max is None else n_rows_max
            for batch in file.iter_batches(columns=[name for name in wanted if name != "number"]):
                rows = pl.DataFrame(batch.slice(0, n_rows_max - n_rows))
                rows = rows.with_columns(number=pl.int_range(n_rows, n_rows + len(rows))).select(wanted)
                n_rows += len(rows)
                yield rows if predicate is None else rows.filter(predicate)

    with parquet_file(path) as file:
        schema = pl.DataFrame(file.schema_arrow.empty_table()).schema | {"number": pl.Int64()}
    return register_io_source(batches, schema=schema, is_pure=True)
