"""make bench-first: whole builds as a user starts them: the first of 16 MB by the engines inline and threads, the first of 504 MB
with a published tokenizer, and of 40,000 files of 900 bytes the first and one with nothing changed.

A build is `tokenmill build` in a process of its own, from its start to its end; the processor time is that of the process and of
those that it starts. Engines take turns. On two cores, 2 × seconds − processor seconds is the time in which one thread worked
alone, plus twice the time in which none did. What this does not show: a slow disk, as all is in the page cache.
"""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.corpus import GPT2, needed_files
from benchmarks.harness import Cell, in_turns, options, recording, runs_of
from benchmarks.process import Run
from benchmarks.project import (
    change_params,
    copy_flows,
    empty_project,
    let_files_age,
    run_tokenmill,
    sharded_project,
    shards,
    stages_of,
)

_MADE = ("dvc.lock", "tokenmill.lock", ".tokenmill", ".dvc/cache", ".dvc/tmp")
_N_SMALL, _SMALL_BYTES, _SMALL_FOLDERS = 40_000, 900, 40


def main() -> None:
    parser = options("first_build", __doc__, runs=3)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=[*BENCHES])
    parser.add_argument("--directory", type=Path, help="where there is room for 3 GB")
    asked = parser.parse_args()
    if "imported" in asked.only:  # the others need no tokenizer
        needed_files(GPT2)
    with recording("first_build", ("dvc", "prefect", "pyarrow"), asked) as measured:
        for name in asked.only:
            folder = measured.folder / name
            folder.mkdir()
            for cell in BENCHES[name](folder, asked.runs):
                seconds = "  ".join(f"{run_s:6.1f}" for run_s in cell["runs_s"])
                cpu_s = "  ".join(f"{run_s:6.1f}" for run_s in cell["runs_cpu_s"])
                print(f"{cell['build']:<45} {seconds} s   processor {cpu_s} s", flush=True)
                measured.cells.append(cell)
            shutil.rmtree(folder)


def engines(folder: Path, runs: int) -> Iterator[Cell]:
    """16 MB in eight files, by the engine inline and by Prefect's with threads."""
    projects = {engine: folder / engine for engine in ("inline", "threads")}
    n_bytes = 0
    for engine, project in projects.items():
        n_bytes = sharded_project(project, 8, 2_000_000, engine, grouped=True)
        copy_flows(project)
    builds = {engine: partial(_first, project) for engine, project in projects.items()}
    for engine, builds_of_engine in in_turns(builds, runs).items():
        yield _cell(f"16 MB, {engine}", n_bytes, builds_of_engine)


def imported(folder: Path, runs: int) -> Iterator[Cell]:
    """504 MB in eight files with the tokenizer of GPT-2, inline."""
    project = folder / "project"
    n_bytes = sharded_project(project, 8, 63_000_000, "inline", grouped=True)
    change_params(project, {"tokenizer": {"from": str(GPT2.absolute())}}, "run", {"workers": 2})
    yield _cell("504 MB, published tokenizer, inline", n_bytes, [_first(project) for _ in range(runs)])


def many_files(folder: Path, runs: int) -> Iterator[Cell]:
    """40,000 files of plain text, 1,000 a folder, inline."""
    project = folder / "project"
    empty_project(project, "inline", grouped=True)
    (lines,) = shards(1, 2 * _N_SMALL * _SMALL_BYTES)
    text = "\n".join(msgspec.json.decode(line)["text"] for line in lines.splitlines()).encode("ascii", "ignore")
    assert len(text) >= _N_SMALL * _SMALL_BYTES, len(text)
    for i in range(_N_SMALL):
        path = project / f"data/raw/{i % _SMALL_FOLDERS:02}/{i:05}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text[i * _SMALL_BYTES : (i + 1) * _SMALL_BYTES])
    let_files_age()
    n_bytes = _N_SMALL * _SMALL_BYTES
    yield _cell("40,000 files, first", n_bytes, [_first(project) for _ in range(runs)])
    again = stages_of(project)  # the first that finds nothing changed also writes down what it found
    assert {one["action"] for one in again.values()} == {"up to date"}, again
    yield _cell("40,000 files, nothing changed", n_bytes, [run_tokenmill(project, "build", "-q") for _ in range(runs)])


BENCHES = {"engines": engines, "imported": imported, "many_files": many_files}


def _first(project: Path) -> Run:
    """Builds what has never been built."""
    for name in (*_MADE, *(f"data/{made.name}" for made in (project / "data").iterdir() if made.name != "raw")):
        path = project / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    os.sync()  # what was written before is not this build's
    return run_tokenmill(project, "build", "-q")


def _cell(build: str, n_bytes: int, runs: list[Run]) -> Cell:
    return {"build": build, "text_bytes": n_bytes} | runs_of(runs)


if __name__ == "__main__":
    main()
