"""Text that is safe to print: without control sequences."""

from __future__ import annotations

from collections.abc import Iterable

_JOINERS = "\u200c\u200d"  # inside words of Persian and Hindi, and inside emoji


def as_shown(lines: str | Iterable[str]) -> str:
    r"""Lines as text for a terminal; a str is one line. What is not printable becomes an escape, newlines and marks that turn the
    direction of text too: names and texts come from others, who could forge lines with them.

    >>> as_shown(["a.jsonl\nright", "\x1b]0;title\x07"])
    'a.jsonl\\nright\n\\x1b]0;title\\x07'
    """
    some = [lines] if isinstance(lines, str) else lines
    return "\n".join("".join(map(_shown, line)) for line in some)


def _shown(character: str) -> str:
    return character if character.isprintable() or character in _JOINERS else ascii(character)[1:-1]
