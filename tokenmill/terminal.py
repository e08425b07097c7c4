"""Makes text safe to print: without control sequences, and in the stream's encoding."""

import codecs
import io
import os
import sys
from collections.abc import Iterable

_JOINERS = "\u200c\u200d"  # inside words of Persian and Hindi, and inside emoji
_IN_ASCII = {"…": "...", "–": "-", "→": "->", "×": "x", "━": "=", "─": "-"}


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


def prepare_streams() -> None:
    """Makes standard output and error take every text. A stream that was closed when the process began writes nowhere: print would
    write to standard output in place of a closed standard error, and files would get the numbers of the streams."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    codecs.register_error("tokenmill", _in_ascii)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="tokenmill")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(one) or ascii(one)[1:-1] for one in lacking), error.end
