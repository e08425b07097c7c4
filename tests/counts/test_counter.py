"""Counts of pre-tokens are exact, sorted and checked, in whatever batches and threads the documents come."""

import gc
import math
from collections import Counter as Tally
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import Counter, _core, train_vocab
from tokenmill.counts.spill import SCHEMA
from tokenmill.counts.table import merge, read_counts, write_counts
from tokenmill.errors import CorpusError, CountsError, PatternError

TEXTS = ["the cat sat", "on the mat", "", "naïve café – 東京 🙂\r\n"]


def table(**counts: int) -> pa.Table:
    rows = sorted((name.encode(), n) for name, n in counts.items())
    return pa.table({"pretoken": [name for name, _ in rows], "count": [n for _, n in rows]}, schema=SCHEMA)


def counted(texts: object, pattern: str | None = "gpt2", threads: int = 2) -> pa.Table:
    counter = Counter(pattern, threads=threads)
    counter.update(texts)  # type: ignore[arg-type]
    return counter.finish()


@pytest.mark.parametrize(
    "texts",
    [
        [text.encode() for text in TEXTS],
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS, pa.binary()),
        pa.array([*TEXTS, *TEXTS]).dictionary_encode()[: len(TEXTS)],
        pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
        pl.Series(TEXTS),
        tuple(TEXTS),
        iter(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        dict.fromkeys(TEXTS).keys(),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_documents_count_alike_in_every_form(texts: object) -> None:
    assert counted(texts).equals(counted(TEXTS))


def test_a_table_of_counts_has_the_promised_schema() -> None:
    assert counted(TEXTS).schema.equals(SCHEMA)
    assert counted([]).schema.equals(SCHEMA)


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=20), st.integers(1, 3))
def test_without_a_pattern_each_document_is_one_pretoken(texts: list[str], threads: int) -> None:
    expected = sorted(Tally(text.encode() for text in texts if text).items())
    found = counted(texts, None, threads).to_pydict()
    assert list(zip(found["pretoken"], found["count"], strict=True)) == expected


def test_a_bad_call_loses_nothing() -> None:
    counter = Counter("gpt2")
    counter.update(["one two"])
    for bad, error in [
        ("one", TypeError),
        (["two", 3], TypeError),
        (7, TypeError),
        (pa.array([1]), TypeError),
        (pa.table({"text": ["a"]}), TypeError),
        (["three", None], CorpusError),
        ([b"three", None], CorpusError),
        (["three", "\ud800"], CorpusError),
        ([b"three", b"\xff"], CorpusError),
    ]:
        with pytest.raises(error):
            counter.update(bad)
    assert counter.finish().to_pydict() == {"pretoken": [b" two", b"one"], "count": [1, 1]}


def test_a_lone_surrogate_is_named_by_text_and_character() -> None:
    with pytest.raises(CorpusError, match=r"text 1: .* character 2"):
        counted(["ok", "ab\ud800"])


@pytest.mark.parametrize(("threads", "memory_mb_max"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("pattern", ["gpt2", None])
def test_counts_that_are_spilled_are_the_same_byte_for_byte(
    tmp_path: Path, pattern: str | None, threads: int, memory_mb_max: int
) -> None:
    texts = [f"{i % 70_001:020d} {i * i % 9_973} and {'long ' * (i % 40)}" for i in range(100_000)]
    (tmp_path / "spill").mkdir()
    whole, small = Counter(pattern, threads=1), Counter(pattern, memory_mb_max, threads, tmp_path / "spill")
    whole.update(texts)
    small.update(texts)
    assert len(list((tmp_path / "spill").rglob("*.arrow"))) > 1
    whole.finish_to(tmp_path / "whole.parquet")
    small.finish_to(tmp_path / "small.parquet")
    assert (tmp_path / "small.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_counter_counts_again_after_it_has_spilled_and_finished() -> None:
    counter = Counter(None, memory_mb_max=1)
    texts = [f"{i % 70_001:020d}" for i in range(200_000)]
    counter.update(texts)
    found = counter.finish().to_pydict()
    assert list(zip(*found.values(), strict=True)) == sorted(Tally(text.encode() for text in texts).items())
    counter.update(["a"])
    assert counter.finish().to_pydict() == {"pretoken": [b"a"], "count": [1]}


def test_a_megabyte_of_memory_is_a_million_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(_core, "Counter", lambda *arguments: given.append(arguments))
    Counter(None, memory_mb_max=8)
    assert given[0][2] == 7_000_000  # an eighth is for batches on their way to a file


@pytest.mark.parametrize("memory_mb_max", [8, 4000])
def test_a_counter_whose_counts_were_not_all_taken_counts_from_0_again(tmp_path: Path, memory_mb_max: int) -> None:
    counter = Counter("gpt2", memory_mb_max, spill_directory=tmp_path)
    counter.update([" ".join(map(str, range(300_000)))])
    assert any(tmp_path.iterdir()) == (memory_mb_max == 8)
    batches = counter.batches()
    assert next(batches).num_rows < 300_000
    batches.close()
    counter.update(["x"])
    assert counter.finish().to_pylist() == [{"pretoken": b"x", "count": 1}]


def test_an_iterable_is_counted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.counts.counter._SLICE_BYTES", 20)
    counter = Counter("gpt2")
    counter.update(TEXTS[n % 4] for n in range(400))
    assert repr(counter) == "<Counter of 400 texts, pattern 'gpt2'>"
    assert counter.finish().equals(counted(TEXTS * 100))
    with pytest.raises(CorpusError, match=r"from text \d+ on: "):
        counter.update(iter(["fine" * 9, "fine", None]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", ["one text", b"one text", {"text": 1}, 5, [5], iter([5])], ids=lambda wrong: type(wrong).__name__
)
def test_what_holds_no_texts_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, CorpusError), match="expected"):
        counted(wrong)


def test_a_counter_from_which_training_was_stopped_keeps_its_counts() -> None:
    counter = Counter("gpt2")
    counter.update(["the cat sat on the mat"])
    _core.interrupt(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            train_vocab(counter, 300)
    finally:
        _core.interrupt(False)
    counter.update(["x"])
    assert counter.finish().equals(counted(["the cat sat on the mat", "x"]))


def test_a_run_that_cannot_be_written_is_its_own_error_and_ends_the_counter(tmp_path: Path) -> None:
    counter = Counter(None, memory_mb_max=1, spill_directory=tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        counter.update([f"{i:020d}" for i in range(200_000)])
    with pytest.raises(CountsError, match="ended early"):
        counter.finish()


def test_the_runs_of_a_counter_that_is_left_alone_go_with_it(tmp_path: Path) -> None:
    counter = Counter(None, memory_mb_max=1, spill_directory=tmp_path)
    counter.update([f"{i:020d}" for i in range(200_000)])
    assert list(tmp_path.iterdir())
    del counter
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_pretoken_that_is_longer_than_memory_allows_is_an_error() -> None:
    counter = Counter(None, memory_mb_max=1, threads=1)
    with pytest.raises(CountsError, match="Raise memory_mb_max"):
        counter.update(["a" * 2_000_000])


def test_long_documents_spill_and_come_back_whole() -> None:
    texts = [f"{i % 61}" + "x" * (i % 61 * 1000) for i in range(300)]
    small, whole = Counter(None, memory_mb_max=1), Counter(None)
    small.update(texts)
    whole.update(texts)
    assert small.finish().equals(whole.finish())


@pytest.mark.parametrize("pattern", ["gpt-2", "cl100", "GPT2", "", "(", "a**?)"])
def test_a_wrong_pattern_is_refused_at_once(pattern: str) -> None:
    with pytest.raises(PatternError):
        Counter(pattern)


def test_a_misspelt_name_is_not_taken_for_a_regex() -> None:
    with pytest.raises(PatternError, match="Did you mean gpt2"):
        Counter("gpt-2")


def test_merge_adds_exactly_and_refuses_overflow() -> None:
    big = 2**64 - 3
    assert merge([table(a=1, b=big), table(b=2), table(c=7)]).equals(table(a=1, b=2**64 - 1, c=7))
    for tables, weights in (([table(b=big), table(b=3)], None), ([table(b=2**63)], [2])):
        with pytest.raises(CountsError, match=r"\"b\" is beyond 64 bits"):
            merge(tables, weights)


WEIGHTS = st.one_of(st.integers(0, 5), st.fractions(0, 5, max_denominator=12), st.sampled_from(["3/2", "0.1", "7"]))
COUNTS = st.dictionaries(st.text("ab", max_size=3).map(str.encode), st.integers(1, 9) | st.integers(1, 2**59))


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, WEIGHTS), max_size=4))
def test_weighted_sums_are_those_of_fractions_rounded_once_halves_up(parts: list[tuple[dict[bytes, int], Any]]) -> None:
    expected: Tally[bytes] = Tally()
    for counts, weight in parts:
        for pretoken, n in counts.items():
            expected[pretoken] += n * Fraction(weight)  # type: ignore[assignment]
    rounded = {pretoken: math.floor(n + Fraction(1, 2)) for pretoken, n in expected.items()}
    tables = [pa.table({"pretoken": list(one), "count": list(one.values())}, schema=SCHEMA) for one, _ in parts]
    found = merge(tables, [weight for _, weight in parts])
    assert list(zip(*found.to_pydict().values(), strict=True)) == sorted((key, n) for key, n in rounded.items() if n)


@pytest.mark.parametrize("wrong", [[-1], ["x"], ["1/0"], [0.5], [True], [1, 1], [], ["1e-30"]])
def test_wrong_weights_are_refused(wrong: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"allowed|expected one"):
        merge([table(a=1)], wrong)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.binary(max_size=3), st.integers(1, 2**62), max_size=5), min_size=1, max_size=3))
def test_merge_adds_like_python(parts: list[dict[bytes, int]]) -> None:
    tables = [pa.table({"pretoken": list(one), "count": list(one.values())}, schema=SCHEMA) for one in parts]
    expected: Tally[bytes] = sum((Tally(one) for one in parts), Tally())
    found = merge(tables)
    assert found.schema.equals(SCHEMA)
    assert list(zip(*found.to_pydict().values(), strict=True)) == sorted(expected.items())


def test_merge_of_nothing_is_empty() -> None:
    assert merge([]).equals(SCHEMA.empty_table())


def test_a_file_of_counts_has_the_same_bytes_however_chunked(tmp_path: Path) -> None:
    whole = counted(TEXTS)
    pieces = pa.concat_tables([whole.slice(0, 2), whole.slice(2, 1), whole.slice(3)])
    write_counts(whole, tmp_path / "a.parquet")
    write_counts(pieces, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert read_counts(tmp_path / "a.parquet").equals(whole)
    assert pl.read_parquet(tmp_path / "a.parquet").schema == {"pretoken": pl.Binary, "count": pl.UInt64}


def test_unsorted_counts_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(CountsError, match='"a" stands after "b"'):
        write_counts(pa.table({"pretoken": [b"b", b"a"], "count": [1, 1]}, schema=SCHEMA), tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


def test_an_empty_table_survives_its_file(tmp_path: Path) -> None:
    write_counts(SCHEMA.empty_table(), tmp_path / "a.parquet")
    assert read_counts(tmp_path / "a.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"pretoken": pa.array([b"a"]), "count": pa.array([1], pa.int32())},
            'column "count" is int32, expected uint64',
        ),
        ({"pretoken": pa.array(["a"]), "count": pa.array([1], pa.uint64())}, 'column "pretoken" is string'),
        ({"word": pa.array([b"a"]), "count": pa.array([1], pa.uint64())}, "found the columns"),
        ({"pretoken": pa.array([b"b", b"a"]), "count": pa.array([1, 1], pa.uint64())}, "row 1: .* sorted, each once"),
        ({"pretoken": pa.array([b"a", b"a"]), "count": pa.array([1, 1], pa.uint64())}, "row 1: .* sorted, each once"),
        ({"pretoken": pa.array([b"a", b"b"]), "count": pa.array([1, 0], pa.uint64())}, "row 1: count is 0"),
        ({"pretoken": pa.array([b"a", None]), "count": pa.array([1, 1], pa.uint64())}, "1 nulls"),
    ],
)
def test_a_wrong_file_of_counts_is_named_with_its_fault(
    tmp_path: Path, columns: dict[str, pa.Array], message: str
) -> None:
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(CountsError, match=message) as caught:
        read_counts(path)
    assert str(path) in str(caught.value)


def test_a_damaged_or_missing_file_of_counts_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    write_counts(counted(TEXTS), path)
    content = path.read_bytes()
    for damaged in (b"", content[:-9], content[:40] + bytes(40) + content[80:], b"PAR1" + bytes(100)):
        path.write_bytes(damaged)
        with pytest.raises(CountsError):
            read_counts(path)
    with pytest.raises(CountsError, match="no such file"):
        read_counts(tmp_path / "none.parquet")
