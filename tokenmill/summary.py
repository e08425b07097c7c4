"""Sums up what each stage of a build did, and prints that as a table."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tokenmill.console import is_notebook
from tokenmill_reader.shown import size

Action = Literal["run", "up to date", "restored", "frozen", "imported", "not needed"]

_COLUMNS = ("stage", "units", "documents", "read", "text", "tokens", "seconds", "read/s", "peak memory", "")
# A table that is too wide for the terminal loses columns in this order.
_DROPPED = ("peak memory", "units", "text", "documents", "seconds", "read/s")


@dataclass(frozen=True)
class StageSummary:
    """What one stage did. Sizes are in millions of bytes.

    `file_mb`: the size of its input files. `done_mb`: their size in units that this build ran, which is what it read. `text_mb`:
    the size of the text in UTF-8. `n_tokens`: those of the dataset; `vocab_size`: those of the vocabulary. `peak_mb`: the
    process's peak memory during the stage. None: the stage has no such number, or did not run.
    """

    stage: str
    action: Action
    n_units: int | None = None
    n_documents: int | None = None
    file_mb: float | None = None
    text_mb: float | None = None
    n_tokens: int | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    done_mb: float | None = None
    vocab_size: int | None = None

    @property
    def what(self) -> str:
        """The action, and the size of the vocabulary that it gave."""
        return self.action if self.vocab_size is None else f"{self.action}, vocab {self.vocab_size:,}"


def rows(summaries: Sequence[StageSummary]) -> list[dict[str, str]]:
    """One row per stage, as text: each cell by the name of its column, and what it did as "what"."""
    return [_cells(summary) | {"what": summary.what} for summary in summaries]


def table(summaries: Sequence[StageSummary]) -> None:
    """Prints the table to standard output. A narrow terminal shows fewer columns."""
    # DVC's colorama removes colours from what goes through sys.stdout into a pipe. Under --json, stdout is stderr.
    is_coloured = os.environ.get("FORCE_COLOR") and sys.stdout is not sys.stderr
    if is_notebook() or (
        not is_coloured and not sys.stdout.isatty()
    ):  # rich makes an output of each line in a notebook
        print("\n".join(table_lines(summaries, None)))
        return
    from rich.console import Console

    console = Console(highlight=False, file=sys.__stdout__ if is_coloured else sys.stdout)
    lines = table_lines(summaries, console.width if console.file.isatty() else None)
    for i, line in enumerate(lines):
        console.print(line, style=None if i else "bold", markup=False, soft_wrap=True)


def table_lines(summaries: Sequence[StageSummary], width: int | None) -> list[str]:
    """The lines of the table, first the names of the columns. `width`: the most characters in a line; None: no limit."""
    found = [_cells(summary) | {"": summary.what} for summary in summaries]
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
    rate = summary.done_mb / summary.seconds if summary.done_mb and summary.seconds else None
    return {
        "stage": summary.stage,
        "units": _number(summary.n_units),
        "documents": _number(summary.n_documents),
        "read": _size_of_mb(summary.done_mb),
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
