"""make bench-reader, second part: a dataset that is read where it lies, with a cache of a tenth of it, beside the same files here.

The server is s3s-fs, written in Rust, on 127.0.0.1 (`make test-storage` installs it). The dataset has 1,280 parts of random ids in
documents of 2,048. They are read in order, and shuffled in blocks of 64 parts; without work, and at the paces of training jobs. The
other tools read their own formats of the same tokens, in .interop-venv, which `make test-interop` makes, and only the first twelfth
of them. Before anything is timed, all ids are compared with the local ones, while one part on the server is damaged; the sums of
all ids are compared in each run of the whole.

The server, the fetching process and the reader share two cores, and the server alone needs a core for 100 to 220 MB a second, so
without work the server is measured above all. What a training job feels is its own processor time, which is given beside that of
all processes of the tool, and whether a pace is held. What this does not show: the time that a request takes on a network.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tokenmill
from benchmarks import record
from benchmarks.reader import ID_MAX
from benchmarks.reader_remote_one import LENGTH
from benchmarks.storage import s3_server
from tokenmill.dataset.entries import Files, FileSet, SetPart, TableFile
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.regular_files import sha256_file

PARTS = 1280
BLOCK = 64
PACES = (25, 50)  # MB of ids a second: 12.5 million ids are more than a node with eight GPUs takes
SHARE_OF_OTHERS = 12  # of the sequences, as they take long
SECONDS_MAX = 300
ORDERS = {"in order": 0, f"in blocks of {BLOCK} parts": BLOCK}

_NO_DIGEST = "0" * 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reader_remote", description=__doc__)
    parser.add_argument("--documents", type=int, default=190, help="of 4 kB of ids, in each of the 1,280 parts")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--interop", type=Path, default=record.ROOT / ".interop-venv", help="of the other tools")
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("reader_remote", ("obstore", "pyarrow", "numpy"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-remote-") as name, s3_server(Path(name) / "server"):
        folder, bucket = Path(name), Path(name) / "server/bucket"
        write_dataset(folder / "tokens", asked.documents)
        digest = read_manifest(folder / "tokens").digest[:16]
        shutil.move(folder / "tokens/mds", bucket / "mds")
        shutil.move(folder / "tokens/litdata", bucket / "litdata")
        shutil.copytree(folder / "tokens", bucket / digest / "tokens")
        n_bytes = sum(path.stat().st_size for path in (folder / "tokens/arrow").iterdir())
        places = {
            "tokenmill, local": ("tokenmill", str(folder / "tokens"), ""),
            "tokenmill": ("tokenmill", f"s3://bucket/{digest}", str(folder / "cache")),
            "streaming": ("streaming", "s3://bucket/mds", str(folder / "cache")),
            "litdata": ("litdata", "s3://bucket/litdata", str(folder / "cache")),
        }
        damaged = check_damage(folder, bucket / digest / "tokens", n_bytes // 10)
        section["cells"].append({"name": "a damaged part", "format": "arrow", **damaged})
        print(f"a damaged part of {PARTS:,}: {damaged}", flush=True)
        cells: dict[tuple[str, ...], dict[str, Any]] = {}
        for _ in range(asked.runs):
            for order, block in ORDERS.items():
                for pace in (0, *PACES):
                    for who, (tool, place, cache) in places.items():
                        python = str(asked.interop / "bin/python") if tool != "tokenmill" else sys.executable
                        if not Path(python).exists() or (pace and tool != "tokenmill"):
                            continue
                        share = 4 if pace else 1 if tool == "tokenmill" else SHARE_OF_OTHERS
                        n_max = PARTS * asked.documents // share
                        given = [tool, place, cache, f"{n_bytes // 10}", f"{block}", f"{pace}", f"{n_max}"]
                        sent = _sent_by_server()
                        said = _said_by([python, str(record.ROOT / "benchmarks/reader_remote_one.py"), *given])
                        sent = _sent_by_server() - sent
                        shutil.rmtree(folder / "cache", ignore_errors=True)
                        what = f"sequences {order}" + (f", at a pace of {pace} MB/s" if pace else "")
                        cell = cells.setdefault((what, who), {"name": what, "tool": who, "n_items": n_max})
                        if said is None:
                            cell["failed"] = f"it ended with an error, or took more than {SECONDS_MAX} s"
                            print(f"{what:52}{who:18} {cell['failed']}", flush=True)
                            continue
                        found = json.loads(said.splitlines()[-1])
                        if share == 1:
                            cell.setdefault("sum", found["sum"])
                        for runs, name in (("runs_s", "s"), ("runs_cpu_s", "cpu_s"), ("runs_own_cpu_s", "own_cpu_s")):
                            cell.setdefault(runs, []).extend(record.seconds([found[name]]))
                        cell.setdefault("fetched", []).append(round(sent / found["n_items"] / LENGTH / 2, 3))
                        mb = found["n_items"] * LENGTH * 2 / 1e6
                        print(
                            f"{what:52}{who:18}{found['s']:8.2f} s {mb / found['s']:8,.0f} MB/s"
                            f"  ms of processor a MB: own {1e3 * found['own_cpu_s'] / mb:6.2f}, "
                            f"all {1e3 * found['cpu_s'] / mb:6.2f}; fetched {cell['fetched'][-1]:.3f}",
                            flush=True,
                        )
        for (what, who), cell in cells.items():
            if (total := cell.pop("sum", None)) is None:
                continue
            is_same = total == cells[what, "tokenmill, local"].get("sum", total)
            cell["answer"] = "same" if is_same else "other"
            assert who != "tokenmill" or is_same, f"{what}: other ids than the local ones"
        section["cells"] += cells.values()
    record.keep(section, asked.record)


def check_damage(folder: Path, stored: Path, cache_bytes: int) -> dict[str, int]:
    """How many sequences are wrong, and how many are refused, when one part on the server has a wrong byte."""
    path = stored / "arrow" / f"part-{PARTS // 3:05}.arrow"
    right = path.read_bytes()
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 1
    path.write_bytes(wrong)
    here = tokenmill.open(folder / "tokens", format="arrow")
    url, cache = f"s3://bucket/{stored.parent.name}", folder / "cache"
    there = tokenmill.open(url, format="arrow", cache=cache, cache_bytes=cache_bytes)
    n_wrong = n_refused = 0
    per_part = len(here) // PARTS
    for i in range(len(here)):
        if PARTS // 3 * per_part < i < (PARTS // 3 + 1) * per_part:
            continue  # one item of the damaged part is enough
        try:
            n_wrong += not np.array_equal(there[i], here[i])
        except ValidationError:
            n_refused += 1
    del there
    path.write_bytes(right)
    shutil.rmtree(cache)
    return {"n_items": len(here), "n_wrong": n_wrong, "n_refused": n_refused}


def _said_by(command: list[str]) -> str | None:
    """What a command prints; None if it ends with an error or takes too long."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_MAX).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None


def _sent_by_server() -> int:
    """How many bytes the server has sent."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and (path / "comm").read_text().startswith("s3s"):
                return int((path / "io").read_text().split()[3])
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError("the server has ended")


def batches_of(n_documents: int) -> Iterator[pa.RecordBatch]:
    """The documents of each part."""
    form = schema_of(_shape())
    offsets = np.arange(0, n_documents * LENGTH + 1, LENGTH).astype(np.int32)
    for part in range(PARTS):
        ids = np.random.default_rng(part).integers(0, ID_MAX + 1, offsets[-1], dtype=np.uint16)
        rows = pa.array(np.arange(n_documents))
        lists = pa.ListArray.from_arrays(offsets, ids, type=form.field("input_ids").type)
        yield pa.RecordBatch.from_arrays([rows, lists, rows, pa.repeat("0.jsonl", n_documents), rows], schema=form)


def write_dataset(folder: Path, n_documents: int) -> None:
    """A dataset as an encode stage would leave it, but for the documents' own files, and the others' formats beside it."""
    parts = []
    for i, batch in enumerate(batches_of(n_documents)):
        for name in ("arrow", "mds", "litdata"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            with SET_FORMATS[name].write(folder / name, f"part-{i:05}", _shape()) as add:
                add(batch)
        path = folder / f"arrow/part-{i:05}.arrow"
        file = TableFile(name=f"arrow/{path.name}", n_bytes=path.stat().st_size, sha256=sha256_file(path))
        parts.append(SetPart(files=[file], n_items=n_documents, n_tokens=n_documents * LENGTH))
    for name in ("mds", "litdata"):
        finish = SET_FORMATS[name].finish
        assert finish is not None
        finish(folder / name, [f"part-{i:05}" for i in range(PARTS)], _shape())
    manifest = Manifest(
        engine="benchmark",
        tokenizer_digest=_NO_DIGEST,
        params_digest=_NO_DIGEST,
        id_type="uint16",
        id_max=ID_MAX,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_documents=n_documents * PARTS,
        n_tokens=n_documents * PARTS * LENGTH,
        text_bytes=0,
        n_bad=0,
        quarantine_sha256=_NO_DIGEST,
        inputs=[],
        shards=[],
        files=Files(file_bytes=1 << 20, splits={}, split_group=None, shuffle=None, pack=None, pad_id=None),
        sets=[FileSet(format="arrow", split=None, source=None, epoch=None, parts=parts, shared=[])],
    )
    write_manifest(manifest, folder)


def _shape() -> Shape:
    return Shape(ID_MAX, _NO_DIGEST, None, None, has_names=False)


if __name__ == "__main__":
    main()
