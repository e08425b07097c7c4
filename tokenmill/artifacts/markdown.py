"""Text of Markdown pages that are made from numbers and names of others."""

from collections.abc import Iterable


def code(text: str) -> str:
    """The text as code on a single line, whatever it contains."""
    return f"`{repr(text)[1:-1].replace('`', chr(39))}`"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values, without a head. A value may have any character but line ends."""
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in rows)
