"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], n_right: int = 0) -> str:
    """A table; the last `n_right` columns are numbers, which stand to the right."""
    n_left = len(head) - n_right
    lines = [head, ["---"] * n_left + ["---:"] * n_right, *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: str) -> str:
    """Text as code; nothing is nothing."""
    assert "`" not in text
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    """A pipe ends a cell, but for one in code."""
    return "`".join(part if i % 2 else part.replace("|", "&#124;") for i, part in enumerate(text.split("`")))
