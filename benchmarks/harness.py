"""What all benchmarks share: options, a record with a folder to work in, tools that take turns, and summaries of runs."""

import argparse
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from benchmarks import record
from benchmarks.process import Run

W = TypeVar("W", bound=Hashable)
T = TypeVar("T")
Cell = dict[str, Any]


def options(name: str, description: str | None, runs: int | None = None) -> argparse.ArgumentParser:
    """The parser of a benchmark's command line, with `--record`, and with `--runs` where it has a default."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    if runs is not None:
        parser.add_argument("--runs", type=int, default=runs)
    where: dict[str, Any] = {"type": Path, "default": record.DIRECTORY, "metavar": "DIRECTORY"}
    parser.add_argument("--record", **where, help="where the record goes (benchmarks/record)")
    return parser


class Recording(NamedTuple):
    """An empty folder to measure in, the cells to record, and the versions of tools, to which more may be added."""

    folder: Path
    cells: list[Cell]
    versions: dict[str, str]


@contextmanager
def recording(section: str, packages: Sequence[str], asked: argparse.Namespace) -> Iterator[Recording]:
    """Begins a section of the record, and keeps it when the block ends well and left cells in it. The folder is in
    `--directory` where there is one."""
    begun = record.begin(section, packages, asked)
    with tempfile.TemporaryDirectory(prefix=f"bench-{section}-", dir=getattr(asked, "directory", None)) as folder:
        yield Recording(Path(folder), begun["cells"], begun["versions"])
    if begun["cells"]:
        record.keep(begun, asked.record)


def in_turns(ways: Mapping[W, Callable[[], T]], n_rounds: int) -> dict[W, list[T]]:
    """What each way gave in each round. Another way begins each round, because the first one after a slow way is slower, while the
    system clears memory."""
    order = list(ways)
    results: dict[W, list[T]] = {way: [] for way in ways}
    for _ in range(n_rounds):
        for way in order:
            results[way].append(ways[way]())
        order = [*order[1:], *order[:1]]
    return results


def runs_of(runs: Iterable[Run], n_bytes: int | None = None) -> Cell:
    """The runs as a cell has them, with MB a second of `n_bytes` where they are given."""
    seconds, cpu_s = zip(*((run.seconds, run.cpu_s) for run in runs), strict=True)
    cell = {"runs_s": record.seconds(seconds), "runs_cpu_s": record.seconds(cpu_s)}
    if n_bytes is not None:
        cell["runs_mb_per_s"] = record.mb_per_s(n_bytes, seconds)
    return cell


def verdict(results: Iterable[Mapping[str, Any]], expected: Any) -> Cell:
    """What a cell says of a tool whose every run should have the answer that is expected; None is not compared. A tool that
    failed or has another answer gets no time."""
    failed = [result["failed"] for result in results if "failed" in result]
    if failed:
        return {"failed": failed[0]}
    answers = [result["answer"] for result in results]
    if expected is None or all(answer is None for answer in answers):
        return {"answer": "not compared"}
    return {"answer": "same" if all(answer == expected for answer in answers) else "other"}


def why_untimed(cell: Cell) -> str:
    """Why the tool of a cell has no time."""
    return str(cell.get("failed", "other ids than those of tokenizers: no time"))


def spread(values: Sequence[float], form: str = ".2f", unit: str = " s") -> str:
    """The median in this form, and without its width the lowest and the highest.

    >>> spread([1, 2, 4], ".1f")
    '2.0 s (1.0 to 4.0)'
    """
    narrow = form.lstrip("0123456789")
    return f"{median(values):{form}}{unit} ({min(values):{narrow}} to {max(values):{narrow}})"


def bytes_of(texts: Iterable[str]) -> int:
    """How many bytes of UTF-8 the texts have."""
    return sum(len(text.encode()) for text in texts)
