"""Counts are divided by a fixed hash of the pre-token; the partitions have all rows, each once, and are about equally large."""

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHARED
from tokenmill import Counter
from tokenmill.counts import partitions
from tokenmill.counts.partitions import partition_name, partitions_of, write_partitions
from tokenmill.counts.spill import SCHEMA, Run, Sum
from tokenmill.counts.table import read_counts, write_batches

PRETOKENS = st.sets(st.text("ab\0é", max_size=5).map(str.encode) | st.sampled_from([b"a" * 63, b"a" * 64, b"a" * 99]))


def batch(pretokens: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pretokens, list(range(1, len(pretokens) + 1))], schema=SCHEMA)


@given(st.lists(st.binary(max_size=80)), st.integers(1, 4096), st.integers(0, 3))
def test_the_partition_is_the_one_that_is_written_down(pretokens: list[bytes], n: int, start: int) -> None:
    array = pa.array(pretokens, pa.binary()).slice(start)
    assert partitions_of(array, n).tolist() == [zlib.crc32(one) * n >> 32 for one in pretokens[start:]]


@pytest.mark.parametrize(("held_bytes_max", "n"), [(16 << 20, 1), (16 << 20, 5), (1, 5), (1, 130)])
def test_partitions_have_all_rows_sorted_and_add_up_to_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes_max: int, n: int
) -> None:
    monkeypatch.setattr(partitions, "_HELD_BYTES_MAX", held_bytes_max)
    batches = [batch(sorted(f"{i:02}{j}".encode() for j in range(40))) for i in range(20)]
    whole = tmp_path / "whole.parquet"
    write_batches(batches, whole)
    write_partitions(Run.of_parquet(whole), tmp_path, n)
    paths = [tmp_path / partition_name(i) for i in range(n)]
    assert sorted(tmp_path.iterdir()) == sorted([whole, *paths])
    for i, path in enumerate(paths):
        assert set(partitions_of(read_counts(path)["pretoken"].combine_chunks(), n).tolist()) <= {i}
    total = pa.Table.from_batches(Sum([Run.of_parquet(path).batches() for path in paths]), SCHEMA)
    assert total.equals(read_counts(whole))


@given(PRETOKENS, st.integers(1, 7))
def test_equal_pretokens_share_a_partition_wherever_they_stand(pretokens: set[bytes], n: int) -> None:
    one, other = sorted(pretokens), sorted(pretokens, reverse=True)
    places = [dict(zip(rows, partitions_of(pa.array(rows, pa.binary()), n), strict=True)) for rows in (one, other)]
    assert places[0] == places[1]


def balance(pretokens: pa.Array, n: int) -> float:
    """The rows of the largest partition, as a share of the mean."""
    return float(np.bincount(partitions_of(pretokens, n), minlength=n).max() * n / len(pretokens))


@pytest.mark.parametrize("pattern", [" {}", "{:x}", "{0}{0}", "{:>60}"])
@pytest.mark.parametrize("n", [2, 3, 16, 64, 100])
def test_numbers_and_repeated_numbers_are_divided_evenly(pattern: str, n: int) -> None:
    rows = pa.array([pattern.format(i).encode() for i in range(100_000)], pa.binary())
    assert balance(rows, n) < 1 + 5 * (n / len(rows)) ** 0.5  # a random division is within five deviations


@pytest.mark.parametrize("corpus", ["english", "multilingual"])
def test_pretokens_of_real_text_are_divided_evenly(corpus: str) -> None:
    pl = pytest.importorskip("polars")
    paths = sorted((SHARED / "corpus" / corpus).glob("*.jsonl.*"))
    if not paths:
        pytest.skip("the shared corpus is not there")
    counter = Counter("gpt2")
    counter.update(pl.read_ndjson(paths[0])["body" if corpus == "multilingual" else "text"].to_list())
    rows = counter.finish()["pretoken"].combine_chunks()
    for n in (4, 64):
        assert balance(rows, n) < 1 + 5 * (n / len(rows)) ** 0.5
