"""Sorted runs of counts are added up exactly, however many there are and however little memory."""

from collections import Counter as Tally
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.counts.spill import SCHEMA, Run, Runs, Sum, Totals, sum_of_runs
from tokenmill.counts.table import write_counts
from tokenmill.errors import CountsError

ROWS = st.dictionaries(st.text("ab", max_size=4).map(str.encode), st.integers(1, 3)).map(
    lambda rows: sorted(rows.items())
)


def batch(rows: list[tuple[bytes, int]]) -> pa.RecordBatch:
    return pa.record_batch([[key for key, _ in rows], [n for _, n in rows]], schema=SCHEMA)


def rows_of(total: Sum) -> list[tuple[bytes, int]]:
    return [(row["pretoken"], row["count"]) for one in total for row in one.to_pylist()]


@settings(deadline=None)
@given(st.lists(st.tuples(ROWS, st.integers(1, 3)), max_size=6), st.integers(1, 4))
def test_batches_of_any_length_add_up_and_rare_ones_are_dropped(
    runs: list[tuple[list[tuple[bytes, int]], int]], count_min: int
) -> None:
    expected: Tally[bytes] = Tally()
    for rows, _ in runs:
        expected.update(dict(rows))
    batches = [iter([batch(rows[at : at + n]) for at in range(0, len(rows), n)]) for rows, n in runs]
    total = Sum(batches, count_min=count_min)
    assert rows_of(total) == sorted((key, n) for key, n in expected.items() if n >= count_min)
    for totals, one in ((total.kept, lambda n: n >= count_min), (total.dropped, lambda n: n < count_min)):
        chosen = {key: n for key, n in expected.items() if one(n)}
        n_bytes = sum(len(key) * n for key, n in chosen.items())
        assert totals == Totals(len(chosen), sum(chosen.values()), n_bytes)


def test_many_runs_are_added_up_in_several_passes_and_rounded_once(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    expected: Tally[bytes] = Tally()
    for i in range(150):
        rows = sorted((str(i * j % 97).encode(), i + 1) for j in range(1, 60) if i * j % 97 < 60)
        rows = sorted(dict(rows).items())
        kept.write(i, batch(rows))
        kept.write(i, None)
        for key, n in rows:
            expected[key] += n * Fraction(1 + i % 2, 3)  # type: ignore[assignment]
    runs = [Run(run.path, run.batch_bytes, Fraction(1 + i % 2, 3)) for i, run in enumerate(kept.runs)]
    total = sum_of_runs(runs, kept.directory, memory_bytes=1 << 14)
    assert len(total.runs) <= 10
    assert rows_of(total) == sorted((key, int(n + Fraction(1, 2))) for key, n in expected.items())
    kept.close()
    assert not list(tmp_path.iterdir())


def test_a_run_can_be_a_file_of_counts(tmp_path: Path) -> None:
    rows = sorted((str(i).encode(), i + 1) for i in range(100_000))
    write_counts(pa.Table.from_batches([batch(rows)]), tmp_path / "a.parquet")
    runs = [Run.of_parquet(tmp_path / "a.parquet"), Run.of_parquet(tmp_path / "a.parquet", Fraction(1, 2))]
    assert runs[0].batch_bytes > 1 << 19
    assert rows_of(sum_of_runs(runs, tmp_path, 1 << 24)) == [(key, (3 * n + 1) // 2) for key, n in rows]


def test_a_damaged_file_of_counts_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CountsError, match=r"a.parquet: not readable as Parquet"):
        Run.of_parquet(path)


def test_rows_out_of_order_are_an_error() -> None:
    for batches in ([batch([(b"b", 1), (b"a", 1)])], [batch([(b"b", 1)]), batch([(b"a", 1)])]):
        with pytest.raises(CountsError, match='"a" stands after "b"'):
            list(Sum([iter(batches)]))
