"""make bench-clusters: what a second worker of a cluster gives, and what a unit costs beside the work on its text.

Two: shards of 64 MB, each a unit, are built by each engine with one worker on this machine and with two, in turns. The seconds
are those of the stages count, encode and validate as the build tells them, so the start of the cluster and of Prefect's server is
in none of them. Each build gives the same manifest, but for the keys of its units.

Many: the same text as 10,000 shards and as 20, built by an engine with two workers or as many as asked; the difference of the two
builds, each a whole process, divided by the difference of the units, is what a unit costs: its task's share, keys, digests, files,
links, DVC, and the one document at least that validate compares with other engines. What is more than `inline` costs is the
engine's own.

What this does not show: a network between the machines, a file system that is shared over it, and more than two cores.
"""

import argparse
import shutil
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import record
from benchmarks.project import change_params, copy_flows, sharded_project, stages_of
from tokenmill.dataset.manifest import read_manifest

_ENGINES = ("inline", "threads", "dask", "ray")
_STAGES = ("count", "encode", "validate")
_FEW = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=list(_ENGINES))
    parser.add_argument("--only", choices=["two", "many"])
    parser.add_argument("--shards", type=int, default=8, help="of `two`")
    parser.add_argument("--shard-mb", type=float, default=64.0, help="of `two`")
    parser.add_argument("--runs", type=int, default=3, help="of `two`")
    parser.add_argument("--units", type=int, default=10_000, help="of `many`")
    parser.add_argument("--unit-kb", type=float, default=100.0, help="of `many`")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="of `many`")
    parser.add_argument("--directory", type=Path, help="where there is room for four times the text")
    record.add_option(parser)
    asked = parser.parse_args()
    packages = ("prefect", "prefect-dask", "distributed", "prefect-ray", "ray")
    with tempfile.TemporaryDirectory(prefix="bench-clusters-", dir=asked.directory) as folder:
        for name, only, measure in (("clusters", "two", _two), ("clusters_many", "many", _many)):
            if asked.only in (only, None):
                section = record.begin(name, packages, asked)
                section["cells"] += measure(Path(folder) / only, asked)
                record.keep(section, asked.record)


def _two(project: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    _make(project, asked.shards, int(asked.shard_mb * 1e6))
    engines = [one for one in asked.engines if one != "inline"]
    seconds: dict[tuple[str, int, str], list[float]] = {}
    answers = set()
    for _ in range(asked.runs):
        for engine in engines:
            for workers in (1, 2):
                stages, _, _ = _build(project, engine, workers)
                for stage in _STAGES:
                    seconds.setdefault((engine, workers, stage), []).append(stages[stage]["seconds"])
                answers.add(" ".join(one.sha256 for one in read_manifest(project / "data/tokens").shards))
    assert len(answers) == 1, "the builds do not agree"
    for engine in engines:
        runs = {
            n: [sum(one) for one in zip(*(seconds[engine, n, stage] for stage in _STAGES), strict=True)] for n in (1, 2)
        }
        shares = {stage: median(seconds[engine, 1, stage]) / median(seconds[engine, 2, stage]) for stage in _STAGES}
        print(
            f"{engine}: one worker {median(runs[1]):.1f} s, two {median(runs[2]):.1f} s: "
            f"{median(runs[1]) / median(runs[2]):.2f} x ("
            + ", ".join(f"{stage} {share:.2f}" for stage, share in shares.items())
            + ")",
            flush=True,
        )
    return [
        {
            "what": f"stage {stage}", "engine": engine, "workers": workers, "units": asked.shards,
            "unit_bytes": int(asked.shard_mb * 1e6), "answer": "same", "runs_s": record.seconds(runs),
        }
        for (engine, workers, stage), runs in seconds.items()
    ]  # fmt: skip


def _many(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    n_bytes = int(asked.units * asked.unit_kb * 1e3)
    cells = []
    folder.mkdir()
    for engine, workers in product(asked.engines, asked.workers):
        found = {}
        for n in (_FEW, asked.units):  # each in a new project: a forced build compares its units with stored ones
            project = folder / f"{engine}-{n}"
            _make(project, n, n_bytes // n)
            found[n] = _build(project, engine, workers)
            shutil.rmtree(project)
        walls = {n: one[1] for n, one in found.items()}
        unit_ms = (walls[asked.units] - walls[_FEW]) / (asked.units - _FEW) * 1e3
        peak_mb = found[asked.units][2]
        print(
            f"{engine}, workers: {workers}: {asked.units:,} units {walls[asked.units]:.1f} s, {_FEW} units {walls[_FEW]:.1f} s: "
            f"{unit_ms:.1f} ms a unit; the build's own process {peak_mb:,.0f} MB",
            flush=True,
        )
        for n, (_, wall_s, mb) in found.items():
            cells.append(
                {"what": "build", "engine": engine, "workers": workers, "units": n, "unit_bytes": n_bytes // n,
                 "runs_s": record.seconds([wall_s]), "runs_peak_mb": [round(mb, 1)]}
            )  # fmt: skip
    return cells


def _make(root: Path, n_shards: int, shard_bytes: int) -> None:
    sharded_project(root, n_shards, shard_bytes, "threads", grouped=False)
    copy_flows(root)
    change_params(root, {}, "run", {"memory_mb_max": 8192})


def _build(project: Path, engine: str, workers: int) -> tuple[dict[str, Any], float, float]:
    """What a forced build tells of each stage, the seconds of its process, and the process's largest resident set in MB."""
    change_params(project, {}, "run", {"engine": engine, "workers": workers})
    start_s = time.monotonic()
    stages = stages_of(project, "--force")
    return stages, time.monotonic() - start_s, max(one["peak_mb"] or 0.0 for one in stages.values())


if __name__ == "__main__":
    main()
