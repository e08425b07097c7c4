"""make bench-task: the inside of an encode task (read a shard, encode, write Parquet, take its digest), and readers of JSON lines.

English text, gpt2, one thread, processor time: the best of five, in MB of text a second. The encoder has met the text before, as
it has met nearly all of it late in a long build. What is read and decoded is compared with the documents before its time counts.
What this does not show: the disk (all is in the page cache), and reading in several threads, which polars does.
"""

import hashlib
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks import record
from benchmarks.corpus import documents
from benchmarks.harness import bytes_of, options, recording
from benchmarks.process import timed
from tokenmill import _core, train_vocab
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import Batch, Shard, find_shards, read_batches
from tokenmill.counts.counter import Counter
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import id_type, rows, schema

T = TypeVar("T")

_TEXT_BYTES = 60_000_000
_VOCAB_SIZE = 50_000
_N_RUNS = 5


def main() -> None:
    asked = options("encode_task", __doc__).parse_args()
    with recording("task", ("pyarrow", "polars", "orjson", "msgspec"), asked) as measured:
        texts = documents(_TEXT_BYTES)
        n_bytes = bytes_of(texts)
        print(f"{len(texts):,} documents, {n_bytes / 1e6:.1f} MB of text")

        def show(what: str, work: Callable[[], T]) -> T:
            cpu_s: list[float] = []
            for _ in range(_N_RUNS):
                _, run_cpu_s, done = timed(work)
                cpu_s.append(run_cpu_s)
            print(f"  {what:<32} {n_bytes / 1e6 / min(cpu_s):7.0f} MB/s", flush=True)
            cell = {"step": what, "text_bytes": n_bytes, "cores": 1, "runs_cpu_s": record.seconds(cpu_s)}
            measured.cells.append(cell | {"runs_mb_per_s": record.mb_per_s(n_bytes, cpu_s)})
            return done

        counter = Counter("gpt2")
        counter.update(texts)
        tokenizer = train_vocab(counter, _VOCAB_SIZE, "gpt2")
        shape = schema(id_type(tokenizer.id_max), has_names=True)
        folder = measured.folder
        lines = _write_shards(texts, folder)
        for file in sorted(folder.iterdir()):
            [shard] = find_shards(folder, file.name)
            batches = show(f"read {file.name}", partial(_read, shard))
            assert [text for batch in batches for text in batch.texts.to_pylist()] == texts, f"{file.name}: other texts"
        ids = show("encode", lambda: [tokenizer.encode_batch(batch.texts, threads=1) for batch in batches])
        tables = show("narrow", lambda: [rows(batch, some, shape) for batch, some in zip(batches, ids, strict=True)])
        assert b"".join(tokenizer.decode_bytes(one.values) for some in ids for one in some) == "".join(texts).encode()
        output = folder / "tokens.parquet"
        show("write", lambda: _write(output, shape, tables))
        assert sum(len(one) for one in read_tokens(output)) == len(texts)
        show("digest", lambda: hashlib.sha256(output.read_bytes()).digest())
        decode = msgspec.json.Decoder(msgspec.defstruct("Document", [("id", str), ("text", str)], gc=False)).decode
        in_one_thread = pa.json.ReadOptions(use_threads=False, block_size=1 << 24)
        readers: dict[str, Callable[[], pa.Array]] = {
            "the core, as the build": lambda: _core.json_lines(lines, "text", ["id"])[0],
            "msgspec": lambda: _array([decode(line).text for line in lines.splitlines()]),
            "orjson": lambda: _array([orjson.loads(line)["text"] for line in lines.splitlines()]),
            "json": lambda: _array([json.loads(line)["text"] for line in lines.splitlines()]),
            "pyarrow": lambda: pa.json.read_json(io.BytesIO(lines), read_options=in_one_thread)["text"],
            "polars": lambda: pl.read_ndjson(lines)["text"].to_arrow(),
        }
        for reader, work in readers.items():
            assert work().to_pylist() == texts, f"{reader} reads other texts"
            show(f"JSON lines: {reader}", work)


def _read(shard: Shard) -> list[Batch]:
    return list(read_batches(shard, Reading("text", "id", None)))


def _write(path: Path, shape: pa.Schema, tables: list[pa.RecordBatch]) -> None:
    with write_tokens(path, shape) as write:
        for table in tables:
            write(table)


def _array(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def _write_shards(texts: list[str], folder: Path) -> bytes:
    """The same documents in three formats; the JSON lines are what comes back."""
    ids = [str(i) for i in range(len(texts))]
    lines = b"".join(orjson.dumps({"id": id, "text": text}) + b"\n" for id, text in zip(ids, texts, strict=True))
    (folder / "shard.jsonl").write_bytes(lines)
    (folder / "shard.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines, asbytes=True))
    pq.write_table(pa.table({"id": ids, "text": _array(texts)}), folder / "shard.parquet", row_group_size=2000)
    return lines


if __name__ == "__main__":
    main()
