"""The progress of a build on standard error: one line per stage.

A terminal and a notebook redraw the line. A pipe and a CI log get a new line now and then.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

from tokenmill.quantities import clock, number_of, size_of_total
from tokenmill_reader.shown import as_shown, size, without_passwords

Advance = Callable[[int, int], None]
"""Reports progress from any thread: the file bytes and the tokens that were done since the last call."""

_PLAIN_EVERY_S = 30.0
_REFRESH_PER_S = 4
_BAR_MIN, _BAR_MAX = 4, 60  # characters
_NOTEBOOK_WIDTH = 100


@dataclass
class Progress:
    """The progress of one stage: `done` of `total`, both in `unit`, which is file bytes or tokens of a vocabulary.

    `n_skipped`: how much of `done` was finished before this build. `n_tokens`: the tokens that were made of the bytes.
    `on_change` is called after each step.
    """

    stage: str
    total: int
    unit: Literal["bytes", "tokens"]
    done: int = 0
    n_tokens: int = 0
    n_skipped: int = 0
    start_s: float = field(default_factory=time.monotonic)
    end_s: float | None = None
    lock: Lock = field(default_factory=Lock, repr=False)
    on_change: Callable[[], None] = lambda: None

    def add(self, n: int, n_tokens: int = 0) -> None:
        """Adds finished work. `done` stays at most `total`, because a retried unit reports its work twice."""
        with self.lock:
            self.done = min(self.done + n, self.total)
            self.n_tokens += n_tokens
            self.on_change()

    def skip(self, n: int) -> None:
        """Adds work that was finished before this build. It does not count for the speed."""
        with self.lock:
            self.done += n
            self.n_skipped += n

    @property
    def share(self) -> float:
        """The finished share, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def cells(self) -> dict[str, str]:
        """The progress as short texts by name, the most important first."""
        seconds = (self.end_s or time.monotonic()) - self.start_s
        n_now = self.done - self.n_skipped
        found = {"done": self._done_of_total()}
        if self.end_s is not None:
            found["time"] = f"in {clock(seconds)}"
        elif n_now:
            found["time"] = f"{clock(seconds * (self.total - self.done) / n_now)} left"
        if n_now:
            rate = n_now / max(seconds, 1e-3)
            found["rate"] = f"{size(rate)}/s" if self.unit == "bytes" else f"{rate:,.0f} tokens/s"
        if self.n_tokens:
            found["tokens"] = number_of(self.n_tokens, "token")
        return found

    def _done_of_total(self) -> str:
        if self.unit == "bytes":
            return size_of_total(self.done, self.total)
        return f"{self.done:,} of {self.total:,} {self.unit}"

    def __str__(self) -> str:
        return f"{self.stage}: {self.share:.0%}, {', '.join(self.cells.values())}"


class Console:
    """Standard error, to which this process prints notes and the progress of its stages, one at a time.

    `level` says how much is printed. -1: errors only; 0: progress and notes; 1: also a line per work unit; 2: also the logs of
    libraries. The command line sets it.
    """

    def __init__(self) -> None:
        self.level = 0
        self.shown: list[Progress] = []
        """The progress of every stage that ran in this process, in order. A thread reads it to report to a Prefect server."""
        self._print_above: Callable[[str], None] = _print_plain  # prints a line, above a progress line if one is drawn

    def say(self, lines: str | Sequence[str]) -> None:
        """Prints a line, or several, to standard error, except with `--quiet`."""
        if self.level >= 0:
            self._print_above(without_passwords(as_shown(lines)))

    def say_more(self, line: str) -> None:
        """Prints one line to standard error, only with `--verbose` or `--debug`."""
        if self.level > 0:
            self.say(line)

    @contextmanager
    def progress(self, stage: str, total: int, unit: Literal["bytes", "tokens"]) -> Iterator[Progress]:
        """Shows the progress of a stage while the block runs. The block reports its work to the yielded Progress."""
        now = Progress(stage, total, unit)
        self.shown.append(now)
        drawn = (
            self._plain if self.level else _terminal if _is_terminal() else _notebook if is_notebook() else self._plain
        )
        with drawn(now) as print_above:
            before, self._print_above = self._print_above, print_above
            try:
                yield now
                if unit == "tokens":
                    now.total = now.done  # training may run out of pairs before the vocabulary is full
                now.done = now.total
            finally:
                self._print_above = before
                now.end_s = time.monotonic()

    @contextmanager
    def _plain(self, now: Progress) -> Iterator[Callable[[str], None]]:
        whole = f"{size(now.total)} of files" if now.unit == "bytes" else f"{now.total:,} tokens"
        self.say(f"{now.stage}: started, {whole}")
        now.on_change = _at_most_every(_PLAIN_EVERY_S, lambda: self.say(str(now)))
        yield self._print_above


def line_of(now: Progress, width: int) -> tuple[str, str, str]:
    """The progress line in at most `width` characters: the text before the bar, the bar, and the text after it."""
    head = f"{now.stage:<11} {now.share:>4.0%} "
    cells = list(now.cells.items())
    while len(cells) > 1 and len(head) + _BAR_MIN + len(_joined(cells)) > width:
        cells.pop()
    tail = _joined(cells)
    room = min(width - len(head) - len(tail), _BAR_MAX)
    filled = int(room * now.share)
    bar = "━" * filled + "─" * (room - filled) if room >= _BAR_MIN else ""
    return head[:width], bar, tail[: max(width - len(head), 0)]


def _joined(cells: Sequence[tuple[str, str]]) -> str:
    return "".join(f"  {words}" for _, words in cells)


def _is_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line. A CI system may provide one, but logs every redraw."""
    is_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_ci


def is_notebook() -> bool:
    """Whether this process is a notebook kernel. The check does not import IPython."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and type(ask()).__name__ == "ZMQInteractiveShell"


def _print_plain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _terminal(now: Progress) -> Iterator[Callable[[str], None]]:
    from rich.console import Console as Screen
    from rich.live import Live
    from rich.text import Text

    screen = Screen(stderr=True)

    def line() -> Text:
        head, bar, tail = line_of(now, screen.width)
        return Text.assemble(head, (bar, "green"), tail, no_wrap=True, overflow="crop")

    def above(line: str) -> None:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)

    with Live(
        get_renderable=line,
        console=screen,
        refresh_per_second=_REFRESH_PER_S,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield above


@contextmanager
def _notebook(now: Progress) -> Iterator[Callable[[str], None]]:
    """Redraws one line: in a notebook, a carriage return goes back to the start of the line."""

    def redraw() -> None:
        line = "".join(line_of(now, _NOTEBOOK_WIDTH))
        print(f"\r{line.ljust(_NOTEBOOK_WIDTH)}", end="", file=sys.stderr, flush=True)

    def above(line: str) -> None:
        print(f"\r{line.ljust(_NOTEBOOK_WIDTH)}", file=sys.stderr, flush=True)
        redraw()

    redraw()
    now.on_change = _at_most_every(1 / _REFRESH_PER_S, redraw)
    try:
        yield above
    finally:
        redraw()
        print(file=sys.stderr, flush=True)


def _at_most_every(every_s: float, do: Callable[[], None]) -> Callable[[], None]:
    last_s = time.monotonic()

    def done() -> None:
        nonlocal last_s
        if (now_s := time.monotonic()) - last_s >= every_s:
            last_s = now_s
            do()

    return done


console: Console = Console()
"""The only one of this process. `tokenmill.cli.main` sets its level."""
say: Callable[[str | Sequence[str]], None] = console.say
say_more: Callable[[str], None] = console.say_more
progress: Callable[[str, int, Literal["bytes", "tokens"]], AbstractContextManager[Progress]] = console.progress
