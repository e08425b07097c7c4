"""make bench-stage: the stages encode and validate on 504 MB of text, beside a bare loop, and where their time goes.

Eight shards of 63 MB of English documents (.jsonl.zst), each with other letters changed, the published gpt2 tokenizer, two
workers. A build is a process of its own, and the first in its project; it takes turns with benchmarks/bare_loop.py. Then one more
build is watched by py-spy, a hundred times a second: the shares of the threads that run units, by what they do.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import record
from benchmarks.corpus import ROOT, SHARED
from benchmarks.project import change_params, empty_project, shards, stages_of

_STAGES = ("encode", "validate")
_STEPS = {  # by the innermost of these functions
    "flush": "flush to disk",
    "sha256_file": "digest of the file",
    "text_digests": "digests of the texts",
    "Tokenizer.encode_batch": "encode",
    "Tokenizer.decodes_to": "decode and compare",
    "check_sample": "other engines' ids of the sample",
    "TokenCounts.add": "counts of ids",
    "check_ids": "counts of ids",
    "write_tokens.<locals>.add": "write Parquet",
    "write_tokens": "write Parquet",
    "_read_group": "read Parquet",
    "unit_index.<locals>.add": "write the document index",
    "line_reader.<locals>.read": "parse JSON",
    "_read_jsonl": "read and decompress",
    "TaskRunner._run": "all else",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encode_stage", description=__doc__)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--shard-mb", type=float, default=63.0)
    parser.add_argument("--runs", type=int, default=3)
    record.add_option(parser)
    asked = parser.parse_args()
    tokenizer = SHARED / "tokenizers/gpt-2/tokenizer.json"
    if not tokenizer.is_file():
        sys.exit(f"{SHARED}: expected the corpus and the tokenizers that the project is measured with.")
    section = record.begin("encode_stage", ("pyarrow", "tokenizers"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-stage-") as name:
        files = Path(name) / "files"
        files.mkdir()
        n_bytes = n_documents = 0
        for i, shard in enumerate(shards(asked.shards, int(asked.shard_mb * 1e6))):
            n_bytes += len(shard)
            n_documents += shard.count(b"\n")
            (files / f"{i}.jsonl.zst").write_bytes(pa.Codec("zstd").compress(shard, asbytes=True))
        time.sleep(2.1)  # a file as young as its digest is not remembered
        stages: dict[str, list[float]] = {one: [] for one in _STAGES}
        walls, bare = [], []
        for i in range(asked.runs):
            project = _project(Path(name) / f"{i}", files, tokenizer)
            start_s = time.monotonic()
            done = stages_of(project)
            walls.append(time.monotonic() - start_s)
            for stage in _STAGES:
                stages[stage].append(done[stage]["seconds"])
            bare.append(_loop(files, tokenizer))
        for what, runs in (*stages.items(), ("whole build", walls), ("bare loop over gigatoken", bare)):
            seconds = statistics.median(runs)
            print(
                f"{what:<26} {seconds:6.2f} s {n_bytes / 1e6 / seconds:7.1f} MB/s {n_documents / seconds:9,.0f} documents/s"
            )
            section["cells"].append(
                {"what": what, "cores": os.cpu_count(), "text_bytes": n_bytes, "documents": n_documents,
                 "runs_s": record.seconds(runs), "runs_mb_per_s": record.mb_per_s(n_bytes, runs)}
            )  # fmt: skip
        section["cells"] += _profile(_project(Path(name) / "profile", files, tokenizer))
    record.keep(section, asked.record)


def _project(root: Path, files: Path, tokenizer: Path) -> Path:
    empty_project(root, "inline", grouped=True)
    for file in files.iterdir():
        (root / "data/raw" / file.name).hardlink_to(file)
    change_params(root, {"tokenizer": {"from": str(tokenizer)}}, "source", {"glob": "data/raw/*.jsonl.zst"})
    change_params(root, {}, "run", {"workers": 2, "memory_mb_max": 8192})
    return root


def _loop(files: Path, tokenizer: Path) -> float:
    """The seconds of the bare loop, without its start."""
    python = ROOT / ".bench-venv/bin/python"
    done = subprocess.run(
        [python, "-m", "benchmarks.bare_loop", files, tokenizer],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def _profile(project: Path) -> list[dict[str, Any]]:
    stacks = project.parent / "stacks.txt"
    stages_of(project, before=["py-spy", "record", "-r", "100", "-f", "raw", "-o", str(stacks), "--"])
    cells = []
    for stage in _STAGES:
        found = Counter[str]()
        for line in stacks.read_text(encoding="utf-8").splitlines():
            stack, n = line.rsplit(" ", 1)
            frames = [frame.split(" (")[0] for frame in stack.split(";")]
            if f"{stage}_unit" in frames:
                found[next(_STEPS[frame] for frame in reversed(frames) if frame in _STEPS)] += int(n)
        total = sum(found.values())
        print(f"\n{stage}, {total / 100:.1f} s of threads")
        for step, n in found.most_common():
            print(f"  {step:<34} {n / total:6.1%}")
            cells.append({"stage": stage, "step": step, "share": round(n / total, 3), "runs_threads_s": [n / 100]})
    return cells


if __name__ == "__main__":
    main()
