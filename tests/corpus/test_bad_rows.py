import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.shards import HARD_ROWS, SEPARATOR, error_of, jsonl, table, write_ipc, zstd

GOOD = b'{"id": "a", "text": "x"}\n\n'  # a blank line, so that lines and rows differ

BAD_LINES: dict[str, tuple[bytes, list[str]]] = {
    "no text key": (b'{"id": "b", "body": "x"}', ["'text' is missing", "keys id, body", "source.text_column"]),
    "no key at all": (b"{}", ["keys 'text' and 'id' are missing", "(none)"]),
    "no id key": (b'{"text": "b", "name": "x"}', ["'id' is missing", "keys text, name", "source.id_column", "null"]),
    "null text": (b'{"id": "b", "text": null}', ["'text'", "expected a string", "found null"]),
    "a number as text": (b'{"id": "b", "text": 7}', ["'text'", "expected a string", "found an int (7)"]),
    "a float as text": (b'{"id": "b", "text": 7.5}', ["'text'", "found a float (7.5)"]),
    "a bool as text": (b'{"id": "b", "text": true}', ["'text'", "found a bool (True)"]),
    "a list as text": (b'{"id": "b", "text": ["x"]}', ["'text'", "found an array"]),
    "an object as text": (b'{"id": "b", "text": {"x": 1}}', ["'text'", "found an object"]),
    "null id": (b'{"id": null, "text": "x"}', ["'id'", "expected a string or an integer", "found null"]),
    "a bool as id": (b'{"id": true, "text": "x"}', ["'id'", "found a bool"]),
    "a float as id": (b'{"id": 1.0, "text": "x"}', ["'id'", "found a float (1.0)"]),
    "no object": (b'["x"]', ["expected an object", "found an array"]),
    "no JSON": (b'{"id": "b", "text": x}', ["invalid JSON", "invalid character (byte 20)"]),
    "two values": (b'{"id": "b", "text": "x"}{}', ["invalid JSON", "trailing characters"]),
    "a cut line": (b'{"id": "b", "text": ', ["invalid JSON", "20 bytes", "truncated"]),
    "a lone high surrogate": (b'{"id": "b", "text": "\\ud83d"}', ["surrogate", "\\ufffd"]),
    "a lone low surrogate": (b'{"id": "b", "text": "x\\udc00yyyyyy"}', ["surrogate"]),
    "a lone surrogate elsewhere": (b'{"id": "b", "text": "x", "y": "\\ud83dxxxxxx"}', ["surrogate"]),
    "invalid UTF-8": (b'{"id": "b", "text": "ab\xffc"}', ["expected UTF-8", "0xff at byte 23 of the line"]),
    "surrogates in UTF-8": (b'{"id": "b", "text": "\xed\xa0\x80"}', ["expected UTF-8", "0xed at byte 21"]),
    "deep nesting": (b'{"id": "b", "x":' + b"[" * 10**5 + b"]" * 10**5 + b"}", ["nested too deep"]),
    "a mark that is not at the start": (
        b'\xef\xbb\xbf{"id": "b", "text": "x"}',
        ["byte order mark", "keep what is behind it"],
    ),
    "an endless integer": (b'{"id": ' + b"1" * 5000 + b', "text": "x"}', ["out of range", "$.id"]),
}


@pytest.mark.parametrize("case", BAD_LINES)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, name: str, case: str) -> None:
    line, expected = BAD_LINES[case]
    pack = {"a.jsonl": bytes, "a.jsonl.gz": gzip.compress, "a.jsonl.zst": zstd}[name]
    (tmp_path / name).write_bytes(pack(GOOD + line + b"\n" + GOOD))
    message = error_of(tmp_path / name)
    assert message.startswith(f"{name}, line 3: ")
    assert len(message) < 300
    for part in expected:
        assert part in message


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_compressed_file_cut_anywhere_or_followed_by_junk_is_refused(tmp_path: Path, name: str) -> None:
    pack = gzip.compress if name.endswith("gz") else zstd
    lines = jsonl(HARD_ROWS)
    whole = pack(lines) + pack(lines)
    boundary = len(pack(lines))
    for end in set(range(1, len(whole))) - {boundary}:
        (tmp_path / name).write_bytes(whole[:end])
        assert "damaged or truncated" in error_of(tmp_path / name)
    (tmp_path / name).write_bytes(whole + b"junk junk junk junk junk")
    assert "damaged" in error_of(tmp_path / name)
    (tmp_path / name).write_bytes(lines)
    assert "is plain text, not compressed; expected a ." in error_of(tmp_path / name)
    flipped = bytearray(whole)
    flipped[0] ^= 1
    (tmp_path / name).write_bytes(flipped)
    assert "damaged" in error_of(tmp_path / name)


BAD_TABLES: dict[str, tuple[pa.Table, list[str]]] = {
    "no text column": (
        table(HARD_ROWS).rename_columns(["id", "body", "z"]),
        ["'text' is missing", "columns id, body, z"],
    ),
    "no id column": (
        table(HARD_ROWS).select(["text"]),
        ["'id' is missing", "columns text", "source.id_column", "null"],
    ),
    "two text columns": (table(HARD_ROWS).rename_columns(["id", "text", "text"]), ["'text' is there more than once"]),
    "numbers": (pa.table({"id": ["a"], "text": [7]}), ["'text'", "expected strings", "found int64"]),
    "lists": (pa.table({"id": ["a"], "text": [["x"]]}), ["'text'", "expected strings", "found list<"]),
    "structs": (pa.table({"id": ["a"], "text": [{"x": "y"}]}), ["'text'", "expected strings", "found struct<"]),
    "only nulls": (pa.table({"id": ["a"], "text": [None]}), ["row 0", "'text'", "expected a value", "found null"]),
    "float ids": (pa.table({"id": [1.0], "text": ["x"]}), ["'id'", "expected strings or integers", "found double"]),
    "a null text": (pa.table({"id": ["a", "b", "c"], "text": ["x", "y", None]}), ["row 2", "'text'", "found null"]),
    "a null id": (pa.table({"id": ["a", None], "text": ["x", "y"]}), ["row 1", "'id'", "found null"]),
    "invalid UTF-8 in bytes": (
        pa.table({"id": ["a"] * 5, "text": [b"x", b"", b"y\xff", None, b"z"]}),
        ["row 2", "'text'", "expected UTF-8", "0xff at byte 1"],
    ),
    "invalid UTF-8 in strings": (
        pa.table(
            {
                "id": ["a", "b"],
                "text": pa.Array.from_buffers(pa.string(), 2, pa.array([b"x", b"\xe9t"], pa.binary()).buffers()),
            }
        ),
        ["row 1", "'text'", "expected UTF-8", "0xe9 at byte 0"],
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_a_bad_column_or_row_of_a_table_is_named_with_what_is_wrong(tmp_path: Path, kind: str, case: str) -> None:
    rows, expected = BAD_TABLES[case]
    path = tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow")
    if kind == "parquet":
        pq.write_table(rows, path)
    else:
        write_ipc(path, rows, pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)
    message = error_of(path)
    for part in expected:
        assert part in message


def test_a_null_among_the_values_of_a_dictionary_is_found(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))
    assert texts.null_count == 0
    write_ipc(tmp_path / "a.arrow", pa.table({"text": texts}), pa.ipc.new_file)
    assert "row 1: column 'text': expected a value; found null" in error_of(tmp_path / "a.arrow", id_column=None)


def test_a_bad_line_is_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    rows = jsonl([("a", "x" * 5000)] * 999)
    (tmp_path / "a.jsonl.zst").write_bytes(zstd(rows + b"\n" + b"{}"))
    assert "line 1001: the keys 'text' and 'id' are missing" in error_of(tmp_path / "a.jsonl.zst")


def test_a_bad_row_is_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    texts = ["x" * 5000] * 3000 + [None]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=700)
    assert "row 3000" in error_of(tmp_path / "a.parquet", id_column=None)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_table_that_is_empty_cut_or_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content in (b"", b"PAR1", b"ARROW1\0\0", b"hello" * 100, jsonl(HARD_ROWS), gzip.compress(b"x" * 999)):
        path.write_bytes(content)
        assert f"{path.suffix} file" in error_of(path)
    if name == "a.parquet":
        pq.write_table(table(HARD_ROWS * 99), path)
    else:
        write_ipc(path, table(HARD_ROWS * 99), pa.ipc.new_file)
    whole = path.read_bytes()
    for end in (8, 20, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:end])
        assert "damaged" in error_of(path)


def test_a_damaged_page_of_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table([(str(i), f"text {i}") for i in range(2000)]), path, compression="zstd")
    damaged = bytearray(path.read_bytes())
    offset = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    damaged[offset + 40 : offset + 400] = b"\xff" * 360
    path.write_bytes(damaged)
    assert "damaged" in error_of(path)


def test_a_cut_arrow_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_ipc(path, table(HARD_ROWS), pa.ipc.new_stream)
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged" in error_of(path)


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_the_name_of_an_arrow_column_that_is_no_utf8_is_damage(tmp_path: Path, new: Callable[..., Any]) -> None:
    path = tmp_path / "a.arrow"
    write_ipc(path, pa.table({"text": ["x"], "other": ["y"]}), new)
    path.write_bytes(path.read_bytes().replace(b"other", b"oth\xffr"))
    assert "damaged, truncated or of another kind: the name of a column is not UTF-8" in error_of(path, id_column=None)


def test_invalid_utf8_in_a_txt_file_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab<|>\xc3\xa9c\xff")
    assert "0xff at byte 8 of the document" in error_of(tmp_path / "a.txt")
    message = error_of(tmp_path / "a.txt", separator=SEPARATOR)
    assert "row 1" in message and "0xff at byte 3 of the document" in message
