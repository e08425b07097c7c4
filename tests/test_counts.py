"""Counts of pre-tokens are exact, sorted and checked, whatever way the documents come in."""

from collections import Counter as Tally
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill import Counter
from tokenmill.counts import SCHEMA, merge, read_counts, write_counts
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
    ],
    ids=["bytes", "string", "large", "view", "binary", "dictionary", "chunked", "polars", "tuple"],
)
def test_documents_count_alike_in_every_form(texts: object) -> None:
    assert counted(texts).equals(counted(TEXTS))


def test_a_table_of_counts_has_the_promised_schema() -> None:
    assert counted(TEXTS).schema.equals(SCHEMA)
    assert counted([]).schema.equals(SCHEMA)


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
        (["three", "\ud800"], CorpusError),
        ([b"three", b"\xff"], CorpusError),
    ]:
        with pytest.raises(error):
            counter.update(bad)
    assert counter.finish().to_pydict() == {"pretoken": [b" two", b"one"], "count": [1, 1]}


def test_a_lone_surrogate_is_named_by_text_and_character() -> None:
    with pytest.raises(CorpusError, match=r"text 1: .* character 2"):
        counted(["ok", "ab\ud800"])


def test_memory_past_its_limit_is_an_error_that_keeps_the_counts() -> None:
    counter = Counter(None, memory_mb_max=1)
    with pytest.raises(CountsError, match=r"memory_mb_max allows 1 MiB.*first 200,000 texts"):
        counter.update([f"{i:020d}" for i in range(200_000)])
    assert counter.finish().num_rows == 200_000


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
    with pytest.raises(CountsError, match=r"b'b' is beyond 64 bits"):
        merge([table(b=big), table(b=3)])


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
