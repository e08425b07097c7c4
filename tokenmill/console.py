"""What a build shows: one progress bar a stage and a table on a terminal, plain lines in a pipe."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Advance = Callable[[float], None]
Action = Literal["run", "up to date", "restored", "frozen", "taken", "not needed"]

level: int = 0
"""How much is said: -1 nothing but errors, 1 a line for each unit of work, too, 2 what libraries log, too."""

_PLAIN_EVERY_S = 30.0
_HEAD = ("stage", "units", "documents", "MB", "tokens", "seconds", "MB/s", "peak MB", "")


@dataclass(frozen=True)
class StageSummary:
    """What one stage did. `text_mb`: millions of bytes of UTF-8 text; `peak_mb`: the most memory that the process held
    meanwhile, in millions of bytes; None: not of this stage, or not run."""

    stage: str
    action: Action
    n_units: int | None = None
    n_documents: int | None = None
    text_mb: float | None = None
    n_tokens: int | None = None
    seconds: float | None = None
    peak_mb: float | None = None


@dataclass
class Progress:
    """How far a stage is, in units like "file MB"."""

    stage: str
    total: float
    unit: str
    done: float = 0.0

    def __str__(self) -> str:
        return f"{self.stage}: {self.done:,.1f} of {self.total:,.1f} {self.unit}"


shown: list[Progress] = []
"""Every stage that showed its progress in this process, in order: for a thread that tells others of it."""


@contextmanager
def progress(stage: str, total: float, unit: str) -> Iterator[Advance]:
    """Shows how far a stage is while the block runs; what it yields is called, from any thread, with what was added."""
    now = Progress(stage, total, unit)
    shown.append(now)
    with (_bar if sys.stderr.isatty() and level == 0 else _plain_lines)(now) as advance:
        yield advance
    now.done = total


@contextmanager
def _bar(now: Progress) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn(f"{{task.fields[rate]}} {now.unit}/s", justify="right"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False) as bars:
        bar = bars.add_task(now.stage, total=now.total or 1, rate="–")
        start_s = time.monotonic()

        def advance(amount: float) -> None:
            now.done += amount
            bars.advance(bar, amount)
            rate = bars.tasks[0].completed / max(time.monotonic() - start_s, 1e-3)
            bars.update(bar, rate=f"{rate:,.1f}")

        yield advance
        bars.update(bar, completed=now.total or 1)


@contextmanager
def _plain_lines(now: Progress) -> Iterator[Advance]:
    say(f"{now.stage}: started")
    start_s = said_s = time.monotonic()

    def advance(amount: float) -> None:
        nonlocal said_s
        now.done += amount
        now_s = time.monotonic()
        if now_s - said_s >= _PLAIN_EVERY_S:
            said_s = now_s
            say(f"{now}, {now.done / (now_s - start_s):,.1f} {now.unit}/s")

    yield advance


def say(line: str) -> None:
    """One line for the person who watches (standard error)."""
    if level >= 0:
        print(line, file=sys.stderr, flush=True)


def say_more(line: str) -> None:
    """The same for who asked for more."""
    if level > 0:
        say(line)


def rows(summaries: Sequence[StageSummary]) -> list[dict[str, str]]:
    """What every stage did, as it is shown: a cell by the name of its column."""
    return [dict(zip((*_HEAD[:-1], "what"), _cells(summary), strict=True)) for summary in summaries]


def table(summaries: Sequence[StageSummary]) -> None:
    """Prints what every stage did (standard output)."""
    lines = [_cells(summary) for summary in summaries]
    if not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        widths = [max(len(row[i]) for row in (_HEAD, *lines)) for i in range(len(_HEAD))]
        for row in (_HEAD, *lines):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)),
                row[-1],
            ]
            print("  ".join(cells).rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold")
    for i, name in enumerate(_HEAD):
        shown.add_column(name, justify="left" if i in (0, len(_HEAD) - 1) else "right")
    for row in lines:
        shown.add_row(*row)
    # DVC's colorama takes the codes out of what goes through sys.stdout into a pipe.
    Console(file=sys.stdout if sys.stdout.isatty() else sys.__stdout__).print(shown)


def _cells(summary: StageSummary) -> tuple[str, ...]:
    rate = summary.text_mb / summary.seconds if summary.text_mb is not None and summary.seconds else None
    return (
        summary.stage,
        _number(summary.n_units),
        _number(summary.n_documents),
        _number(summary.text_mb, 1),
        _number(summary.n_tokens),
        _number(summary.seconds, 1),
        _number(rate, 1),
        _number(summary.peak_mb),
        summary.action,
    )


def _number(value: float | None, decimals: int = 0) -> str:
    return "–" if value is None else f"{value:,.{decimals}f}"
