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

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tokenmill
from benchmarks import record
from benchmarks.harness import Cell, in_turns, options, recording
from benchmarks.process import ROOT, run_module
from benchmarks.reader import ID_MAX, batch_of, manifest_of, shape_of_ids, write_part
from benchmarks.reader_remote_one import LENGTH
from benchmarks.storage import s3_server
from tokenmill.dataset.entries import SetPart, TableFile
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.regular_files import sha256_file

PARTS = 1280
BLOCK = 64
PACES = (25, 50)  # MB of ids a second: 12.5 million ids are more than a node with eight GPUs takes
SHARE_OF_OTHERS = 12  # of the sequences, as they take long
SECONDS_MAX = 300
ORDERS = {"in order": 0, f"in blocks of {BLOCK} parts": BLOCK}


def main() -> None:
    parser = options("reader_remote", __doc__, runs=3)
    parser.add_argument("--documents", type=int, default=190, help="of 4 kB of ids, in each of the 1,280 parts")
    parser.add_argument("--interop", type=Path, default=ROOT / ".interop-venv", help="of the other tools")
    asked = parser.parse_args()
    packages = ("obstore", "pyarrow", "numpy")
    with recording("reader_remote", packages, asked) as measured, s3_server(measured.folder / "server"):
        folder, bucket = measured.folder, measured.folder / "server/bucket"
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
        measured.cells.append({"name": "a damaged part", "format": "arrow", **damaged})
        print(f"a damaged part of {PARTS:,}: {damaged}", flush=True)
        for order, block in ORDERS.items():
            for pace in (0, *PACES):
                what = f"sequences {order}" + (f", at a pace of {pace} MB/s" if pace else "")
                ways = {}
                for who, (tool, *place) in places.items():
                    python = asked.interop / "bin/python" if tool != "tokenmill" else Path(sys.executable)
                    if not python.exists() or (pace and tool != "tokenmill"):
                        continue
                    share = 4 if pace else 1 if tool == "tokenmill" else SHARE_OF_OTHERS
                    given = [tool, *place, n_bytes // 10, block, pace, PARTS * asked.documents // share]
                    ways[who] = partial(_read, f"{what:52}{who:18}", python, given)
                cells = [_cell(what, who, results) for who, results in in_turns(ways, asked.runs).items()]
                _compare(cells, n_all=PARTS * asked.documents)
                measured.cells.extend(cells)


def _read(what: str, python: Path, given: list[Any]) -> dict[str, Any]:
    """What the process of a tool says, with the share of the ids' bytes that the server sent for it; printed, too."""
    sent = _sent_by_server()
    result = run_module("benchmarks.reader_remote_one", *given, python=python, seconds_max=SECONDS_MAX)
    sent = _sent_by_server() - sent
    if cache := given[2]:
        shutil.rmtree(cache, ignore_errors=True)
    if "failed" in result:
        print(f"{what} {result['failed']}", flush=True)
        return result | {"n_max": given[-1]}
    mb = result["n_items"] * LENGTH * 2 / 1e6
    fetched = round(sent / 1e6 / mb, 3)
    print(
        f"{what}{result['s']:8.2f} s {mb / result['s']:8,.0f} MB/s"
        f"  ms of processor a MB: own {1e3 * result['own_cpu_s'] / mb:6.2f}, "
        f"all {1e3 * result['cpu_s'] / mb:6.2f}; fetched {fetched:.3f}",
        flush=True,
    )
    return result | {"fetched": fetched, "n_max": given[-1]}


def _cell(what: str, who: str, results: list[dict[str, Any]]) -> Cell:
    cell: Cell = {"name": what, "tool": who, "n_items": results[0]["n_max"]}
    failed = [result["failed"] for result in results if "failed" in result]
    if failed:
        cell["failed"] = failed[0]
    read = [result for result in results if "failed" not in result]
    if read:
        for key in ("s", "cpu_s", "own_cpu_s"):
            cell[f"runs_{key}"] = record.seconds(result[key] for result in read)
        cell["fetched"] = [result["fetched"] for result in read]
        cell["sum"] = read[0]["sum"]
    return cell


def _compare(cells: list[Cell], n_all: int) -> None:
    """Puts the answer of each tool that read all sequences in the place of their sum; the first cell is of local files."""
    expected = cells[0].get("sum")
    for cell in cells:
        total = cell.pop("sum", None)
        if total is not None and cell["n_items"] == n_all:
            cell["answer"] = "same" if total == expected else "other"
            assert cell["tool"] != "tokenmill" or total == expected, f"{cell['name']}: other ids than the local ones"


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
    offsets = np.arange(0, n_documents * LENGTH + 1, LENGTH).astype(np.int32)
    for part in range(PARTS):
        ids = np.random.default_rng(part).integers(0, ID_MAX + 1, offsets[-1], dtype=np.uint16)
        yield batch_of(shape_of_ids(), offsets, ids, 0)


def write_dataset(folder: Path, n_documents: int) -> None:
    """A dataset as an encode stage would leave it, but for the documents' own files, and the others' formats beside it."""
    parts = []
    for i, batch in enumerate(batches_of(n_documents)):
        for name in ("arrow", "mds", "litdata"):
            write_part(folder / name, name, i, [batch])
        path = folder / f"arrow/part-{i:05}.arrow"
        file = TableFile(name=f"arrow/{path.name}", n_bytes=path.stat().st_size, sha256=sha256_file(path))
        parts.append(SetPart(files=[file], n_items=n_documents, n_tokens=n_documents * LENGTH))
    for name in ("mds", "litdata"):
        finish = SET_FORMATS[name].finish
        assert finish is not None
        finish(folder / name, [f"part-{i:05}" for i in range(PARTS)], shape_of_ids())
    write_manifest(manifest_of([], {"arrow": parts}, 1 << 20), folder)


if __name__ == "__main__":
    main()
