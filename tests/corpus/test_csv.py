"""Files of records: .csv and .tsv."""

import csv
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.shards import error_of, read, texts_of
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.csv_records import BadRecord, records_in
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.record_ends import RecordEnds


def by_the_library(content: bytes) -> tuple[list[list[str]], list[int]] | None:
    """The records that the csv module reads, and where each ends; None if it refuses some."""
    lines = BytesIO(content).readlines()
    reader = csv.reader(line.decode("latin-1") for line in lines)
    try:
        return [[*row] for row in reader], [len(b"".join(lines[:end])) for end in _line_ends(lines)]
    except csv.Error:
        return None


def _line_ends(lines: list[bytes]) -> list[int]:
    reader = csv.reader(line.decode("latin-1") for line in lines)
    return [reader.line_num for _ in reader]


@settings(max_examples=400)
@given(st.lists(st.text('a,"\n\r', max_size=5).map(str.encode), min_size=1, max_size=5), st.integers(1, 3))
def test_records_are_those_of_the_csv_module(pieces: list[bytes], n_columns: int) -> None:
    content = b"".join(pieces) + b"\n"
    found, also = RecordEnds(b","), RecordEnds(b",")
    ends: list[int] = []
    last = at = 0
    for piece in [*filter(None, pieces), b"\n"]:
        ends += (found.add(piece) + at).tolist()
        end = also.last(piece)
        last, at = at + end if end else last, at + len(piece)
    assert (ends or [0])[-1] == last and found.is_open == also.is_open and found.n_lines == content.count(b"\n")
    if (expected := by_the_library(content)) is None:
        for some in records_in(content[:last], b",", n_columns, range(n_columns)):
            assert not isinstance(some, BadRecord) or len(RecordEnds(b",").add(some.raw + b"\n")) == 1
        return
    rows, row_ends = (one[: len(ends)] for one in expected)
    assert ends == row_ends and found.n_rows == sum(map(bool, rows))
    read_rows: list[list[str] | None] = []
    for some in records_in(content[:last], b",", n_columns, range(n_columns)):
        columns = [] if isinstance(some, BadRecord) else [column.to_pylist() for column in some.columns]
        read_rows += [None] if isinstance(some, BadRecord) else map(list, zip(*columns, strict=True))
    assert read_rows == [row if len(row) == n_columns else None for row in rows if row]


MISTAKES = {
    b"id,text\n1,a\n\n2,b,c\n": "line 4: expected 2 values, as many as the header has; found 3. Put a value",
    b'id,text\n1,"a\nb"\n2\n': "line 4: expected 2 values, as many as the header has; found 1.",
    b"id,text\n1,a\rb\n": "line 2: expected a line end; found a carriage return outside of quotes.",
    b'id,text\n1,a\n2,"b\n3,c\n': "line 3: a quote that opens in the record that begins here has no end.",
    b'id,"text\n1,a\n': "a quote in its first record, the header, has no end.",
    b"id,t\xe9xt\n": "its first record, the header, is not UTF-8 (found 0xe9).",
    b"id,text\n1,a\n2,\xe9\n": "row 1: column 'text': expected UTF-8; found 0xe9 at byte 0 of the document.",
    b"id,text,text\n": "the column 'text' is there more than once",
    b"PK\x03\x04" + bytes(9): "a zip archive, which files like .xlsx",
    b"id,text\n1,aaaaaaaaaaaaa\n": "line 2: the document is longer than 12 bytes",
    b'id,text\n1,"aaaaaaaaaaaa\n2,b\n': "line 2, in which a quote opens that has not ended: the document is longer",
}


@pytest.mark.parametrize("content", MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert MISTAKES[content] in error_of(tmp_path / "a.csv", limits=Limits(12, None))


def test_a_bad_record_is_left_out_with_its_line_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b'id\ttext\r\n1\t"a\r\n"\r\n2\tb\tc\r\n3\td\xff\r\n4\te')
    bad: list[BadDocument] = []
    batches = read(tmp_path / "a.tsv", on_bad=bad.append)
    assert texts_of(batches) == ["a\r\n", "e"] and [row for one in batches for row in one.rows().to_pylist()] == [0, 3]
    assert [(one.row, one.line, one.raw) for one in bad] == [(1, 4, b"2\tb\tc"), (2, None, b"d\xff")]


def test_a_bad_record_ends_where_its_quotes_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,text\na\rb,"x\n1,good"\n2,b\n')
    bad: list[BadDocument] = []
    [batch] = read(tmp_path / "a.csv", on_bad=bad.append)
    assert batch.texts.to_pylist() == ["b"] and [(one.row, one.line) for one in bad] == [(0, 2)]
    assert bad[0].raw == b'a\rb,"x\n1,good"'


def test_a_byte_order_mark_in_front_of_a_later_record_is_text() -> None:
    for block in ("\ufeffa,b\n", "c,d\n\ufeffa,b\n", "\ufeffa,b\ne\rf,g\n"):
        [records, *_] = records_in(block.encode(), b",", 2, [0])
        assert not isinstance(records, BadRecord) and records.columns[0].to_pylist()[-1] == "\ufeffa"


def test_values_may_be_long_and_quotes_in_a_value_without_quotes_stand_for_themselves(tmp_path: Path) -> None:
    long = "x,\n" * 200_000
    (tmp_path / "a.csv").write_text(f'text,size\n"{long}",5"\na "b" c,6\n"d"e,7\n"{long}"\n', encoding="utf-8")
    bad: list[BadDocument] = []
    assert texts_of(read(tmp_path / "a.csv", None, on_bad=bad.append)) == [long, 'a "b" c', "de"]
    assert [one.line for one in bad] == [200_005]
