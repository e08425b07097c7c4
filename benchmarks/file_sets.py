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
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import record
from benchmarks.corpus import ROOT, SHARED
from benchmarks.file_sets_one import WAYS, digest, flat_arrays, litdata_chunks
from benchmarks.process import run_module
from benchmarks.project import build_up_to_encode, change_params, encode_stage, sharded_project
from tokenmill.file_sets.packing import pack
from tokenmill.file_sets.shuffle import buckets_of, gather, scatter
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.storage.atomic import flush
from tokenmill_reader.formats.columns import schema_of
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
_GPT2 = SHARED / "tokenizers/gpt-2/tokenizer.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.file_sets", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--text-mb", type=int, default=500, help="of the encode stage")
    parser.add_argument(
        "--others-mb", type=int, default=40, help="of the other tools, some of which are slow; at least 40, two shards"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tokenizer", type=Path, default=_GPT2, help="tokenizer.json of gpt-2")
    parser.add_argument("--directory", type=Path, help="where there is room for four times the text")
    parser.add_argument("--interop", type=Path, default=ROOT / ".interop-venv", help="the environment of other tools")
    parser.add_argument("--bench", type=Path, default=ROOT / ".bench-venv", help="the environment of other encoders")
    record.add_option(parser)
    asked = parser.parse_args()
    measures = {"encode": encode, "write": write, "arrange": arrange}
    with tempfile.TemporaryDirectory(prefix="bench-sets-", dir=asked.directory) as name:
        folder = Path(name)
        if own := [part for part in asked.only if part in measures]:
            section = record.begin("file_sets", ("pyarrow", "numpy"), asked)
            for part in own:
                (folder / part).mkdir()
                section["cells"] += measures[part](folder / part, asked)
            record.keep(section, asked.record)
        if "others" in asked.only:
            section = record.begin("file_sets_others", ("pyarrow", "numpy"), asked)
            (folder / "others").mkdir()
            section["cells"] += others(folder / "others", section["versions"], asked)
            record.keep(section, asked.record)


def encode(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The encode stage with each choice of formats, without splits and with them."""
    project = folder / "project"
    n_bytes = make_project(project, asked.text_mb * 10**6, asked.tokenizer)
    kinds = [(formats, splits) for splits in ({}, _SPLITS) for formats in _FORMATS]
    runs: dict[int, list[tuple[float, float]]] = {i: [] for i in range(len(kinds))}
    for _ in range(asked.runs):
        for i, (formats, splits) in enumerate(kinds):
            runs[i].append(stage(project, formats, splits))
    cells = []
    print(f"\nencode, {n_bytes / 1e6:,.0f} MB of JSON lines, two workers")
    for i, (formats, splits) in enumerate(kinds):
        cell = {"name": "encode", "formats": list(formats), "has_splits": bool(splits), "text_bytes": n_bytes}
        cells.append(cell | _runs(runs[i]))
        both = [max(a, b) for a, b in zip(*(runs[i // 3 * 3 + k] for k in (0, 1)), strict=True)]
        ratios = [statistics.median(a[k] / b[k] for a, b in zip(runs[i], both, strict=True)) for k in (0, 1)]
        what = f"{', '.join(formats)}{', splits' if splits else ''}"
        _print(what, runs[i], f"{ratios[0]:.2f} × the slower of one format; {ratios[1]:.2f} of processor time")
    return cells


def make_project(root: Path, text_bytes: int, tokenizer: Path) -> int:
    """A project with a fixed tokenizer, built up to its encode stage; the bytes of its shards."""
    n_bytes = sharded_project(root, -(-text_bytes // _SHARD_BYTES), _SHARD_BYTES, "inline", grouped=True)
    build_up_to_encode(root, tokenizer)
    return n_bytes


def stage(project: Path, formats: Sequence[str], splits: dict[str, float]) -> tuple[float, float]:
    """The seconds of the encode stage, and those of the processor."""
    change_params(project, {}, "encode", {"formats": list(formats), "splits": splits})
    done = encode_stage(project)
    return done.seconds, done.cpu_s


def write(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The writer of each format, and plain files beside it, in turns."""
    cells = []
    for ids, id_max in ((pa.uint16(), 50_256), (pa.uint32(), 150_000)):
        shape = Shape(id_max, "0" * 64, None, 0, has_names=True)
        parts = documents(shape, _ID_BYTES // ids.byte_width)
        n_bytes = sum(batch["input_ids"].values.nbytes for part in parts for batch in part)
        formats = [format for format in SET_FORMATS.values() if format.refusal(shape, 1 << 30) is None]
        work: dict[str, Callable[[Path, int], None]] = {"plain file": partial(_write_plain, parts)}
        work |= {format.name: partial(_write_part, format, shape, parts) for format in formats}
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for _ in range(asked.runs):
            for name, do in work.items():
                runs[name].append(_in_parts(folder / "out", do))
        print(f"\nwrite, {n_bytes / 1e6:,.0f} MB of ids, {ids}, {_N_WRITERS} parts at the same time")
        for name, measured in runs.items():
            rates = record.mb_per_s(n_bytes, [seconds for seconds, _ in measured])
            plain = record.mb_per_s(n_bytes, [seconds for seconds, _ in runs["plain file"]])
            share = statistics.median(a / b for a, b in zip(rates, plain, strict=True))
            cell = {"name": "write", "format": name, "ids": str(ids), "id_bytes": n_bytes}
            cells.append(cell | _runs(measured) | {"runs_mb_per_s": rates})
            of_cpu = statistics.median(record.mb_per_s(n_bytes, [cpu_s for _, cpu_s in measured]))
            _print(
                name,
                measured,
                f"{statistics.median(rates):5.0f} MB/s, {share:.2f} of the disk's; {of_cpu:5.0f} MB/s of processor time",
            )
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
            lists = pa.ListArray.from_arrays(offsets, pa.array(values), type=schema_of(shape).field("input_ids").type)
            rows = pa.array(np.arange(row, row + _BATCH_DOCUMENTS))
            names = pa.array([f"document-{part}-{i:09}" for i in range(row, row + _BATCH_DOCUMENTS)])
            shards = pa.array([f"raw/{part:05}.jsonl.zst"] * _BATCH_DOCUMENTS)
            batches.append(pa.RecordBatch.from_arrays([names, lists, rows, shards, rows], schema=schema_of(shape)))
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


def _in_parts(folder: Path, do: Callable[[Path, int], None]) -> tuple[float, float]:
    """The seconds, and those of the processor, in which threads make their parts in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(_N_WRITERS) as pool:
        list(pool.map(partial(do, folder), range(_N_WRITERS)))
    found = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    shutil.rmtree(folder)
    return found


def arrange(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Packing, and both passes of shuffling: into buckets on the disk, and out of them in order."""
    random = np.random.default_rng(0)
    lengths = np.maximum(random.lognormal(np.log(1000) - 0.72, 1.2, _N_PACKED).astype(np.int64), 1)
    shape = Shape(50_256, "0" * 64, None, 0, has_names=True)
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

    cells = []
    runs: dict[str, list[tuple[float, float]]] = {"pack best_fit": [], "shuffle": []}
    for _ in range(asked.runs):
        runs["pack best_fit"].append(_timed(lambda: pack(lengths, LENGTH, "best_fit", "split")))
        runs["shuffle"].append(_timed(shuffle))
    print(
        f"\npack {_N_PACKED:,} documents, {lengths.sum():,} tokens; shuffle {n_bytes / 1e6:,.0f} MB of ids, two cores"
    )
    _print("pack best_fit", runs["pack best_fit"], "")
    cells.append(
        {"name": "pack", "n_documents": _N_PACKED, "n_tokens": int(lengths.sum())} | _runs(runs["pack best_fit"])
    )
    rates = record.mb_per_s(n_bytes, [seconds for seconds, _ in runs["shuffle"]])
    _print("shuffle", runs["shuffle"], f"{statistics.median(rates):5.0f} MB/s")
    cells.append({"name": "shuffle", "id_bytes": n_bytes} | _runs(runs["shuffle"]) | {"runs_mb_per_s": rates})
    return cells


def others(folder: Path, versions: dict[str, str], asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The whole way from JSON lines to each format, by tokenmill and by the format's own library with an encoder. Adds
    their versions to `versions`."""
    python = asked.interop / "bin/python"
    if not python.is_file():
        print(f"\n{asked.interop} is not there, so other tools are left out; `make test-interop` makes it")
        return []
    project = folder / "project"
    n_bytes = make_project(project, asked.others_mb * 10**6, asked.tokenizer)
    (folder / "shards").symlink_to(project / "data/raw")
    shutil.copy(asked.tokenizer, folder / "tokenizer.json")
    added = json.loads(asked.tokenizer.read_text(encoding="utf-8"))["added_tokens"]
    end, end_id = next((one["content"], one["id"]) for one in added if one["content"] == _END)
    (folder / "end.json").write_text(json.dumps([end, end_id]), encoding="utf-8")
    expected = []
    runs: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, str] = {}
    for _ in range(asked.runs):
        for format in dict.fromkeys(name.partition(", ")[0] for name in WAYS):
            runs.setdefault(f"{format}, tokenmill", []).append(stage(project, [format], {}))
            if format in _FLAT:
                found = digest(_FLAT[format](project / "data/tokens" / format), end_id)
                expected = expected or found
                assert found == expected, f"tokenmill's {format} has other ids"
        for name in WAYS:
            if name in failed:
                continue
            result = _other(name, folder, python, asked.bench)
            if "failed" in result or result["answer"] != expected:
                failed[name] = result.get("failed") or f"other ids: {result['answer']}, not {expected}"
                runs.pop(name, None)
            else:
                runs.setdefault(name, []).append((result["seconds"], result["cpu_s"]))
                versions |= result["versions"]
    print(f"\nfrom {n_bytes / 1e6:,.0f} MB of JSON lines to a format, two processes or workers; the same ids")
    cells: list[dict[str, Any]] = []
    for name, measured in sorted(runs.items()):
        ours = runs[f"{name.partition(', ')[0]}, tokenmill"]
        ratios = [statistics.median(a[k] for a in measured) / statistics.median(b[k] for b in ours) for k in (0, 1)]
        _print(name, measured, f"{ratios[0]:.2f} × tokenmill; {ratios[1]:.2f} of processor time")
        cells.append({"name": "whole way", "way": name, "text_bytes": n_bytes, "answer": "same"} | _runs(measured))
    for name, why in failed.items():
        print(f"{name:<28} {why}")
        cells.append({"name": "whole way", "way": name, "text_bytes": n_bytes, "failed": why})
    return cells


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


def _timed(do: Callable[[], object]) -> tuple[float, float]:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    do()
    return time.perf_counter() - start_s, time.process_time() - start_cpu_s


def _runs(measured: Iterable[tuple[float, float]]) -> dict[str, Any]:
    seconds, cpu_s = zip(*measured, strict=True)
    return {"cores": 2, "runs_s": record.seconds(seconds), "runs_cpu_s": record.seconds(cpu_s)}


def _print(what: str, measured: Sequence[tuple[float, float]], more: str) -> None:
    seconds = sorted(one for one, _ in measured)
    middle = statistics.median(seconds)
    print(f"{what:<28} {middle:7.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})  {more}", flush=True)


if __name__ == "__main__":
    main()
