import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tests.builders.shards import (
    HARD_ROWS,
    SEPARATOR,
    Rows,
    array,
    jsonl,
    read,
    records,
    shard,
    table,
    texts_of,
    write_ipc,
    zstd,
)
from tokenmill.config.sources import Reading
from tokenmill.corpus import formats
from tokenmill.corpus.reader import Batch, Shard, read_batches
from tokenmill.errors import CorpusError

WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "a.jsonl": lambda path, rows: path.write_bytes(jsonl(rows)),
    "a.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(jsonl(rows))),
    "a.jsonl.zst": lambda path, rows: path.write_bytes(zstd(jsonl(rows))),
    "members.jsonl.gz": lambda path, rows: path.write_bytes(
        b"".join(gzip.compress(jsonl([row])) for row in rows) or gzip.compress(b"")
    ),
    "frames.jsonl.zst": lambda path, rows: path.write_bytes(b"".join(zstd(jsonl([row])) for row in rows) or zstd(b"")),
    "a.NDJSON": lambda path, rows: path.write_bytes(jsonl(rows)),
    "a.jsonl.bz2": lambda path, rows: path.write_bytes(bz2.compress(jsonl(rows))),
    "streams.jsonl.bz2": lambda path, rows: path.write_bytes(
        b"".join(bz2.compress(jsonl([row])) for row in rows) or bz2.compress(b"")
    ),
    "a.jsonl.xz": lambda path, rows: path.write_bytes(lzma.compress(jsonl(rows))),
    "streams.ndjson.xz": lambda path, rows: path.write_bytes(
        b"".join(lzma.compress(jsonl([row])) + bytes(8) for row in rows) or lzma.compress(b"")
    ),
    "lines.json": lambda path, rows: path.write_bytes(jsonl(rows)),
    "lines.json.zst": lambda path, rows: path.write_bytes(zstd(jsonl(rows))),
    "array.json.gz": lambda path, rows: path.write_bytes(gzip.compress(array(rows).encode())),
    "pretty array.json": lambda path, rows: path.write_text(" \n" + array(rows, indent=1), encoding="utf-8"),
    "pretty objects.json.bz2": lambda path, rows: path.write_bytes(
        bz2.compress("\n".join(json.dumps(one, indent=2) for one in json.loads(array(rows))).encode())
    ),
    "a.csv": lambda path, rows: path.write_bytes(records(rows)),
    "a.TSV": lambda path, rows: path.write_bytes(b"\xef\xbb\xbf" + records(rows, "\t", "\r\n")),
    "a.csv.gz": lambda path, rows: path.write_bytes(gzip.compress(records(rows))),
    "a.parquet": lambda path, rows: pq.write_table(table(rows), path, row_group_size=3),
    "file.arrow": lambda path, rows: write_ipc(path, table(rows), pa.ipc.new_file),
    "stream.arrow": lambda path, rows: write_ipc(path, table(rows), pa.ipc.new_stream),
}


def rows_of(batches: list[Batch]) -> Rows:
    for batch in batches:
        batch.texts.validate(full=True)
        assert batch.texts.type == pa.large_string() and batch.texts.null_count == 0
    return [row for b in batches if b.ids for row in zip(b.ids.to_pylist(), b.texts.to_pylist(), strict=True)]


@pytest.mark.parametrize("name", WRITERS)
def test_documents_are_read_as_they_were_written(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, HARD_ROWS)
    assert rows_of(read(tmp_path / name)) == HARD_ROWS
    assert texts_of(read(tmp_path / name, id_column=None)) == [text for _, text in HARD_ROWS]


@pytest.mark.parametrize("name", WRITERS)
@given(rows=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=6)), max_size=12), batch_bytes=st.integers(1, 20))
def test_any_documents_come_back_equal_in_batches_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, name: str, rows: Rows, batch_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("any") / name
    WRITERS[name](path, rows)
    batches = read(path, batch_bytes=batch_bytes)
    assert rows_of(batches) == rows
    assert [b.first_row for b in batches] == [sum(len(c.texts) for c in batches[:i]) for i in range(len(batches))]
    assert all(batch.text_bytes <= batch_bytes or len(batch.texts) == 1 for batch in batches)
    assert sum(batch.file_bytes for batch in batches) == (path.stat().st_size if rows else 0)


@given(st.lists(st.text("ab|", max_size=9), max_size=6), st.sampled_from(["|", "ab", "aba", "||"]), st.integers(1, 5))
def test_a_txt_file_splits_where_str_split_does_whatever_its_blocks(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], separator: str, block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_text(separator.join(pieces))
    expected = path.read_text().split(separator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BLOCK_BYTES", block_bytes)
        found = read(path, separator=separator)
    assert texts_of(found) == (expected if expected[-1] else expected[:-1])
    assert [i for b in found if b.ids for i in b.ids.to_pylist()] == [str(row) for row in range(len(texts_of(found)))]


@given(
    st.lists(st.text('"\\\n{}[],a', max_size=5), min_size=1, max_size=6),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_an_array_and_objects_of_several_lines_are_read_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block_bytes: int, indent: int | None, is_array: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.json"
    rows = json.loads(array([("x", text) for text in texts]))
    path.write_text(json.dumps(rows, indent=indent) if is_array else "\n".join(json.dumps(r, indent=1) for r in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BLOCK_BYTES", block_bytes)
        assert texts_of(read(path)) == texts


@given(st.lists(st.text("ab\n", max_size=5), max_size=6), st.integers(1, 9))
def test_lines_are_whole_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_bytes(jsonl([("x", text) for text in texts]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BLOCK_BYTES", block_bytes)
        assert texts_of(read(path)) == texts


def test_a_txt_file_without_separator_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\n\ntwo é\r\n".encode())
    assert texts_of(read(tmp_path / "a.txt")) == ["one\n\ntwo é\r\n"]
    assert read(tmp_path / "a.txt", id_column=None)[0].ids is None


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.txt"])
def test_a_file_of_no_bytes_has_no_document(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert read(tmp_path / name) == []


def test_a_separator_at_the_end_starts_no_document_and_one_at_the_start_ends_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("<|>a<|>")
    assert texts_of(read(tmp_path / "a.txt", separator=SEPARATOR)) == ["", "a"]


@pytest.mark.parametrize(
    "kind",
    ["dictionary", pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_every_type_of_text_column_is_read(tmp_path: Path, kind: pa.DataType, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        if str(kind).endswith("_view") and Version(pa.__version__) < Version("21"):
            pytest.skip("pyarrow writes views to Parquet from version 21 on")
        pq.write_table(table(HARD_ROWS, kind), path)
    else:
        write_ipc(path, table(HARD_ROWS, kind), pa.ipc.new_stream)
    assert rows_of(read(path)) == HARD_ROWS


def test_integer_ids_become_their_decimal_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": -7, "text": "a"}\n{"id": 12345678901234567890123, "text": "b"}')
    assert rows_of(read(tmp_path / "a.jsonl")) == [("-7", "a"), ("12345678901234567890123", "b")]
    pq.write_table(pa.table({"id": pa.array([2**64 - 1], pa.uint64()), "text": ["a"]}), tmp_path / "b.parquet")
    assert rows_of(read(tmp_path / "b.parquet")) == [(str(2**64 - 1), "a")]


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "i", "é x": "t"}')
    assert rows_of(read(tmp_path / "a.jsonl", text_column="é x", id_column="text")) == [("i", "t")]
    (tmp_path / "a.jsonl").write_text(r'{"a\"b": "t"}')
    with pytest.raises(CorpusError, match=r"source\.text_column.*Rename"):
        read(tmp_path / "a.jsonl", text_column='a"b')
    with pytest.raises(CorpusError, match="both are 'text'"):
        read(tmp_path / "a.jsonl", id_column="text")


def test_a_byte_order_mark_blank_lines_and_crlf_are_no_part_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n \r\n\n{"id": "b", "text": "y"}')
    assert rows_of(read(tmp_path / "a.jsonl")) == [("a", "x"), ("b", "y")]


def test_a_larger_document_is_a_batch_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl([(str(n), "x" * n) for n in (3, 4, 30, 0, 10, 1)]))
    batches = read(tmp_path / "a.jsonl", batch_bytes=10)
    assert [[len(text) for text in batch.texts.to_pylist()] for batch in batches] == [[3, 4], [30], [0, 10], [1]]


def test_a_slice_of_a_batch_keeps_rows_and_ids(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(HARD_ROWS))
    (batch,) = read(tmp_path / "a.jsonl")
    part = batch.slice(1, 2)
    assert (part.first_row, rows_of([part])) == (1, HARD_ROWS[1:3])
    assert part.text_bytes == sum(len(text.encode()) for _, text in HARD_ROWS[1:3])
    assert batch.slice(5).text_bytes == 0


# VmHWM, not ru_maxrss: that one starts at the parent's peak, and pytest's hides what the child takes.
_READER = """
import re, sys
from pathlib import Path
from tokenmill.corpus import formats
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.config.sources import Reading
peak_kb = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
for shard in find_shards(Path(sys.argv[1]), "*"):
    before = peak_kb()
    n = sum(batch.text_bytes for batch in read_batches(shard, Reading("text", "id", "<|>")))
    print(n, peak_kb() - before)
"""


def many(n_bytes: int) -> Iterator[pa.Table]:
    for start in range(0, n_bytes // 1000, 1000):
        yield table([(str(i), f"{i:010}" * 100) for i in range(start, start + 1000)])


def write_large(path: Path, n_bytes: int) -> None:
    if path.suffix == ".parquet":  # one large row group, not compressed: the hardest case
        pq.write_table(
            pa.concat_tables(many(n_bytes)), path, row_group_size=1 << 30, use_dictionary=False, compression="none"
        )
        return
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table([]).schema) as writer:
            for rows in many(n_bytes):
                writer.write_table(rows)
        return
    with pa.output_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as file:
        for rows in many(n_bytes):
            documents = zip(*rows.select(["id", "text"]).to_pydict().values(), strict=True)
            file.write(
                "".join(t + "<|>" for _, t in documents).encode() if path.suffix == ".txt" else jsonl([*documents])
            )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.parquet", "a.arrow", "a.txt"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    n_bytes = 240_000_000
    write_large(tmp_path / name, n_bytes)
    done = subprocess.run(
        [sys.executable, "-c", _READER, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    found_bytes, grown_kb = map(int, done.stdout.split())
    assert found_bytes == n_bytes
    assert grown_kb < 130_000


def test_a_directory_a_vanished_file_and_one_without_permission_are_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "secret" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(jsonl(HARD_ROWS))
    found = shard(path)

    def reason() -> str:
        with pytest.raises(CorpusError, match=str(path)) as raised:
            list(read_batches(found, Reading("text", "id", None)))
        return str(raised.value)

    path.parent.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read all
        os.seteuid(65534)
    try:
        assert "Permission denied" in reason()
    finally:
        os.seteuid(user)
        path.parent.chmod(0o700)
    path.unlink()
    assert "No such file or directory" in reason()
    path.mkdir()
    assert "Is a directory" in reason()


def test_an_error_while_reading_is_named_with_the_reason() -> None:
    broken = Shard(Path("/proc/self/mem"), "broken.txt", 0)  # opens, but its first page cannot be read
    with pytest.raises(CorpusError, match=r"broken\.txt: /proc/self/mem: cannot be read: Input/output error"):
        list(read_batches(broken, Reading("text", None, SEPARATOR)))
