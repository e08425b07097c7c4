"""Small files that decode to much: they are read a few rows at a time, or refused before they are decoded."""

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.config.sources import Conversations, Reading
from tokenmill.corpus.formats import read_columns
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.repetition_levels import RowLengths
from tokenmill.corpus.shards import find_shards
from tokenmill.corpus.value_sizes import runs_within, value_bytes
from tokenmill.errors import CorpusError

MB = 1_000_000
LIMITS = Limits(document_bytes_max=5 * MB, block_bytes_max=6 * MB)
SHARE_MB = 160  # of a worker with the limits of tests/corpus/read_made_tables.py

NEW = [pa.ipc.new_file, pa.ipc.new_stream]


def write(
    path: Path, table: pa.Table, new: Callable[..., Any] = pa.ipc.new_stream, compression: str | None = "zstd"
) -> None:
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)


def largest(path: Path) -> int:
    """The bytes of the largest block of documents, as strings, that a file is read in."""
    (shard,) = find_shards(path.parent, path.name)
    columns = read_columns(shard, Reading("text"), limits=LIMITS)
    return max(one.texts.cast(pa.large_string()).nbytes for one in columns)


def documents(path: Path, conversations: Conversations | None = None) -> list[str]:
    (shard,) = find_shards(path.parent, path.name)
    batches = read_batches(shard, Reading("text", None, None, conversations), limits=LIMITS)
    return [text for batch in batches for text in batch.texts.to_pylist()]


def repeated(text: str, n: int, kind: str) -> pa.Array:
    """The same text many times, of which the array has one."""
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([text]))
    one = pa.array([text]).cast(pa.string_view()).buffers()
    return pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(one[1].to_pybytes() * n), *one[2:]])


@pytest.mark.slow
@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_rows_that_share_a_long_value_are_read_few_at_a_time(
    tmp_path: Path, kind: str, new: Callable[..., Any]
) -> None:
    write(tmp_path / "a.arrow", pa.table({"text": repeated("x" * 2 * MB, 400, kind)}), new)
    assert (tmp_path / "a.arrow").stat().st_size < 20_000
    assert largest(tmp_path / "a.arrow") < 5 * MB
    assert sum(map(len, documents(tmp_path / "a.arrow"))) == 400 * 2 * MB


@pytest.mark.slow
@pytest.mark.parametrize("new", NEW)
def test_a_record_batch_that_is_too_large_once_decoded_is_refused_before(
    tmp_path: Path, new: Callable[..., Any]
) -> None:
    write(tmp_path / "a.arrow", pa.table({"text": ["x" * 2 * MB] * 400}), new)
    before = pa.total_allocated_bytes()
    with pytest.raises(
        CorpusError,
        match=r"a.arrow: record batch 0, decoded, has 80\d,\d\d\d,\d\d\d bytes .*run.memory_mb_max leaves 6,000,000",
    ):
        documents(tmp_path / "a.arrow")
    assert pa.total_allocated_bytes() <= before


@pytest.mark.parametrize("new", NEW)
def test_a_body_that_is_longer_than_the_file_is_refused_before_memory_is_reserved(
    tmp_path: Path, new: Callable[..., Any]
) -> None:
    table = pa.table({"text": ["the cat", "the dog"]})
    write(path := tmp_path / "a.arrow", table, new)
    [batch] = table.to_batches()
    written = path.read_bytes()
    length = struct.pack("<q", pa.ipc.read_message(batch.serialize()).body.size)
    for start in (at for at in range(len(written)) if written.startswith(length, at)):
        path.write_bytes(written[:start] + struct.pack("<q", 1 << 33) + written[start + 8 :])
        try:
            assert documents(path) == ["the cat", "the dog"]  # these bytes were no length
        except CorpusError as error:
            assert "alloc" not in str(error)


@pytest.mark.parametrize("new", NEW)
def test_dictionaries_that_are_too_large_once_decoded_are_refused_before(
    tmp_path: Path, new: Callable[..., Any]
) -> None:
    write(tmp_path / "a.arrow", pa.table({"text": repeated("x" * 7 * MB, 3, "dictionary")}), new)
    with pytest.raises(CorpusError, match=r"a.arrow: what the dictionaries hold, decoded, has 7,0.*run.memory_mb_max"):
        documents(tmp_path / "a.arrow")


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_other_columns_decode_to_counts_for_nothing(
    tmp_path: Path, compression: str | None, new: Callable[..., Any]
) -> None:
    long = ["x" * 2 * MB] * 4
    wide = [
        pa.array(long),
        pa.array(long).cast(pa.string_view()),
        pa.array([None] * 4),
        pa.array([[{"a": "b"}], None, [], []]),
        pa.array([{"a": [one]} for one in long]),
        pa.array([[("a", one)] for one in long], pa.map_(pa.string(), pa.string())),
        pa.array([[one, one] for one in long], pa.list_(pa.string(), 2)),
        pa.array([[one] for one in long], pa.list_view(pa.string())),
        pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array(["x" * 7 * MB])),
        pa.UnionArray.from_dense(pa.array([0] * 4, pa.int8()), pa.array(range(4), pa.int32()), [pa.array(long)]),
        pa.UnionArray.from_sparse(pa.array([0] * 4, pa.int8()), [pa.array(long)]),
        pa.array([b"x" * 16] * 4, pa.uuid()),
        pa.array([True] * 4),
    ]
    texts = ["a", "", "b" * 1000, "c"]
    for i, other in enumerate(wide):
        table = pa.table({"other": other, "text": texts, "another": other})
        write(tmp_path / f"{i}.arrow", table, new, compression)
        if new is pa.ipc.new_stream and table.get_total_buffer_size() > 6 * MB and compression is None:
            continue  # a stream is read whole
        assert documents(tmp_path / f"{i}.arrow") == texts


def test_lists_of_nulls_without_bytes_are_refused(tmp_path: Path) -> None:
    messages = pa.StructArray.from_arrays([pa.nulls(100 * MB)], ["content"])
    lists = pa.ListArray.from_arrays(pa.array([0, 100 * MB], pa.int32()), messages)
    write(tmp_path / "a.arrow", pa.table({"m": lists}))
    assert (tmp_path / "a.arrow").stat().st_size < 2000
    with pytest.raises(CorpusError, match=r"a.arrow: record batch 0, decoded, has .*run.memory_mb_max"):
        documents(tmp_path / "a.arrow", Conversations("m", None, None))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_whose_values_repeat_the_ones_before_are_read_few_rows_at_a_time(
    tmp_path: Path, version: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"text": ["x" * 500_000] * 200})
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    path = tmp_path / "a.parquet"
    pq.write_table(
        table, path, use_dictionary=False, column_encoding=encoding, compression="zstd", data_page_version=version
    )
    assert path.stat().st_size < 3000
    assert max(sizes_of_batches(path, monkeypatch)) <= 6 * MB
    assert sum(map(len, documents(path))) == 200 * 500_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_lists_whose_texts_share_a_dictionary_are_read_few_rows_at_a_time(
    tmp_path: Path, version: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[{"role": "user", "content": "x" * 400_000}]] * 20 + [[{"role": "user", "content": "y"}] * 500] * 3
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"m": rows}), path, compression="zstd", data_page_version=version, row_group_size=8)
    assert max(sizes_of_batches(path, monkeypatch, Conversations("m", None, None))) <= 6 * MB
    found = documents(path, Conversations("m", None, None))
    assert [text.count("x") + text.count("y") for text in found] == [400_000] * 20 + [500] * 3


def test_a_row_with_too_many_values_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    values = pa.StructArray.from_arrays([pa.array(np.zeros(4 * MB, np.int8))], ["n"])
    lists = pa.ListArray.from_arrays(pa.array([0, 10, 4 * MB], pa.int32()), values)
    pq.write_table(pa.table({"m": lists}), tmp_path / "a.parquet", store_schema=False)
    assert (tmp_path / "a.parquet").stat().st_size < 3000
    with pytest.raises(CorpusError, match=r"a.parquet, row group 0: the longest row, decoded, has .*run.memory_mb_max"):
        documents(tmp_path / "a.parquet", Conversations("m", None, None))


def sizes_of_batches(
    path: Path, monkeypatch: pytest.MonkeyPatch, conversations: Conversations | None = None
) -> Iterator[int]:
    """The bytes of each batch that pyarrow decodes of a .parquet file."""
    seen: list[int] = []
    whole = pq.ParquetFile.iter_batches

    def watched(*args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in whole(*args, **named):
            seen.append(batch.nbytes)
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", watched)
        documents(path, conversations)
    yield from seen


def test_values_are_measured_as_if_each_had_its_own_bytes() -> None:
    message = pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.string())])
    rows = [[{"role": "ab", "content": "x" * 50}, {"role": None, "content": "yy"}], [], None]
    value = 16
    expected = [6 * value + 2 + 50 + 2, value, value]  # a null in a dictionary takes nothing
    for kind in (pa.list_(message), pa.large_list(message)):
        assert value_bytes(pa.array(rows * 2, kind).slice(1, 4)).tolist() == [*expected[1:], *expected[:2]]
    maps = pa.array([[("a", 1)], None, [("bb", 2), ("c", 3)]], pa.map_(pa.string(), pa.int8()))
    assert value_bytes(maps).tolist() == [4 * value + 1, value, 7 * value + 3]
    assert value_bytes(pa.array(["a" * 20, None, "b"]).cast(pa.string_view()).slice(1)).tolist() == [value, value + 1]
    overlapping = pa.ListViewArray.from_arrays([0, 0, 1], [2, 2, 1], pa.array(["a", "bc"]))
    assert value_bytes(overlapping).tolist() == [3 * value + 3, 3 * value + 3, 2 * value + 2]
    texts = pa.array(["a" * 20, "", "b"] * 2)
    assert list(runs_within([texts], 52, 10)) == [(0, 2, 52), (2, 1, 17), (3, 2, 52), (5, 1, 17)]
    assert list(runs_within([texts], 10, 10)) == [(i, 1, n) for i, n in enumerate([36, 16, 17] * 2)]


@pytest.mark.parametrize("seed", range(200))
def test_rows_of_pages_are_counted_by_their_levels(seed: int) -> None:
    rng = random.Random(seed)
    level_max = rng.choice([1, 1, 2, 3, 5])
    lengths = RowLengths(level_max)
    seen: list[int] = []
    for _ in range(rng.randint(1, 4)):
        runs = [
            [rng.choice([0, rng.randint(0, level_max)])] * rng.choice([1, 2, 9, 40]) for _ in range(rng.randint(0, 6))
        ]
        page = [level for run in runs for level in run]
        expected = (page.count(0), not page or page[0] > 0)
        assert lengths.add(encoded(page, level_max.bit_length(), rng), len(page)) == expected
        seen += page
    longest = length = 0
    for level in seen:
        length = length + 1 if level else 1
        longest = max(longest, length)
    assert lengths.longest == longest


def encoded(levels: Sequence[int], width: int, rng: random.Random) -> bytes:
    """Levels as runs of one value and of packed bits, chosen at random."""
    found = bytearray()
    at = 0
    while at < len(levels):
        n = next((i for i, level in enumerate(levels[at:]) if level != levels[at]), len(levels) - at)
        if rng.random() < 0.5:
            found += bytes([n << 1 & 127 | (128 if n > 63 else 0)]) + (bytes([n >> 6]) if n > 63 else b"")
            found += bytes([levels[at]])
            at += n
        else:
            some = [*levels[at : at + 16], *[0] * 15][: -(-len(levels[at : at + 16]) // 8) * 8]
            bits = [level >> i & 1 for level in some for i in range(width)]
            found += (
                bytes([len(some) // 8 << 1 | 1]) + np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()
            )
            at += 16
    return bytes(found)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_made_tables_are_read_within_the_memory_of_a_worker_or_refused(tmp_path: Path, format: str) -> None:
    command = [sys.executable, "-m", "tests.corpus.read_made_tables", str(tmp_path), format, "200"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(found) == 200
    for one in found:
        assert one["mb"] <= SHARE_MB * 1.15, one
        assert one["n_documents"] == one["n_rows"] if "n_documents" in one else "run.memory_mb_max" in one["refused"], (
            one
        )
    assert sum("refused" in one for one in found) < 60
