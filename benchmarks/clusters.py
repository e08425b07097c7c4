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
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks import record
from benchmarks.harness import Cell, in_turns, options, recording
from benchmarks.process import Run, timed
from benchmarks.project import change_params, copy_flows, sharded_project, stages_of
from tokenmill.dataset.manifest import read_manifest

_ENGINES = ("inline", "threads", "dask", "ray")
_STAGES = ("count", "encode", "validate")
_FEW = 20


def main() -> None:
    parser = options("clusters", __doc__)
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=list(_ENGINES))
    parser.add_argument("--only", choices=["two", "many"])
    parser.add_argument("--shards", type=int, default=8, help="of `two`")
    parser.add_argument("--shard-mb", type=float, default=64.0, help="of `two`")
    parser.add_argument("--runs", type=int, default=3, help="of `two`")
    parser.add_argument("--units", type=int, default=10_000, help="of `many`")
    parser.add_argument("--unit-kb", type=float, default=100.0, help="of `many`")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="of `many`")
    parser.add_argument("--directory", type=Path, help="where there is room for four times the text")
    asked = parser.parse_args()
    packages = ("prefect", "prefect-dask", "distributed", "prefect-ray", "ray")
    for name, only, measure in (("clusters", "two", _two), ("clusters_many", "many", _many)):
        if asked.only in (only, None):
            with recording(name, packages, asked) as measured:
                measured.cells.extend(measure(measured.folder / only, asked))


def _two(project: Path, asked: argparse.Namespace) -> list[Cell]:
    _make(project, asked.shards, int(asked.shard_mb * 1e6))
    engines = [engine for engine in asked.engines if engine != "inline"]
    answers = set()

    def stages_s(engine: str, workers: int) -> dict[str, float]:
        stages = _build(project, engine, workers).result
        answers.add(" ".join(shard.sha256 for shard in read_manifest(project / "data/tokens").shards))
        return {stage: stages[stage]["seconds"] for stage in _STAGES}

    ways = {way: partial(stages_s, *way) for way in product(engines, (1, 2))}
    runs = in_turns(ways, asked.runs)
    assert len(answers) == 1, "the builds do not agree"
    seconds = {(*way, stage): [run[stage] for run in runs[way]] for way in ways for stage in _STAGES}
    for engine in engines:
        one, two = (median(sum(run.values()) for run in runs[engine, workers]) for workers in (1, 2))
        shares = [f"{s} {median(seconds[engine, 1, s]) / median(seconds[engine, 2, s]):.2f}" for s in _STAGES]
        print(f"{engine}: one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} x ({', '.join(shares)})", flush=True)
    shared = {"units": asked.shards, "unit_bytes": int(asked.shard_mb * 1e6), "answer": "same"}
    return [
        {"what": f"stage {stage}", "engine": engine, "workers": workers, **shared, "runs_s": record.seconds(runs_s)}
        for (engine, workers, stage), runs_s in seconds.items()
    ]


def _many(folder: Path, asked: argparse.Namespace) -> list[Cell]:
    n_bytes = int(asked.units * asked.unit_kb * 1e3)
    cells = []
    folder.mkdir()
    for engine, workers in product(asked.engines, asked.workers):
        builds = {}
        for n in (_FEW, asked.units):  # each in a new project: a forced build compares its units with stored ones
            project = folder / f"{engine}-{n}"
            _make(project, n, n_bytes // n)
            builds[n] = _build(project, engine, workers)
            shutil.rmtree(project)
        few_s, many_s = builds[_FEW].seconds, builds[asked.units].seconds
        peaks_mb = {n: max(stage["peak_mb"] or 0.0 for stage in build.result.values()) for n, build in builds.items()}
        print(
            f"{engine}, workers: {workers}: {asked.units:,} units {many_s:.1f} s, {_FEW} units {few_s:.1f} s: "
            f"{(many_s - few_s) / (asked.units - _FEW) * 1e3:.1f} ms a unit; "
            f"the build's own process {peaks_mb[asked.units]:,.0f} MB",
            flush=True,
        )
        for n, build in builds.items():
            cell = {"what": "build", "engine": engine, "workers": workers, "units": n, "unit_bytes": n_bytes // n}
            runs = {"runs_s": record.seconds([build.seconds]), "runs_peak_mb": [round(peaks_mb[n], 1)]}
            cells.append(cell | runs)
    return cells


def _make(root: Path, n_shards: int, shard_bytes: int) -> None:
    sharded_project(root, n_shards, shard_bytes, "threads", grouped=False)
    copy_flows(root)
    change_params(root, {}, "run", {"memory_mb_max": 8192})


def _build(project: Path, engine: str, workers: int) -> Run:
    """A forced build in a process of its own; the result is what it tells of each stage."""
    change_params(project, {}, "run", {"engine": engine, "workers": workers})
    return timed(lambda: stages_of(project, "--force"))


if __name__ == "__main__":
    main()
