"""Makes standard output and error take every text, in the encoding of each."""

import codecs
import io
import os
import sys

_IN_ASCII = {"…": "...", "–": "-", "→": "->", "×": "x", "━": "=", "─": "-"}


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
