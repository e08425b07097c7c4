"""make bench-sets: what the files for training jobs cost: the encode stage with one format and with two, the writer of each
format alone, packing, shuffling, and whole ways of other tools from the same JSON lines to the same formats.

The corpus is English text, other letters changed in each shard. The tokenizer is gpt-2, which nobody has to learn. Each encode
stage is a process of its own, with two workers and an empty unit store; starting it, and what DVC does around the stage, is not
timed. The writers get documents that are in memory; two parts are written at the same time, as two workers do it, and flushed to
the disk, as are the same bytes in plain files beside them. Other tools run in .interop-venv, which `make test-interop` makes, and
are left out without it; their ids are compared with tokenmill's before a time counts. What this does not show: formats that read
from the network, and sets larger than memory.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import record
from benchmarks.corpus import GPT2
from benchmarks.file_sets_one import WAYS, digest, flat_arrays, litdata_chunks
from benchmarks.harness import Cell, Recording, in_turns, options, recording, runs_of, spread, verdict
from benchmarks.process import ROOT, Run, run_module, timed
from benchmarks.project import build_up_to_encode, change_params, encode_stage, sharded_project
from benchmarks.reader import NO_DIGEST, batch_of
from tokenmill.file_sets.packing import pack
from tokenmill.file_sets.shuffle import buckets_of, gather, scatter
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.storage.atomic import flush
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.order import Order

PARTS = ("encode", "write", "arrange", "others")
LENGTH = 2048
_SHARD_BYTES = 20_000_000
_SPLITS = {"train": 0.98, "validation": 0.02}
_FORMATS = (("parquet",), ("megatron",), ("parquet", "megatron"))
_ID_BYTES = 256_000_000
_N_WRITERS = 2
_BATCH_DOCUMENTS = 2048
_N_PACKED = 1_000_000
_END = "<|endoftext|>"


def main() -> None:
    parser = options("file_sets", __doc__, runs=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--text-mb", type=int, default=500, help="of the encode stage")
    parser.add_argument(
        "--others-mb", type=int, default=40, help="of the other tools, some of which are slow; at least 40, two shards"
    )
    parser.add_argument("--tokenizer", type=Path, default=GPT2, help="tokenizer.json of gpt-2")
    parser.add_argument("--directory", type=Path, help="where there is room for four times the text")
    parser.add_argument("--interop", type=Path, default=ROOT / ".interop-venv", help="the environment of other tools")
    parser.add_argument("--bench", type=Path, default=ROOT / ".bench-venv", help="the environment of other encoders")
    asked = parser.parse_args()
    parts = {"encode": encode, "write": write, "arrange": arrange}
    own = [part for part in asked.only if part in parts]
    if own:
        with recording("file_sets", ("pyarrow", "numpy"), asked) as measured:
            for part in own:
                (measured.folder / part).mkdir()
                measured.cells.extend(parts[part](measured.folder / part, asked))
    if "others" in asked.only:
        with recording("file_sets_others", ("pyarrow", "numpy"), asked) as measured:
            others(measured, asked)


def encode(folder: Path, asked: argparse.Namespace) -> list[Cell]:
    """The encode stage with each choice of formats, without splits and with them."""
    project = folder / "project"
    n_bytes = make_project(project, asked.text_mb * 10**6, asked.tokenizer)
    kinds = [(formats, bool(splits)) for splits in ({}, _SPLITS) for formats in _FORMATS]
    runs = in_turns({kind: partial(stage, project, *kind) for kind in kinds}, asked.runs)
    cells = []
    print(f"\nencode, {n_bytes / 1e6:,.0f} MB of JSON lines, two workers")
    for (formats, has_splits), measured in runs.items():
        cell = {"name": "encode", "formats": list(formats), "has_splits": has_splits, "text_bytes": n_bytes}
        cells.append(cell | {"cores": 2} | runs_of(measured))
        one_format = [runs[_FORMATS[i], has_splits] for i in (0, 1)]
        rounds = list(zip(measured, *one_format, strict=True))
        ratios = [statistics.median(run[k] / max(first[k], second[k]) for run, first, second in rounds) for k in (0, 1)]
        what = f"{', '.join(formats)}{', splits' if has_splits else ''}"
        _print(what, measured, f"{ratios[0]:.2f} × the slower of one format; {ratios[1]:.2f} of processor time")
    return cells


def make_project(root: Path, text_bytes: int, tokenizer: Path) -> int:
    """A project with a fixed tokenizer, built up to its encode stage; the bytes of its shards."""
    n_bytes = sharded_project(root, -(-text_bytes // _SHARD_BYTES), _SHARD_BYTES, "inline", grouped=True)
    build_up_to_encode(root, tokenizer)
    return n_bytes


def stage(project: Path, formats: Sequence[str], has_splits: bool) -> Run:
    """The encode stage, which makes these formats."""
    change_params(project, {}, "encode", {"formats": list(formats), "splits": _SPLITS if has_splits else {}})
    return encode_stage(project)


def write(folder: Path, asked: argparse.Namespace) -> list[Cell]:
    """The writer of each format, and plain files beside it, in turns."""
    cells = []
    for ids, id_max in ((pa.uint16(), 50_256), (pa.uint32(), 150_000)):
        shape = Shape(id_max, NO_DIGEST, None, 0, has_names=True)
        parts = documents(shape, _ID_BYTES // ids.byte_width)
        n_bytes = sum(batch["input_ids"].values.nbytes for part in parts for batch in part)
        formats = [format for format in SET_FORMATS.values() if format.refusal(shape, 1 << 30) is None]
        writers: dict[str, Callable[[Path, int], None]] = {"plain file": partial(_write_plain, parts)}
        writers |= {format.name: partial(_write_part, format, shape, parts) for format in formats}
        ways = {name: partial(_in_parts, folder / "out", writer) for name, writer in writers.items()}
        runs = in_turns(ways, asked.runs)
        print(f"\nwrite, {n_bytes / 1e6:,.0f} MB of ids, {ids}, {_N_WRITERS} parts at the same time")
        for name, measured in runs.items():
            cell = {"name": "write", "format": name, "ids": str(ids), "id_bytes": n_bytes, "cores": 2}
            cell |= runs_of(measured, n_bytes)
            share = statistics.median(
                plain.seconds / run.seconds for run, plain in zip(measured, runs["plain file"], strict=True)
            )
            rate = statistics.median(cell["runs_mb_per_s"])
            cpu_rate = statistics.median(record.mb_per_s(n_bytes, [run.cpu_s for run in measured]))
            _print(
                name, measured, f"{rate:5.0f} MB/s, {share:.2f} of the disk's; {cpu_rate:5.0f} MB/s of processor time"
            )
            cells.append(cell)
    return cells


def documents(shape: Shape, n_ids: int) -> list[list[pa.RecordBatch]]:
    """Documents of about 1,000 tokens, in batches, of as many parts as there are writers. Small ids are frequent."""
    parts = []
    for part in range(_N_WRITERS):
        random = np.random.default_rng(part)
        batches, n_left, row = [], n_ids // _N_WRITERS, 0
        while n_left > 0:
            offsets = np.append(0, np.cumsum(random.integers(500, 1500, _BATCH_DOCUMENTS))).astype(np.int32)
            values = (random.zipf(1.3, offsets[-1]) % shape.id_max).astype(shape.ids)
            batches.append(batch_of(shape, offsets, values, row, f"raw/{part:05}.jsonl.zst", f"document-{part}-"))
            n_left, row = n_left - int(offsets[-1]), row + _BATCH_DOCUMENTS
        parts.append(batches)
    return parts


def _write_part(format: Any, shape: Shape, parts: list[list[pa.RecordBatch]], folder: Path, i: int) -> None:
    with format.write(folder, f"part-{i:05}", shape) as add:
        for batch in parts[i]:
            add(batch)
    for name in format.files(f"part-{i:05}", shape):
        flush(folder / name)


def _write_plain(parts: list[list[pa.RecordBatch]], folder: Path, i: int) -> None:
    with (folder / str(i)).open("wb") as file:
        for batch in parts[i]:
            file.write(batch["input_ids"].values.to_numpy())
    flush(folder / str(i))


def _in_parts(folder: Path, write_part: Callable[[Path, int], None]) -> Run:
    """Threads make their parts in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()

    def write_parts() -> None:
        with ThreadPoolExecutor(_N_WRITERS) as pool:
            list(pool.map(partial(write_part, folder), range(_N_WRITERS)))

    run = timed(write_parts)
    shutil.rmtree(folder)
    return run


def arrange(folder: Path, asked: argparse.Namespace) -> list[Cell]:
    """Packing, and both passes of shuffling: into buckets on the disk, and out of them in order."""
    random = np.random.default_rng(0)
    lengths = np.maximum(random.lognormal(np.log(1000) - 0.72, 1.2, _N_PACKED).astype(np.int64), 1)
    shape = Shape(50_256, NO_DIGEST, None, 0, has_names=True)
    parts = documents(shape, _ID_BYTES // 2)
    n_bytes = sum(batch["input_ids"].values.nbytes for part in parts for batch in part)
    n_items = [sum(map(len, part)) for part in parts]
    buckets = buckets_of(sum(n_items), n_bytes, n_bytes // 4)
    order = Order(sum(n_items), bytes(16))

    def shuffle() -> None:
        with ThreadPoolExecutor(_N_WRITERS) as pool:
            paths = [folder / f"{i}.arrow" for i in range(_N_WRITERS)]
            list(pool.map(lambda i: scatter(iter(parts[i]), sum(n_items[:i]), order, buckets, paths[i]), range(2)))
            found = pool.map(lambda i: sum(map(len, gather(paths, i, buckets))), range(buckets.n_files))
            assert sum(found) == sum(n_items)
        for path in folder.iterdir():
            path.unlink()

    ways = {"pack best_fit": lambda: pack(lengths, LENGTH, "best_fit", "split"), "shuffle": shuffle}
    runs = in_turns({way: partial(timed, work) for way, work in ways.items()}, asked.runs)
    n_tokens = int(lengths.sum())
    print(f"\npack {_N_PACKED:,} documents, {n_tokens:,} tokens; shuffle {n_bytes / 1e6:,.0f} MB of ids, two cores")
    packed = {"name": "pack", "n_documents": _N_PACKED, "n_tokens": n_tokens, "cores": 2}
    packed |= runs_of(runs["pack best_fit"])
    shuffled = {"name": "shuffle", "id_bytes": n_bytes, "cores": 2} | runs_of(runs["shuffle"], n_bytes)
    _print("pack best_fit", runs["pack best_fit"], "")
    _print("shuffle", runs["shuffle"], f"{statistics.median(shuffled['runs_mb_per_s']):5.0f} MB/s")
    return [packed, shuffled]


def others(measured: Recording, asked: argparse.Namespace) -> None:
    """The whole way from JSON lines to each format, by tokenmill and by the format's own library with an encoder."""
    python = asked.interop / "bin/python"
    if not python.is_file():
        print(f"\n{asked.interop} is not there, so other tools are left out; `make test-interop` makes it")
        return
    folder, project = measured.folder, measured.folder / "project"
    n_bytes = make_project(project, asked.others_mb * 10**6, asked.tokenizer)
    (folder / "shards").symlink_to(project / "data/raw")
    shutil.copy(asked.tokenizer, folder / "tokenizer.json")
    added = json.loads(asked.tokenizer.read_text(encoding="utf-8"))["added_tokens"]
    end, end_id = next((one["content"], one["id"]) for one in added if one["content"] == _END)
    (folder / "end.json").write_text(json.dumps([end, end_id]), encoding="utf-8")

    def own(format: str) -> dict[str, Any]:
        run = stage(project, [format], has_splits=False)
        answer = digest(_FLAT[format](project / "data/tokens" / format), end_id) if format in _FLAT else None
        return {"seconds": run.seconds, "cpu_s": run.cpu_s, "answer": answer}

    formats = dict.fromkeys(name.partition(", ")[0] for name in WAYS)
    ways: dict[str, Callable[[], dict[str, Any]]] = {f"{format}, tokenmill": partial(own, format) for format in formats}
    results = in_turns(ways | {name: partial(_other, name, folder, python, asked.bench) for name in WAYS}, asked.runs)
    expected = next(run["answer"] for way in ways for run in results[way] if run["answer"])
    print(f"\nfrom {n_bytes / 1e6:,.0f} MB of JSON lines to a format, two processes or workers; the same ids")
    for name, answers in sorted(results.items()):
        cell = {"name": "whole way", "way": name, "text_bytes": n_bytes} | verdict(answers, expected)
        if "failed" in cell or cell["answer"] == "other":
            assert name not in ways, f"tokenmill has other ids: {name}"
            why = cell.setdefault("failed", f"other ids, not {expected}")
            cell.pop("answer", None)
            print(f"{name:<28} {why}")
        else:
            runs = [Run(run["seconds"], run["cpu_s"]) for run in answers]
            ours = results[f"{name.partition(', ')[0]}, tokenmill"]
            ratios = [
                statistics.median(run[key] for run in answers) / statistics.median(run[key] for run in ours)
                for key in ("seconds", "cpu_s")
            ]
            _print(name, runs, f"{ratios[0]:.2f} × tokenmill; {ratios[1]:.2f} of processor time")
            measured.versions.update(answers[0].get("versions", {}))
            cell |= {"answer": "same", "cores": 2} | runs_of(runs)
        measured.cells.append(cell)


_FLAT = {
    "megatron": partial(flat_arrays, suffix=".bin"),
    "datatrove": partial(flat_arrays, suffix=".ds"),
    "litdata": litdata_chunks,
}


def _other(name: str, folder: Path, python: Path, bench: Path) -> dict[str, Any]:
    """What another tool's process says, or why it failed."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.rmtree(folder / "logs", ignore_errors=True)  # where datatrove keeps what is done
    (folder / "out").mkdir()
    os.sync()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = [str(bench / "lib" / version / "site-packages"), str(Path(pa.__file__).parent.parent)]
    return run_module("benchmarks.file_sets_one", name, folder, *packages, python=python)


def _print(what: str, runs: Sequence[Run], more: str) -> None:
    print(f"{what:<28} {spread([run.seconds for run in runs], '7.2f')}  {more}", flush=True)


if __name__ == "__main__":
    main()
