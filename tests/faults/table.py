"""The table at the end: the tries of each mode, and their outcomes."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["right", "error", "wrong", "hang"]

_HEAD = ("mode", "tried", "right bytes", "clear error", "wrong", "hang", "seconds")
_TOLD_EVERY_S = 60.0


@dataclass
class Row:
    """The tries of one mode by what came of them: the right bytes, an error that names its cause, anything else, or no end.

    All but a hang also mean that the next build, without the fault, ended with the right bytes and left nothing over.
    """

    mode: str
    skipped: str | None = None
    outcomes: dict[Outcome, int] = field(default_factory=lambda: {"right": 0, "error": 0, "wrong": 0, "hang": 0})
    seconds: float = 0.0

    def take(self, outcome: Outcome, about: str = "") -> None:
        """Takes in one try; what is wrong is told at once."""
        self.outcomes[outcome] += 1
        if outcome in ("wrong", "hang"):
            tell(f"{self.mode}: {outcome}: {about}")

    @property
    def failed(self) -> bool:
        """Whether one of the tries was not as it must be, or none was made."""
        return bool(
            self.outcomes["wrong"] or self.outcomes["hang"] or not (self.skipped or sum(self.outcomes.values()))
        )


class Told:
    """Says now and then how far a mode is."""

    def __init__(self, row: Row, n: int) -> None:
        self._row = row
        self._n = n
        self._last_s = time.monotonic()

    def show(self) -> None:
        """Says it, if it was not said lately."""
        if time.monotonic() - self._last_s > _TOLD_EVERY_S:
            self._last_s = time.monotonic()
            done = sum(self._row.outcomes.values())
            tell(f"{self._row.mode}: {done} of {self._n}, {self._row.outcomes}")


def tell(line: str) -> None:
    """One line for who waits (standard error)."""
    print(line, file=sys.stderr, flush=True)


def as_text(rows: Iterable[Row]) -> str:
    """A line a mode."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i and len(line) > 2 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    if row.skipped:
        return row.mode, f"skipped: {row.skipped}"
    return (
        row.mode,
        str(sum(row.outcomes.values())),
        *(str(row.outcomes[outcome]) for outcome in ("right", "error", "wrong", "hang")),
        f"{row.seconds:.0f}",
    )
