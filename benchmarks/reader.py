"""make bench-reader: how fast `tokenmill.open` gives documents and sequences, in order and at random, from each of its formats.

The ids are random, in documents of lognormal lengths. Every item is compared with what was written before anything is timed. A
sequence counts when its ids were copied into a batch; a document when its array is there, as its ids may stay unread. The time
is that of one core's processor, since others use the machine, too. What this does not show: files that are not in the page
cache, and datasets larger than memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import tokenmill
from benchmarks.harness import in_turns, options, recording, runs_of, spread
from benchmarks.process import Run, timed
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

NO_DIGEST = "0" * 64


def main() -> None:
    parser = options("reader", __doc__, runs=5)
    parser.add_argument("--ids", type=int, default=250_000_000, help="token ids, of two bytes each")
    asked = parser.parse_args()
    with recording("reader", ("pyarrow", "numpy"), asked) as measured:
        write_dataset(measured.folder, asked.ids)
        check(measured.folder, asked.ids)
        rounds = in_turns({format: partial(_in_process, measured.folder, format) for format in FORMATS}, asked.runs)
        for format, results in rounds.items():
            for what in results[0]:
                runs = [result[what] for result in results]
                n_items = runs[0].result
                rates = [n_items / run.cpu_s for run in runs]
                line = f"{format:10}{what:42}{spread(rates, '12,.0f', ' a second')}"
                if what.startswith("sequences"):
                    line += f", {median(rates) * LENGTH * 2 / 1e9:.2f} GB/s of ids"
                print(line)
                cell = {"name": what, "format": format, "cores": 1, "n_items": n_items}
                measured.cells.append(cell | runs_of(runs))


def _in_process(folder: Path, format: str) -> dict[str, Run]:
    """What `measure` returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, folder, format).result()


def parts_of(n_ids: int) -> Iterator[list[pa.RecordBatch]]:
    """The documents of each part."""
    for part in range(PARTS):
        random = np.random.default_rng(part)
        lengths = np.maximum(random.lognormal(6, 1, n_ids // PARTS // 400).astype(np.int64), 1)
        lengths = lengths[np.cumsum(lengths) <= n_ids // PARTS]
        batches = []
        for at in range(0, len(lengths), BATCH_DOCUMENTS):
            offsets = np.append(0, np.cumsum(lengths[at : at + BATCH_DOCUMENTS])).astype(np.int32)
            ids = random.integers(0, ID_MAX + 1, offsets[-1], dtype=np.uint16)
            batches.append(batch_of(shape_of_ids(), offsets, ids, at))
        yield batches


def batch_of(
    shape: Shape, offsets: np.ndarray, ids: np.ndarray, first_row: int, shard: str = "0.jsonl", stem: str = ""
) -> pa.RecordBatch:
    """Documents in consecutive rows of a shard. Document i has ids[offsets[i]:offsets[i + 1]]; its name is its row, behind the stem
    where there is one."""
    form = schema_of(shape)
    rows = pa.array(np.arange(first_row, first_row + len(offsets) - 1))
    names = pa.array([f"{stem}{row:09}" for row in rows.to_pylist()]) if stem else rows
    lists = pa.ListArray.from_arrays(offsets, pa.array(ids), type=form.field("input_ids").type)
    return pa.RecordBatch.from_arrays([names, lists, rows, pa.repeat(shard, len(rows)), rows], schema=form)


def write_dataset(folder: Path, n_ids: int) -> None:
    """A dataset in the formats that are measured, as an encode stage would leave it."""
    shape = shape_of_ids()
    sets: dict[str, list[SetPart]] = {format: [] for format in FORMATS if format != "parquet"}
    shards = []
    for i, batches in enumerate(parts_of(n_ids)):
        n_documents = sum(batch.num_rows for batch in batches)
        n_tokens = sum(len(batch["input_ids"].flatten()) for batch in batches)
        form = schema(id_type_of(shape), shape.has_names)
        with write_tokens(folder / f"unit-{i}.parquet", form) as add:
            for batch in batches:
                add(batch.select(form.names))
        numbers = {"unit": "", "n_documents": n_documents, "n_tokens": n_tokens, "text_bytes": 0}
        rows = InputRows(name="0.jsonl", first_row=0, first_line=1, n_documents=n_documents, n_bad=0)
        file = _file(folder, f"unit-{i}.parquet").model_dump()
        shards.append(OutputShard(**file, **numbers, rows=[rows], tokens_sha256=NO_DIGEST))
        for format, parts in sets.items():
            names = write_part(folder / format, format, i, batches)
            files = [_file(folder, f"{format}/{name}") for name in names]
            parts.append(SetPart(files=files, n_items=n_documents, n_tokens=n_tokens))
    write_manifest(manifest_of(shards, sets, 1 << 30), folder)


def write_part(folder: Path, format: str, i: int, batches: Iterable[pa.RecordBatch]) -> Sequence[str]:
    """Writes one part of a format; the names of its files are returned."""
    folder.mkdir(parents=True, exist_ok=True)
    with SET_FORMATS[format].write(folder, f"part-{i:05}", shape_of_ids()) as add:
        for batch in batches:
            add(batch)
    return SET_FORMATS[format].files(f"part-{i:05}", shape_of_ids())


def manifest_of(shards: list[OutputShard], sets: dict[str, list[SetPart]], file_bytes: int) -> Manifest:
    """The manifest of a dataset with these files, by format; nothing in it leads back to text."""
    parts = next(iter(sets.values()))
    nothing: dict[str, Any] = {"split": None, "source": None, "epoch": None, "shared": []}
    return Manifest(
        engine="benchmark",
        tokenizer_digest=NO_DIGEST,
        params_digest=NO_DIGEST,
        id_type="uint16",
        id_max=ID_MAX,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_documents=sum(part.n_items for part in parts),
        n_tokens=sum(part.n_tokens for part in parts),
        text_bytes=0,
        n_bad=0,
        quarantine_sha256=NO_DIGEST,
        inputs=[],
        shards=shards,
        files=Files(file_bytes=file_bytes, splits={}, split_group=None, shuffle=None, pack=None, pad_id=None),
        sets=[FileSet(format=name, parts=parts, **nothing) for name, parts in sets.items()],
    )


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


def measure(folder: Path, format: str) -> dict[str, Run]:
    """The run of each way to read, with the number of its items as its result. Each file was read once before."""
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
    return {what: timed(task)._replace(result=n_items) for what, (n_items, task) in tasks.items()}


def _copy(sequences: "TokenDataset | Iterator[np.ndarray]") -> None:
    batch = np.empty(LENGTH, np.uint16)
    for ids in sequences:
        batch[:] = ids


def shape_of_ids() -> Shape:
    """What the formats are told of the ids."""
    return Shape(ID_MAX, NO_DIGEST, None, None, has_names=False)


def _file(folder: Path, name: str) -> TableFile:
    return TableFile(name=name, n_bytes=(folder / name).stat().st_size, sha256=NO_DIGEST)


if __name__ == "__main__":
    main()
