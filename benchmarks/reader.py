"""make bench-reader: how fast `tokenmill.open` gives documents and sequences, in order and at random, from each of its formats.

The ids are random, in documents of lognormal lengths. Every item is compared with what was written before anything is timed. A
sequence counts when its ids were copied into a batch; a document when its array is there, as its ids may stay unread. The time
is that of one core's processor, since others use the machine, too. What this does not show: files that are not in the page
cache, and datasets larger than memory.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

import tokenmill
from benchmarks import record
from tokenmill.dataset.entries import Files, FileSet, InputRows, OutputShard, SetPart, TableFile
from tokenmill.dataset.manifest import Manifest, write_manifest
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import schema
from tokenmill_reader.formats.columns import id_type_of, schema_of
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.token_dataset import TokenDataset

FORMATS = ("arrow", "megatron", "datatrove", "parquet")
LENGTH = 2048
ID_MAX = 50_256
PARTS = 4
BATCH_DOCUMENTS = 4096
AT_RANDOM = 200_000
AT_RANDOM_IN_PARQUET = 1_000  # a row group is read for most of them

_NO_DIGEST = "0" * 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reader", description=__doc__)
    parser.add_argument("--ids", type=int, default=250_000_000, help="token ids, of two bytes each")
    parser.add_argument("--runs", type=int, default=5)
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("reader", ("pyarrow", "numpy"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-reader-") as name:
        folder = Path(name)
        write_dataset(folder, asked.ids)
        check(folder, asked.ids)
        runs: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
        for _ in range(asked.runs):
            for format in FORMATS:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    for what, *measured in pool.submit(measure, folder, format).result():
                        runs.setdefault((format, what), []).append(tuple(measured))
    for (format, what), measured in runs.items():
        n_items = measured[0][0]
        rates = sorted(n_items / cpu_s for _, _, cpu_s in measured)
        low, middle, high = rates[0], rates[len(rates) // 2], rates[-1]
        line = f"{format:10}{what:42}{middle:12,.0f} a second ({low:,.0f} to {high:,.0f})"
        print(line + (f", {middle * LENGTH * 2 / 1e9:.2f} GB/s of ids" if what.startswith("sequences") else ""))
        seconds = {
            "runs_s": record.seconds(wall_s for _, wall_s, _ in measured),
            "runs_cpu_s": record.seconds(cpu_s for _, _, cpu_s in measured),
        }
        section["cells"].append({"name": what, "format": format, "cores": 1, "n_items": n_items, **seconds})
    record.keep(section, asked.record)


def parts_of(n_ids: int) -> Iterator[list[pa.RecordBatch]]:
    """The documents of each part."""
    form = schema_of(_shape())
    for part in range(PARTS):
        random = np.random.default_rng(part)
        lengths = np.maximum(random.lognormal(6, 1, n_ids // PARTS // 400).astype(np.int64), 1)
        lengths = lengths[np.cumsum(lengths) <= n_ids // PARTS]
        batches = []
        for at in range(0, len(lengths), BATCH_DOCUMENTS):
            offsets = np.append(0, np.cumsum(lengths[at : at + BATCH_DOCUMENTS])).astype(np.int32)
            ids = random.integers(0, ID_MAX + 1, offsets[-1], dtype=np.uint16)
            rows = pa.array(np.arange(at, at + len(offsets) - 1))
            lists = pa.ListArray.from_arrays(offsets, ids, type=form.field("input_ids").type)
            shards = pa.repeat("0.jsonl", len(rows))
            batches.append(pa.RecordBatch.from_arrays([rows, lists, rows, shards, rows], schema=form))
        yield batches


def write_dataset(folder: Path, n_ids: int) -> None:
    """A dataset in the formats that are measured, as an encode stage would leave it."""
    shape = _shape()
    sets: dict[str, list[SetPart]] = {format: [] for format in FORMATS if format != "parquet"}
    shards = []
    for i, batches in enumerate(parts_of(n_ids)):
        n_documents = sum(batch.num_rows for batch in batches)
        n_tokens = sum(len(batch["input_ids"].flatten()) for batch in batches)
        form = schema(id_type_of(shape), shape.has_names)
        with write_tokens(folder / f"unit-{i}.parquet", form) as add:
            for batch in batches:
                add(batch.select(form.names))
        shards.append(
            OutputShard(
                **_file(folder, f"unit-{i}.parquet").model_dump(),
                unit="",
                n_documents=n_documents,
                n_tokens=n_tokens,
                text_bytes=0,
                rows=[InputRows(name="0.jsonl", first_row=0, first_line=1, n_documents=n_documents, n_bad=0)],
                tokens_sha256=_NO_DIGEST,
            )
        )
        for format, parts in sets.items():
            (folder / format).mkdir(exist_ok=True)
            with SET_FORMATS[format].write(folder / format, f"part-{i:05}", shape) as add:
                for batch in batches:
                    add(batch)
            names = SET_FORMATS[format].files(f"part-{i:05}", shape)
            files = [_file(folder, f"{format}/{name}") for name in names]
            parts.append(SetPart(files=files, n_items=n_documents, n_tokens=n_tokens))
    manifest = Manifest(
        engine="benchmark",
        tokenizer_digest=_NO_DIGEST,
        params_digest=_NO_DIGEST,
        id_type="uint16",
        id_max=ID_MAX,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_documents=sum(shard.n_documents for shard in shards),
        n_tokens=sum(shard.n_tokens for shard in shards),
        text_bytes=0,
        n_bad=0,
        quarantine_sha256=_NO_DIGEST,
        inputs=[],
        shards=shards,
        files=Files(file_bytes=1 << 30, splits={}, split_group=None, shuffle=None, pack=None, pad_id=None),
        sets=[
            FileSet(format=name, split=None, source=None, epoch=None, parts=parts, shared=[])
            for name, parts in sets.items()
        ],
    )
    write_manifest(manifest, folder)


def check(folder: Path, n_ids: int) -> None:
    """Whether each format gives the documents that were written."""
    datasets = [iter(tokenmill.open(folder, format=format)) for format in FORMATS]
    for batches in parts_of(n_ids):
        for batch in batches:
            ids, offsets = batch["input_ids"].values.to_numpy(), batch["input_ids"].offsets.to_numpy()
            for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                for dataset in datasets:
                    assert np.array_equal(next(dataset), ids[start:stop])
    assert all(next(dataset, None) is None for dataset in datasets)


def measure(folder: Path, format: str) -> list[tuple[str, int, float, float]]:
    """What was read, how many items, in how many seconds, and seconds of the processor. Each file was read once before."""
    dataset = tokenmill.open(folder, format=format)
    sequences = dataset.sequences(LENGTH)
    n_at_random = AT_RANDOM if format != "parquet" else AT_RANDOM_IN_PARQUET
    asked = np.random.default_rng(0).integers(0, len(dataset), n_at_random)
    one_by_one = asked.tolist()
    _copy(sequences)
    tasks: dict[str, tuple[int, Callable[[], object]]] = {
        "documents at random, dataset[i]": (n_at_random, lambda: [dataset[i] for i in one_by_one]),
        "documents at random, take": (n_at_random, lambda: dataset.take(asked)),
        "documents in order": (len(dataset), lambda: sum(1 for _ in dataset)),
        "sequences in order, sequences[i]": (
            len(sequences),
            lambda: _copy(sequences[i] for i in range(len(sequences))),
        ),
        "sequences in order": (len(sequences), lambda: _copy(sequences)),
    }
    if format != "parquet":
        shuffled = sequences.shuffle(seed=0).shard(0, 1)
        tasks["sequences shuffled, shard"] = (len(sequences), lambda: _copy(shuffled))
    found = []
    for what, (n_items, task) in tasks.items():
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        task()
        found.append((what, n_items, time.perf_counter() - start_s, time.process_time() - start_cpu_s))
    return found


def _copy(sequences: "TokenDataset | Iterator[np.ndarray]") -> None:
    batch = np.empty(LENGTH, np.uint16)
    for ids in sequences:
        batch[:] = ids


def _shape() -> Shape:
    return Shape(ID_MAX, _NO_DIGEST, None, None, has_names=False)


def _file(folder: Path, name: str) -> TableFile:
    return TableFile(name=name, n_bytes=(folder / name).stat().st_size, sha256=_NO_DIGEST)


if __name__ == "__main__":
    main()
