"""What a build shows: one line a stage while it works, and a table at the end.

The line is kept up to date on a terminal and in a notebook; in a pipe and in a CI log, lines follow each other.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

Advance = Callable[[int, int], None]
"""Called, from any thread, with the bytes of files, and the tokens made of them, that were done since the last call."""

Action = Literal["run", "up to date", "restored", "frozen", "taken", "not needed"]

level: int = 0
"""How much is said. -1: errors alone; 1: also a line for each unit of work; 2: also what libraries log."""

_PLAIN_EVERY_S = 30.0
_REFRESH_PER_S = 4
_BAR_MIN, _BAR_MAX = 4, 60  # characters
_NOTEBOOK_WIDTH = 100
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_COLUMNS = ("stage", "units", "documents", "read", "text", "tokens", "seconds", "read/s", "peak memory", "")
_DROPPED = (
    "peak memory",
    "units",
    "text",
    "documents",
    "seconds",
    "read/s",
)  # from a table that is too wide, in this order


@dataclass(frozen=True)
class StageSummary:
    """What one stage did. `file_mb`: millions of bytes of the files that its units are of; `text_mb`: of UTF-8 text; `peak_mb`:
    the most memory that the process held meanwhile, in millions of bytes; None: not of this stage, or not run."""

    stage: str
    action: Action
    n_units: int | None = None
    n_documents: int | None = None
    file_mb: float | None = None
    text_mb: float | None = None
    n_tokens: int | None = None
    seconds: float | None = None
    peak_mb: float | None = None


@dataclass
class Progress:
    """How far a stage is: `done` of `total`, which are bytes of files, or tokens of a vocabulary. `n_tokens`: what was made of
    the bytes."""

    stage: str
    total: int
    unit: Literal["bytes", "tokens"]
    done: int = 0
    n_tokens: int = 0
    n_skipped: int = 0
    start_s: float = field(default_factory=time.monotonic)
    end_s: float | None = None
    lock: Lock = field(default_factory=Lock, repr=False)
    tell: Callable[[], None] = lambda: None

    def add(self, n: int, n_tokens: int = 0) -> None:
        """Takes in what was done; a unit that is done twice does not count for more than there is."""
        with self.lock:
            self.done = min(self.done + n, self.total)
            self.n_tokens += n_tokens
            self.tell()

    def skip(self, n: int) -> None:
        """Takes in what was done before this build, which says nothing about its speed."""
        with self.lock:
            self.done += n
            self.n_skipped += n

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def cells(self) -> dict[str, str]:
        """How far it is, in words, by what they are about; the more important come first."""
        seconds = (self.end_s or time.monotonic()) - self.start_s
        n_now = self.done - self.n_skipped
        found = {"done": _of(self.done, self.total, self.unit)}
        if self.end_s is not None:
            found["time"] = f"in {_clock(seconds)}"
        elif n_now:
            found["time"] = f"{_clock(seconds * (self.total - self.done) / n_now)} left"
        if n_now:
            rate = n_now / max(seconds, 1e-3)
            found["rate"] = f"{size(rate)}/s" if self.unit == "bytes" else f"{rate:,.0f} tokens/s"
        if self.n_tokens:
            found["tokens"] = f"{self.n_tokens:,} tokens"
        return found

    def __str__(self) -> str:
        return f"{self.stage}: {self.share:.0%}, {', '.join(self.cells.values())}"


shown: list[Progress] = []
"""Every stage that showed its progress in this process, in order: for a thread that tells others of it."""

_live: list[Callable[[str], None]] = []  # prints a line above the one that is kept up to date, while there is one


@contextmanager
def progress(stage: str, total: int, unit: Literal["bytes", "tokens"]) -> Iterator[Progress]:
    """Shows how far a stage is while the block runs, which tells what it yields of what was done."""
    now = Progress(stage, total, unit)
    shown.append(now)
    with (_plain if level else _terminal if _is_terminal() else _notebook if _is_notebook() else _plain)(now):
        try:
            yield now
            if unit == "tokens":
                now.total = now.done  # there may be no more to learn
            now.done = now.total
        finally:
            now.end_s = time.monotonic()


def line_of(now: Progress, width: int) -> tuple[str, str, str]:
    """How far a stage is, in at most `width` characters: what stands before the bar, the bar, and what stands behind it."""
    head = f"{now.stage:<11} {now.share:>4.0%} "
    cells = list(now.cells.items())
    while len(cells) > 1 and len(head) + _BAR_MIN + len(_joined(cells)) > width:
        cells.pop()
    tail = _joined(cells)
    room = min(width - len(head) - len(tail), _BAR_MAX)
    filled = int(room * now.share)
    bar = "━" * filled + "─" * (room - filled) if room >= _BAR_MIN else ""
    return head[:width], bar, tail[: max(width - len(head), 0)]


def say(line: str) -> None:
    """One line for the person who watches (standard error)."""
    if level < 0:
        return
    for show in _live[:1] or [_print_plain]:  # another thread may end the line that is kept up to date
        show(line)


def _print_plain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def say_more(line: str) -> None:
    """One line for a person who asked for more (`--verbose`)."""
    if level > 0:
        say(line)


def size(n_bytes: float) -> str:
    """A number of bytes in few characters, like 12 bytes, 4.5 kB or 1.2 GB."""
    scale, unit = _scale(n_bytes)
    return f"{n_bytes / scale:,.1f} {unit}" if scale > 1 else f"{n_bytes:.0f} bytes"


def rows(summaries: Sequence[StageSummary]) -> list[dict[str, str]]:
    """What every stage did, as it is shown: a cell by the name of its column."""
    return [_cells(summary) | {"what": summary.action} for summary in summaries]


def table(summaries: Sequence[StageSummary]) -> None:
    """Prints what every stage did (standard output); a narrow terminal shows fewer columns."""
    # DVC's colorama removes colours from what goes through sys.stdout into a pipe. Under --json, stdout is stderr.
    is_coloured = os.environ.get("FORCE_COLOR") and sys.stdout is not sys.stderr
    if not is_coloured and not sys.stdout.isatty():
        print("\n".join(table_lines(summaries, None)))
        return
    from rich.console import Console

    console = Console(highlight=False, file=sys.__stdout__ if is_coloured else sys.stdout)
    lines = table_lines(summaries, console.width if console.file.isatty() else None)
    for i, line in enumerate(lines):
        console.print(line, style=None if i else "bold", markup=False, soft_wrap=True)


def table_lines(summaries: Sequence[StageSummary], width: int | None) -> list[str]:
    """The lines of the table, the first with the names of the columns, in at most `width` characters, if that is said."""
    found = [_cells(summary) | {"": summary.action} for summary in summaries]
    columns = list(_COLUMNS)
    for dropped in (None, *_DROPPED):
        columns = [name for name in columns if name != dropped]
        widths = [max(len(name), *(len(row[name]) for row in found)) for name in columns]
        if width is None or sum(widths) + 2 * (len(columns) - 1) <= width:
            break
    lines = []
    for row in ({name: name for name in columns}, *found):
        first, *cells = [row[name] for name in columns]
        aligned = [cell.rjust(n) for cell, n in zip(cells[:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *aligned, cells[-1]]).rstrip()[:width])
    return lines


def _cells(summary: StageSummary) -> dict[str, str]:
    rate = summary.file_mb / summary.seconds if summary.file_mb is not None and summary.seconds else None
    return {
        "stage": summary.stage,
        "units": _number(summary.n_units),
        "documents": _number(summary.n_documents),
        "read": _size_of_mb(summary.file_mb),
        "text": _size_of_mb(summary.text_mb),
        "tokens": _number(summary.n_tokens),
        "seconds": _number(summary.seconds, 1),
        "read/s": _size_of_mb(rate),
        "peak memory": _size_of_mb(summary.peak_mb),
    }


def _number(value: float | None, decimals: int = 0) -> str:
    return "–" if value is None else f"{value:,.{decimals}f}"


def _size_of_mb(value: float | None) -> str:
    return "–" if value is None else size(value * 1e6)


def _of(done: int, total: int, unit: str) -> str:
    """Both in the unit that fits the whole."""
    scale, name = _scale(total) if unit == "bytes" else (1, unit)
    decimals = 1 if scale > 1 else 0
    return f"{done / scale:,.{decimals}f} of {total / scale:,.{decimals}f} {name}"


def _scale(n_bytes: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in _UNITS if n_bytes >= scale * 0.99995), (1, "bytes"))


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _joined(cells: Sequence[tuple[str, str]]) -> str:
    return "".join(f"  {words}" for _, words in cells)


def _is_terminal() -> bool:
    """A CI system may give a terminal, and keeps as a log what is written over there."""
    is_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_ci


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not imported to find out."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and type(ask()).__name__ == "ZMQInteractiveShell"


@contextmanager
def _terminal(now: Progress) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)

    def line() -> Text:
        head, bar, tail = line_of(now, console.width)
        return Text.assemble(head, (bar, "green"), tail, no_wrap=True, overflow="crop")

    def above(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with Live(
        get_renderable=line,
        console=console,
        refresh_per_second=_REFRESH_PER_S,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        _live.insert(0, above)
        try:
            yield
        finally:
            _live.remove(above)


@contextmanager
def _notebook(now: Progress) -> Iterator[None]:
    """One line that is written over: a notebook goes back to its beginning at a carriage return."""

    def write_over() -> None:
        line = "".join(line_of(now, _NOTEBOOK_WIDTH))
        print(f"\r{line.ljust(_NOTEBOOK_WIDTH)}", end="", file=sys.stderr, flush=True)

    def above(line: str) -> None:
        print(f"\r{line.ljust(_NOTEBOOK_WIDTH)}", file=sys.stderr, flush=True)
        write_over()

    write_over()
    now.tell = _at_most_every(1 / _REFRESH_PER_S, write_over)
    _live.insert(0, above)
    try:
        yield
    finally:
        _live.remove(above)
        write_over()
        print(file=sys.stderr, flush=True)


@contextmanager
def _plain(now: Progress) -> Iterator[None]:
    whole = f"{size(now.total)} of files" if now.unit == "bytes" else f"{now.total:,} tokens"
    say(f"{now.stage}: started, {whole}")
    now.tell = _at_most_every(_PLAIN_EVERY_S, lambda: say(str(now)))
    yield


def _at_most_every(every_s: float, do: Callable[[], None]) -> Callable[[], None]:
    last_s = time.monotonic()

    def done() -> None:
        nonlocal last_s
        if (now_s := time.monotonic()) - last_s >= every_s:
            last_s = now_s
            do()

    return done
