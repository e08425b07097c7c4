"""The core's counting against collections.Counter."""

import collections
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import _core
from tokenmill.counts.spill import SCHEMA
from tokenmill.errors import CorpusError

GPT2 = _core.patterns()["gpt2"]


def counted(steps: list[str], batches: list[pa.Array], threads: int = 1) -> pa.Table:
    counter = _core.Counter(steps, threads)
    for batch in batches:
        counter.update(batch)
    return drained(counter)


def drained(counter: Any) -> pa.Table:
    return pa.Table.from_batches(iter(counter.drain, None), SCHEMA)


def expected(steps: list[str], texts: list[str]) -> dict[bytes, int]:
    counts = collections.Counter(piece.encode() for text in texts for piece in _core.split(steps, text))
    return dict(sorted(counts.items()))


def as_dict(table: pa.Table) -> dict[bytes, int]:
    return dict(zip(table["pretoken"].to_pylist(), table["count"].to_pylist(), strict=True))


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.text(alphabet="aab é\n\x00", max_size=40), max_size=6))
def test_counts_are_those_of_a_dictionary_in_the_order_of_bytes(texts: list[str]) -> None:
    for steps in (GPT2, []):
        table = counted(steps, [pa.array(texts, pa.string())])
        assert list(as_dict(table).items()) == list(expected(steps, texts).items())


def test_the_table_is_binary_and_uint64() -> None:
    table = counted(GPT2, [pa.array(["a"])])
    assert table.schema.names == ["pretoken", "count"]
    assert table.schema.types == [pa.binary(), pa.uint64()]
    assert counted(GPT2, []).num_rows == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_string_type_counts_the_same_also_when_sliced(kind: pa.DataType) -> None:
    array = pa.array([b"no", b"a b", b"a"], pa.binary()).cast(kind)[1:]
    assert as_dict(counted(GPT2, [array])) == {b" b": 1, b"a": 2}


def test_pretokens_of_every_length_are_told_apart() -> None:
    texts = ["a" * n for n in range(1, 70)] + ["a" * 14 + "b", "a" * 15 + "b", "a\x00", "a\x00\x00"]
    assert as_dict(counted([], [pa.array(texts)])) == expected([], texts)


def test_threads_do_not_change_the_counts() -> None:
    texts = [f"word{number % 977} and {number % 31} more\n" * 40 for number in range(6000)]
    one, *more = (counted(GPT2, [pa.array(texts)], threads) for threads in (1, 2, 5))
    assert all(table.equals(one) for table in more)


def test_batches_add_up_and_finish_empties_the_counter() -> None:
    counter = _core.Counter([])
    counter.update(pa.array(["x", "y"]))
    counter.update(pa.array(["x"]))
    assert counter.memory_bytes() > 0
    assert as_dict(drained(counter)) == {b"x": 2, b"y": 1}
    assert drained(counter).num_rows == 0


def test_bytes_that_are_not_utf8_are_named_by_text_and_place() -> None:
    with pytest.raises(CorpusError, match=r"(?s)1.*2"):
        counted(GPT2, [pa.array([b"fine", b"ab\xff"], pa.binary())])


def test_a_null_is_an_error_that_names_its_row() -> None:
    with pytest.raises(CorpusError, match="1"):
        counted(GPT2, [pa.array(["a", None], pa.string())])


@pytest.mark.parametrize("wrong", [pa.array([1]), pa.array([[b"a"]])])
def test_an_array_of_another_type_is_refused(wrong: pa.Array) -> None:
    with pytest.raises(Exception, match=r"string|binary"):
        counted(GPT2, [wrong])


def test_interrupt_stops_counting_and_can_be_taken_back() -> None:
    _core.interrupt(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            counted(GPT2, [pa.array(["a b " * 200_000])])
    finally:
        _core.interrupt(False)
    assert as_dict(counted(GPT2, [pa.array(["a"])])) == {b"a": 1}


def test_a_full_table_is_handed_over_as_a_sorted_run() -> None:
    runs: dict[int, list[pa.RecordBatch]] = collections.defaultdict(list)
    ended = []

    def spill(run: int, batch: pa.RecordBatch | None) -> None:
        if batch is None:
            ended.append(run)
        else:
            runs[run].append(batch)

    counter = _core.Counter([], 1, 1 << 19, spill)
    texts = [f"{number * 7919 % 50_021}" for number in range(100_000)]
    counter.update(pa.array(texts))
    assert counter.memory_bytes() <= 1 << 19
    assert sorted(ended) == sorted(runs) == list(range(len(runs)))
    total: collections.Counter[bytes] = collections.Counter(as_dict(drained(counter)))
    for batches in runs.values():
        rows = as_dict(pa.Table.from_batches(batches))
        assert list(rows) == sorted(rows)
        total.update(rows)
    assert len(runs) > 1
    assert dict(sorted(total.items())) == expected([], texts)


def test_what_the_spilling_raises_ends_the_call() -> None:
    def spill(run: int, batch: pa.RecordBatch | None) -> None:
        raise OSError("no room")

    counter = _core.Counter([], 1, 1 << 19, spill)
    with pytest.raises(OSError, match="no room"):
        counter.update(pa.array([str(number) for number in range(100_000)]))
