"""Tables of counts of pre-tokens: adds them up, and reads and writes them as files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill.counts.spill import SCHEMA, Sum, damaged, open_parquet
from tokenmill.counts.weights import Weight, over_one_denominator, weight_of
from tokenmill.errors import CountsError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import naming


def merge(tables: Sequence[pa.Table], weights: Sequence[Weight] | None = None) -> pa.Table:
    """The sum of tables of counts, as one such table, sorted.

    `weights`: an exact factor for the counts of each table: an int, a Fraction, or a text such as "3/2". Each pre-token's sum is
    rounded once, at the end, to the nearest whole number, halves up; a sum that rounds to 0 is left out. Whole weights never
    need rounding: for 3/2 to 1 exactly, give 3 and 2.

    Raises CountsError for a wrong table or a sum beyond 64 bits, ValueError for wrong weights.

    >>> one = pa.table({"pretoken": [b"a"], "count": [2]}, schema=SCHEMA)
    >>> merge([one, one], weights=[1, "3/2"]).to_pydict()
    {'pretoken': [b'a'], 'count': [5]}
    """
    for table in tables:
        check_schema(table, "counts")
    fractions = [weight_of(weight) for weight in ([1] * len(tables) if weights is None else weights)]
    if len(fractions) != len(tables):
        raise ValueError(f"weights: found {len(fractions)}; expected one for each of {len(tables)} tables.")
    over_one_denominator(fractions)
    return pa.Table.from_batches(Sum([iter(_sorted(table).to_batches()) for table in tables], fractions), SCHEMA)


def write_counts(table: pa.Table, path: Path | str) -> None:
    """Writes sorted counts as Parquet, atomically. Equal counts give equal bytes, however they are chunked."""
    check_schema(table, "counts")
    with write_atomic(Path(path)) as partial:
        write_batches(Sum([iter(table.to_batches())]), partial)


def write_batches(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Writes the batches of `Counter.batches` or of a Sum as Parquet. It holds one batch at a time.

    Each batch becomes a row group. The rows alone decide where batches end, so they also decide the file's bytes.
    """
    with naming(path), parquet_writer(path) as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=batch.num_rows)


def parquet_writer(path: Path) -> Any:
    """A writer of a file of counts."""
    import pyarrow.parquet as pq

    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False, "write_statistics": False}
    return pq.ParquetWriter(path, SCHEMA, **options)


def read_counts(path: Path | str) -> pa.Table:
    """The counts in a file that `write_counts` made.

    Raises CountsError if the file cannot be read or has other columns, or if its pre-tokens are unsorted or repeated.
    """
    try:
        table = open_parquet(Path(path)).read()
    except (OSError, pa.ArrowException) as error:
        raise damaged(Path(path), error) from None
    check_schema(table, str(path))
    table = table.cast(SCHEMA)
    _check_rows(table, str(path))
    return table


def check_schema(table: pa.Table, place: str) -> None:
    """Raises CountsError unless the columns are pretoken (binary) and count (uint64), without nulls."""
    if not isinstance(table, pa.Table):
        raise TypeError(f"expected a pyarrow.Table of counts; found {type(table).__name__}.")
    names = table.schema.names
    if names != SCHEMA.names:
        raise CountsError(place, f"found the columns {names}, expected {SCHEMA.names}.", "Count again.")
    allowed = {"pretoken": (pa.binary(), pa.large_binary()), "count": (pa.uint64(),)}
    for name, kinds in allowed.items():
        if table.schema.field(name).type not in kinds:
            found = table.schema.field(name).type
            raise CountsError(place, f'column "{name}" is {found}, expected {kinds[0]}.', "Count again.")
        if table[name].null_count:
            raise CountsError(
                place, f'column "{name}" has {table[name].null_count} nulls, expected none.', "Count again."
            )


def _check_rows(table: pa.Table, place: str) -> None:
    import pyarrow.compute as pc

    pretokens, n_rows = table["pretoken"], table.num_rows
    wrong = pc.index(pc.greater_equal(pretokens.slice(0, max(n_rows - 1, 0)), pretokens.slice(1)), True).as_py()
    if wrong >= 0:
        one, other = pretokens[wrong].as_py(), pretokens[wrong + 1].as_py()
        raise CountsError(
            f"{place}: row {wrong + 1}",
            f"pre-token {other!r:.80} stands after {one!r:.80}; expected them sorted, each once.",
            "Delete the file and run `tokenmill build`.",
        )
    zero = pc.index(table["count"], pa.scalar(0, pa.uint64())).as_py()
    if zero >= 0:
        raise CountsError(
            f"{place}: row {zero}", "count is 0, expected 1 or more.", "Delete the file and run `tokenmill build`."
        )


def _sorted(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    pretokens = table["pretoken"]
    is_after = pc.greater(pretokens.slice(0, max(len(pretokens) - 1, 0)), pretokens.slice(1))
    if not pc.any(is_after).as_py():
        return table
    wide = pa.schema([pa.field("pretoken", pa.large_binary(), nullable=False), SCHEMA.field("count")])
    return table.cast(wide).sort_by("pretoken")
