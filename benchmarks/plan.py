"""python -m benchmarks.plan: how often a build lies within the ranges that `tokenmill plan` gave.

Each of four corpora is built once, and planned before with as many seeds: the outcome of each quantity should lie in its range
for 19 of 20 seeds. The corpora are those of ../shared/corpus and the sample documents of the machine. What this does not show:
corpora much larger than what a plan reads, except with --read-mb, which lets a plan read less; and seconds on a machine at
rest, unless it is: the load is in the record.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.project import change_params, copy_flows, empty_project, run
from tokenmill.config.load_params import load_params
from tokenmill.corpus.sample import make_sample
from tokenmill.features.plan.planning import make_plan
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.pipeline.last_plan import compare, keep_plan, outcome_of

CORPORA = {
    "english": {},
    "code": {"id_column": "path"},
    "multilingual": {"text_column": "body"},
    "sample": {},
}
"""The corpora, and what params.yaml says of their columns."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--engine", choices=["inline", "threads"], default="inline")
    parser.add_argument(
        "--read-mb", type=float, default=SampleSize().read_bytes / 1e6, help="text that a plan reads, in MB"
    )
    parser.add_argument(
        "--work-mb", type=float, default=SampleSize().work_bytes / 1e6, help="text that a plan encodes, in MB"
    )
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("plan", ("dvc", "pyarrow"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as folder:
        for name in asked.only:
            project = Path(folder) / name
            make_project(project, name, asked.shared, asked.engine)
            section["cells"] += measure(project, name, asked)
    record.keep(section, asked.record)


def make_project(root: Path, name: str, shared: Path, engine: str) -> None:
    """A project with one of the corpora."""
    empty_project(root, engine, grouped=True)
    change_params(root, {}, "source", CORPORA[name])
    copy_flows(root)
    if name == "sample":
        make_sample(root / "data/raw")
    else:
        shutil.copytree(shared / name, root / "data/raw", dirs_exist_ok=True)


def measure(project: Path, name: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Plans with every seed, builds, and compares; a cell for each quantity."""
    params = load_params(project / "params.yaml")
    plans, runs_s = [], []
    for seed in range(asked.seeds):
        start_s = time.monotonic()
        plan = make_plan(project, params, SampleSize(seed, int(asked.read_mb * 1e6), int(asked.work_mb * 1e6)))
        runs_s.append(time.monotonic() - start_s)
        plans.append(plan.as_json())
    keep_plan(project, plans[0])
    load = os.getloadavg()[0]
    run(project, sys.executable, "-m", "tokenmill", "build", "-q")
    outcome = outcome_of(project, plans[0])
    print(
        f"\n{name}: {asked.seeds} plans of {min(runs_s):.1f} to {max(runs_s):.1f} s; load {load:.1f} as the build began"
    )
    print(f"{'':<22} {'in range':>8}  {'found':>14}  about / found   half-widths")
    cells = []
    by_seed = [{row.quantity: row for row in compare(plan, outcome)} for plan in plans]
    for quantity in plans[0]["quantities"]:
        rows = [found[quantity] for found in by_seed]
        if not rows[0].found:
            continue
        n_inside = sum(bool(row.is_inside) for row in rows)
        abouts = [round(row.point / rows[0].found, 4) for row in rows]
        low = sum(1 - row.low / row.point for row in rows) / len(rows)
        high = sum(row.high / row.point - 1 for row in rows) / len(rows)
        print(
            f"{quantity:<22} {n_inside:>3} of {len(rows)}  {rows[0].found:>14,.1f}  {min(abouts):5.3f} – {max(abouts):5.3f}  "
            f"-{low:6.1%} +{high:6.1%}",
            flush=True,
        )
        cells.append(
            {
                "corpus": name,
                "quantity": quantity,
                "found": rows[0].found,
                "n_seeds": len(rows),
                "n_in_range": n_inside,
                "runs_about_by_found_ratio": abouts,
                "width_below": round(low, 4),
                "width_above": round(high, 4),
            }
        )
    return [{"corpus": name, "quantity": "plan", "runs_s": record.seconds(runs_s), "load": round(load, 2)}, *cells]


if __name__ == "__main__":
    main()
