"""make bench-build: what a build of many shards costs at first, when nothing changed, and when one shard did, with the tokenizer
learned again and with the one there is.

The shards are JSON lines of the documents of benchmarks.corpus, another letter changed in each; every shard is a unit. Each build
is a process of its own. Work is the time in which at least one unit is read, counted, encoded, checked, written and flushed to
the disk, the digests of the input are taken, counts are added up, or a vocabulary is learned; all else of a build is overhead:
start, DVC, Prefect, keys, the unit store, links. What this does not show: a slow disk (all is in the page cache), and cores that
idle while the last unit of a stage is at work.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import record
from benchmarks.harness import Cell, options, recording
from benchmarks.process import module_result, timed
from benchmarks.project import ENVIRONMENT, run, sharded_project

STAGES = ("count", "train-vocab", "encode", "validate")
_WORK = {
    "tokenmill.corpus.units": ("_look",),
    "tokenmill.stages.count": ("sum_of_runs", "write_batches"),
    "tokenmill.stages.count_units": ("CountTask.run",),
    "tokenmill.stages.count_sums": ("sum_of_runs", "write_batches"),
    "tokenmill.stages.train_vocab": ("read_counts", "make_golden", "make_card", "measure_training"),
    "tokenmill.stages.train_vocab_learn": ("LearnTask.run",),
    "tokenmill.artifacts.golden": ("check_golden",),
    "tokenmill.storage.unit_store": ("flush",),
    "tokenmill.stages.encode_units": ("EncodeTask.run",),
    "tokenmill.stages.encode_dataset": ("write_tables",),
    "tokenmill.checks.file_checks": ("sample_engines", "check_file"),
    "tokenmill.checks.table_checks": ("write_tables",),
}


def main() -> None:
    parser = options("incremental", __doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--shard-kb", type=int, default=300)
    parser.add_argument("--engine", choices=["inline", "threads"], default="inline")
    parser.add_argument("--grouped", action="store_true", help="let small shards share units, as params.yaml has it")
    parser.add_argument("--directory", type=Path, help="where there is room for four times the shards")
    parser.add_argument("--timed", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.timed:
        print_cost(asked.timed)
        return
    with recording("build", ("dvc", "prefect", "pyarrow"), asked) as measured:
        project = measured.folder / "project"
        n_bytes = sharded_project(project, asked.shards, asked.shard_kb * 1000, asked.engine, asked.grouped)
        print(f"{asked.shards:,} shards, {n_bytes / 1e6:,.0f} MB of JSON lines, run.engine: {asked.engine}", flush=True)
        for what in builds_of(project, asked.shards):
            cell = build(project)
            _print(what, cell)
            measured.cells.append({"build": what, "shards": asked.shards, "text_bytes": n_bytes, **cell})


def builds_of(project: Path, n_shards: int) -> Iterator[str]:
    """Names each build when the project is ready for it."""
    yield "first build"
    yield "nothing changed"
    changed = project / f"data/raw/{n_shards // 2:06}.jsonl"
    change(changed)
    yield "one changed"
    for stage in ("count", "train-vocab"):  # the tokenizer as it is, as a published one would be
        run(project, "dvc", "freeze", "-q", stage)
    change(changed)
    yield "one changed, tokenizer fixed"


def change(shard: Path) -> None:
    """Adds a document to a shard."""
    shard.write_bytes(shard.read_bytes() + msgspec.json.encode({"id": "new", "text": "one more"}) + b"\n")


def build(project: Path) -> Cell:
    """Builds in a process of its own, and says what it cost as a cell of one run."""
    arguments = ("benchmarks.incremental", "--timed", project)
    # The build runs in the project: where a pyproject.toml names Prefect, it is asked for a server first.
    seconds, _, cost = timed(lambda: module_result(*arguments, environment=ENVIRONMENT, folder=project))
    stages = {
        stage: {"runs_s": record.seconds([stage_s]), "runs_work_s": record.seconds([work_s])}
        for stage, (stage_s, work_s) in cost["stages"].items()
    }
    overhead_s = record.seconds([seconds - cost["work_s"]])
    peak_mb = [round(cost["peak_mb"], 1)]
    return {
        "runs_s": record.seconds([seconds]),
        "runs_overhead_s": overhead_s,
        "runs_peak_mb": peak_mb,
        "stages": stages,
    }


def _print(what: str, cell: Cell) -> None:
    """Prints one line of the table, and one a stage."""
    [seconds], [overhead_s], [peak_mb] = cell["runs_s"], cell["runs_overhead_s"], cell["runs_peak_mb"]
    print(
        f"{what:<28} {seconds:8.1f} s  overhead {overhead_s:6.1f} s ({overhead_s / seconds:6.1%})  peak {peak_mb:6.0f} MB",
        flush=True,
    )
    rest_s = overhead_s
    for name, stage in cell["stages"].items():
        stage_s, stage_overhead_s = stage["runs_s"][0], stage["runs_s"][0] - stage["runs_work_s"][0]
        print(f"  {name:<26} {stage_s:8.1f} s  overhead {stage_overhead_s:6.1f} s", flush=True)
        rest_s -= stage_overhead_s
    print(f"  {'around them':<26} {'':8}    overhead {rest_s:6.1f} s", flush=True)


def print_cost(project: Path) -> None:
    """Prints one line of JSON: what the process of its own measured."""
    from tokenmill.__main__ import program
    from tokenmill.pipeline import build
    from tokenmill.pipeline.memory import peak_mb

    work = _Clock()
    for module, names in _WORK.items():
        __import__(module)
        for name in names:
            *of_class, function = name.split(".")
            owner = getattr(sys.modules[module], of_class[0]) if of_class else sys.modules[module]
            assert callable(getattr(owner, function, None)), f"{module} has no {name}: mend _WORK"
            setattr(owner, function, work.measured(getattr(owner, function)))
    stages: dict[str, list[float]] = {}
    run_stage = build.Build.stage

    def stage(self: Any, name: str, *work_and_pool: Any) -> None:
        start_s, work_before_s = time.monotonic(), work.seconds
        run_stage(self, name, *work_and_pool)
        stages[name] = [time.monotonic() - start_s, work.seconds - work_before_s]

    build.Build.stage = stage  # type: ignore[method-assign]
    sys.argv = ["tokenmill", "build", "--params", str(project / "params.yaml")]
    code = program()
    print(json.dumps({"stages": stages, "work_s": work.seconds, "peak_mb": peak_mb() or 0.0}))
    sys.exit(code)


class _Clock:
    """The time in which at least one measured function runs, in any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._n_running = 0
        self._since_s = 0.0

    def measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            with self._running():
                return function(*args, **named)

        return run

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self._lock:
            self._n_running += 1
            if self._n_running == 1:
                self._since_s = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._n_running -= 1
                if self._n_running == 0:
                    self.seconds += time.monotonic() - self._since_s


if __name__ == "__main__":
    main()
