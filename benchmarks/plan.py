"""python -m benchmarks.plan: how often a build lies within the ranges that `tokenmill plan` gave.

Each of four corpora is built once, and planned before with as many seeds: the outcome of each quantity should lie in its range
for 19 of 20 seeds. The corpora are those of ../shared/corpus and the sample documents of the machine. What this does not show:
corpora much larger than what a plan reads, except with --read-mb, which lets a plan read less; and seconds on a machine at
rest, unless it is: the load is in the record.
"""

import argparse
import os
from functools import partial
from pathlib import Path

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.harness import Cell, options, recording
from benchmarks.process import timed
from benchmarks.project import CORPORA, corpus_project, run_tokenmill
from tokenmill.config.load_params import load_params
from tokenmill.features.plan.planning import make_plan
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.pipeline.last_plan import compare, keep_plan, outcome_of


def main() -> None:
    size = SampleSize()
    parser = options("plan", __doc__)
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--engine", choices=["inline", "threads"], default="inline")
    parser.add_argument("--read-mb", type=float, default=size.read_bytes / 1e6, help="text that a plan reads, in MB")
    parser.add_argument("--work-mb", type=float, default=size.work_bytes / 1e6, help="text that a plan encodes, in MB")
    asked = parser.parse_args()
    with recording("plan", ("dvc", "pyarrow"), asked) as measured:
        for name in asked.only:
            project = measured.folder / name
            corpus_project(project, name, asked.shared, asked.engine)
            measured.cells.extend(measure(project, name, asked))


def measure(project: Path, name: str, asked: argparse.Namespace) -> list[Cell]:
    """Plans with every seed, builds, and compares; a cell for each quantity."""
    params = load_params(project / "params.yaml")
    sizes = [SampleSize(seed, int(asked.read_mb * 1e6), int(asked.work_mb * 1e6)) for seed in range(asked.seeds)]
    runs = [timed(partial(make_plan, project, params, size)) for size in sizes]
    plans = [run.result.as_json() for run in runs]
    runs_s = [run.seconds for run in runs]
    keep_plan(project, plans[0])
    load = os.getloadavg()[0]
    run_tokenmill(project, "build", "-q")
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
        cell = {
            "corpus": name,
            "quantity": quantity,
            "found": rows[0].found,
            "n_seeds": len(rows),
            "n_in_range": n_inside,
        }
        cell |= {"runs_about_by_found_ratio": abouts, "width_below": round(low, 4), "width_above": round(high, 4)}
        cells.append(cell)
    return [{"corpus": name, "quantity": "plan", "runs_s": record.seconds(runs_s), "load": round(load, 2)}, *cells]


if __name__ == "__main__":
    main()
