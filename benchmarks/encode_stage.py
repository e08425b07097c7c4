"""make bench-stage: the stages encode and validate on 504 MB of text, beside a bare loop, and where their time goes.

Eight shards of 63 MB of English documents (.jsonl.zst), each with other letters changed, the published gpt2 tokenizer, two
workers. A build is a process of its own, and the first in its project; it takes turns with benchmarks/bare_loop.py. Then one more
build is watched by py-spy, a hundred times a second: the shares of the threads that run units, by what they do.
"""

import os
import statistics
from collections import Counter
from pathlib import Path

import pyarrow as pa

from benchmarks import record
from benchmarks.corpus import GPT2, needed_files
from benchmarks.harness import Cell, in_turns, options, recording
from benchmarks.process import ROOT, module_result, timed
from benchmarks.project import change_params, empty_project, let_files_age, shards, stages_of

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
    parser = options("encode_stage", __doc__, runs=3)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--shard-mb", type=float, default=63.0)
    asked = parser.parse_args()
    needed_files(GPT2)
    with recording("encode_stage", ("pyarrow", "tokenizers"), asked) as measured:
        files = measured.folder / "files"
        files.mkdir()
        n_bytes = n_documents = 0
        for i, shard in enumerate(shards(asked.shards, int(asked.shard_mb * 1e6))):
            n_bytes += len(shard)
            n_documents += shard.count(b"\n")
            (files / f"{i}.jsonl.zst").write_bytes(pa.Codec("zstd").compress(shard, asbytes=True))
        let_files_age()
        python = ROOT / ".bench-venv/bin/python"
        projects = (_project(measured.folder / f"{i}", files) for i in range(asked.runs))

        def build() -> dict[str, float]:
            project = next(projects)
            seconds, _, stages = timed(lambda: stages_of(project))
            return {stage: stages[stage]["seconds"] for stage in _STAGES} | {"whole build": seconds}

        def loop() -> dict[str, float]:
            return module_result("benchmarks.bare_loop", files, GPT2, python=python)

        for runs in in_turns({"build": build, "loop": loop}, asked.runs).values():
            for what in runs[0]:
                runs_s = [run[what] for run in runs]
                middle_s = statistics.median(runs_s)
                speed = f"{n_bytes / 1e6 / middle_s:7.1f} MB/s {n_documents / middle_s:9,.0f} documents/s"
                print(f"{what:<26} {middle_s:6.2f} s {speed}")
                cell = {"what": what, "cores": os.cpu_count(), "text_bytes": n_bytes, "documents": n_documents}
                cell |= {"runs_s": record.seconds(runs_s), "runs_mb_per_s": record.mb_per_s(n_bytes, runs_s)}
                measured.cells.append(cell)
        measured.cells.extend(_profile(_project(measured.folder / "profile", files)))


def _project(root: Path, files: Path) -> Path:
    empty_project(root, "inline", grouped=True)
    for file in files.iterdir():
        (root / "data/raw" / file.name).hardlink_to(file)
    change_params(root, {"tokenizer": {"from": str(GPT2)}}, "source", {"glob": "data/raw/*.jsonl.zst"})
    change_params(root, {}, "run", {"workers": 2, "memory_mb_max": 8192})
    return root


def _profile(project: Path) -> list[Cell]:
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
