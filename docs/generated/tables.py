"""Tables in Markdown."""

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]], n_right: int = 0) -> str:
    """A table; the last `n_right` columns are numbers, which stand to the right."""
    n_left = len(head) - n_right
    lines = [head, ["---"] * n_left + ["---:"] * n_right, *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: str) -> str:
    """Text as code; nothing is nothing. A pipe in backticks ends a cell on GitHub, so such a text is HTML."""
    assert "`" not in text
    if "|" in text:
        return f"<code>{escape(text, quote=False)}</code>"
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    """A pipe ends a cell, so it is written as an entity."""
    return text.replace("|", "&#124;")
