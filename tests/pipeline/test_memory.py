"""Workers share the memory limit of a build. A document that exceeds its share is refused by name before it is loaded."""

import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY, Project
from tokenmill.config.load_params import load_params
from tokenmill.config.params import RunOptions
from tokenmill.config.sources import Reading
from tokenmill.corpus import shard_ranges
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.corpus.units import cut
from tokenmill.counts.spill import SCHEMA
from tokenmill.counts.table import write_counts
from tokenmill.errors import CorpusError, CountsError, ParamsError
from tokenmill.pipeline.memory import BATCH_BYTES, Memory, divide
from tokenmill.stages.train_vocab import _check_fits
from tokenmill.storage.file_facts import Digests

LIMITS = Limits(document_bytes_max=5_000_000, block_bytes_max=6_000_000)
SHORT = "a short one"
MB = 1_000_000


def run_options(memory_mb_max: int, engine: str, workers: int | None, address: str | None = None) -> RunOptions:
    run = load_params(REPOSITORY / "params.yaml").run.model_dump()
    return RunOptions(
        **{**run, "memory_mb_max": memory_mb_max, "engine": engine, "workers": workers, "address": address}
    )


def test_worker_processes_share_the_memory_and_those_elsewhere_have_it_each() -> None:
    assert divide(run_options(4096, "dask", 2)).share_mb == (4096 - 384 - 2 * 256) // 2
    assert divide(run_options(4096, "ray", 2, "10.0.0.1:6379")).share_mb == (4096 - 384) // 2
    elsewhere = divide(run_options(4096, "ray", None, "10.0.0.1:6379"))
    assert elsewhere.process_bytes_max == 1.2 * 4096 * MB
    assert divide(run_options(4096, "dask", 2)).process_bytes_max == 1.2 * (4096 - 384) / 2 * MB
    assert (elsewhere.workers, elsewhere.own_threads) == (1, len(os.sched_getaffinity(0)))


def test_memory_is_divided_among_as_many_workers_as_it_is_enough_for() -> None:
    assert divide(run_options(4096, "threads", 2)).share_mb == (4096 - 384) // 2
    assert divide(run_options(4096, "threads", 64)).workers == (4096 - 384) // 160
    least = divide(run_options(416, "inline", 8))
    assert (least.workers, least.share_mb, least.kept_mb) == (1, 160, 40)
    limits = Limits(BATCH_BYTES, block_bytes_max=160 * MB // 12, held_bytes_max=20 * MB)
    assert replace(least.limits, process_bytes_max=None) == limits
    assert divide(run_options(4096, "threads", 2), reads_objects=True).share_mb == (4096 - 384) // 2 - 24
    with pytest.raises(ParamsError, match="found 415; allowed: 416 or more"):
        divide(run_options(415, "inline", 1))


def table(texts: list[str]) -> pa.Table:
    return pa.table({"id": [str(i) for i in range(len(texts))], "text": pa.array(texts, pa.large_string())})


def write_lines(path: Path, texts: list[str]) -> None:
    lines = b"".join(json.dumps({"id": str(i), "text": text}).encode() + b"\n" for i, text in enumerate(texts))
    if path.suffix != ".jsonl":
        lines = pa.Codec("zstd" if path.suffix == ".zst" else "gzip").compress(lines, asbytes=True)
    path.write_bytes(lines)


def write_arrow(path: Path, texts: list[str]) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table(texts).schema) as writer:
        writer.write_table(table(texts))


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "a.jsonl": write_lines,
    "a.jsonl.gz": write_lines,
    "a.jsonl.zst": write_lines,
    "a.txt": lambda path, texts: path.write_text("|".join(texts), encoding="utf-8") and None,
    "a.parquet": lambda path, texts: pq.write_table(table(texts), path),
    "a.arrow": write_arrow,
}


def read(path: Path, limits: Limits = LIMITS, separator: str | None = "|") -> list[int]:
    """The bytes of each batch of a file."""
    (shard,) = find_shards(path.parent, path.name)
    return [batch.text_bytes for batch in read_batches(shard, Reading("text", "id", separator), limits=limits)]


@pytest.mark.parametrize("name", WRITERS)
def test_a_document_that_is_too_long_is_named_with_the_limit(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [SHORT] * 3 + ["x" * 4_900_000, SHORT])
    assert sum(read(tmp_path / name)) == 4 * len(SHORT) + 4_900_000
    WRITERS[name](tmp_path / name, [SHORT] * 3 + ["x" * 5_000_001, SHORT])
    where = "line 4" if "jsonl" in name else "row 3"
    with pytest.raises(CorpusError, match=rf"{name}, {where}: .* 5,000,000 bytes, .*run.memory_mb_max"):
        read(tmp_path / name)


def test_a_text_file_that_is_one_document_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(1 << 40)  # a hole
    with pytest.raises(CorpusError, match=r"a.txt, row 0: the document is longer than 5,000,000"):
        read(tmp_path / "a.txt", separator=None)


def test_what_a_format_makes_read_at_once_is_refused_by_its_own_limit(tmp_path: Path) -> None:
    texts = ["x" * MB] * 7
    pq.write_table(table(texts), tmp_path / "a.parquet", use_dictionary=False, data_page_size=1 << 30)
    with pytest.raises(CorpusError, match=r"a.parquet, row group 0: the page of column 'text' from row 0 on has 7,"):
        read(tmp_path / "a.parquet")
    write_arrow(tmp_path / "a.arrow", texts)
    with pytest.raises(CorpusError, match=r"a.arrow: record batch 0 .* smaller record batches"):
        read(tmp_path / "a.arrow")


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_record_batch_of_an_arrow_file_is_refused_before_it_is_read(tmp_path: Path, new: Callable[..., Any]) -> None:
    small, large = table([SHORT] * 100).to_batches()[0], table(["x" * MB] * 7).to_batches()[0]
    with new(str(tmp_path / "a.arrow"), small.schema) as writer:
        for batch in (small, small, large):
            writer.write_batch(batch)
    (shard,) = find_shards(tmp_path, "a.arrow")
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"a.arrow: record batch 2 .* has 7,"):
        list(read_batches(shard, Reading("text", "id", None), limits=LIMITS))
    assert tracemalloc.get_traced_memory()[1] < 7 * MB
    tracemalloc.stop()


def test_what_other_columns_hold_counts_for_nothing_in_an_arrow_file(tmp_path: Path) -> None:
    wide = table([SHORT] * 7).append_column("other", pa.array(["x" * MB] * 7))
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), wide.schema) as writer:
        writer.write_table(wide)
    assert sum(read(tmp_path / "a.arrow")) == 7 * len(SHORT)


@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
def test_rows_of_a_parquet_file_are_read_few_at_a_time_where_they_are_long(
    tmp_path: Path, page_version: str, use_dictionary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [SHORT] * 20_000 + [f"{i:0100000}" for i in range(120)] + [SHORT] * 20_000
    options = {"data_page_version": page_version, "use_dictionary": use_dictionary, "write_batch_size": 16}
    pq.write_table(table(texts), tmp_path / "a.parquet", data_page_size=1 << 16, **options)
    seen: list[int] = []
    whole = pq.ParquetFile.iter_batches

    def watched(*args: object, **named: object) -> object:
        for batch in whole(*args, **named):
            seen.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    assert sum(read(tmp_path / "a.parquet")) == sum(map(len, texts))
    assert max(seen) <= LIMITS.block_bytes_max + 2**16  # type: ignore[operator]


def test_lines_longer_than_what_is_read_of_them_at_once_are_cut_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "a.jsonl", ["x" * (i * 37 % 301) for i in range(200)])
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"\n  \n" + b'{"id": "last", "text": ""}')
    shards = find_shards(tmp_path, "a.jsonl")
    whole = cut(shards, Digests(tmp_path, trust=False), 0, 2000, 1)
    monkeypatch.setattr(shard_ranges, "_READ_BYTES", 13)
    assert cut(shards, Digests(tmp_path, trust=False), 0, 2000, 1) == whole
    assert len(whole.units) > 10


def test_a_training_that_would_not_fit_is_refused_before_the_counts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    write_counts(pa.table([[f"{i:0100}".encode() for i in range(10_000)], [2] * 10_000], schema=SCHEMA), path)
    _check_fits([path], Memory(mb_max=288, base_mb=256, workers=1))
    with pytest.raises(
        CountsError, match=r"10,000 distinct pre-tokens of 1 MB .* 288 MB; run.memory_mb_max allows 287"
    ):
        _check_fits([path], Memory(mb_max=287, base_mb=256, workers=1))


_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 // 1_000_000)
sys.exit(code)
"""


@pytest.mark.slow
def test_a_build_stays_under_its_limit_and_names_it(project: Project) -> None:
    project.write("c.jsonl", [" ".join(map(str, range(i * 60_000, (i + 1) * 60_000))) for i in range(10)])
    project.write("d.jsonl", [SHORT, "a " * 50 * MB])
    project.set(run__memory_mb_max=416)
    done = project.run(sys.executable, "-c", _MEASURED, "tokenmill", "build", "--only", "count")
    assert done.returncode == 2
    assert "416 MB are enough for 1 of 2 workers" in done.stderr
    assert "d.jsonl, line 2: the document is longer than 4,194,304 bytes" in done.stderr
    assert int(done.stdout.splitlines()[-1]) <= 416


@pytest.mark.slow
def test_long_texts_one_after_another_take_no_more_memory_than_a_few(project: Project) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["a" * 2 * MB]))
    rows = pa.table({"id": list(map(str, range(200))), "text": texts})
    with pa.ipc.new_file(
        project.root / "data/raw/c.arrow", rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(rows)
    project.set(run__memory_mb_max=416, run__workers=1)
    done = project.run(sys.executable, "-c", _MEASURED, "tokenmill", "build")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) <= 416
