"""What a command answers: as text for a person, or in the one JSON envelope of all commands."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

from tokenmill.errors import CODES, EXIT_DONE, TokenmillError, code_of, of_the_machine

SCHEMA = 1
"""Version of the envelope; it rises when a field of it goes or changes its meaning, not when one is added."""

STREAMS = ("serve",)
"""Commands that print an object a line, as they go on."""

_PLACE = re.compile(
    r"(?P<place>(?:(?:row|line|column|key|stage) [^\s:]+|[^\s:]*[/.][^:\n]*|[^\s:]+|--[a-z][^:\n]*|[^:\n]+, (?:row|line) \d+)): "
)
_ADVICE = re.compile(r"(?<=[.?!]) (?!(?:A|An|Expected|It|No|Nothing|The|They|Versions) )(?=[A-Z`])")  # it stands last


@dataclass(frozen=True)
class Answer:
    """`result`: as values of JSON; `show`: prints the same as text; `is_asked_for`: the text is what the command is for, so
    that -q does not leave it away, as it does a report of what was done."""

    result: Any
    show: Callable[[], None]
    code: int = EXIT_DONE
    is_asked_for: bool = True


def text(result: Any, words: str, code: int = EXIT_DONE, is_asked_for: bool = True) -> Answer:
    """An answer whose text is these lines."""
    return Answer(result, lambda: print(words), code, is_asked_for)


def print_result(command: str | None, result: Any) -> None:
    """Prints what a command found or did as JSON."""
    _print({"schema": SCHEMA, "command": command, "ok": True, "result": result})


def print_error(command: str | None, error: BaseException) -> None:
    """Prints the error that ended a command as JSON."""
    _print({"schema": SCHEMA, "command": command, "ok": False, "error": as_json(error)})


def message_of(error: BaseException) -> str:
    """The whole message of an error, in the words for people."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by Ctrl-C; what is finished is kept for the next build"
    return of_the_machine(error) if isinstance(error, OSError) else str(error) or type(error).__name__


def as_json(error: BaseException) -> dict[str, str | None]:
    """An error in its parts. `where`: file, row or setting; `why`: what its code means; `fix`: what to do.

    >>> from tokenmill.errors import ParamsError
    >>> found = as_json(ParamsError("params.yaml: count.pattern: found 3; allowed: a text. Put it in quotes.", code="TM102"))
    >>> found["where"], found["what"], found["fix"]
    ('params.yaml: count.pattern', 'found 3; allowed: a text.', 'Put it in quotes.')
    """
    code, message = code_of(error), message_of(error)
    where, fix = (error.where, error.fix) if isinstance(error, TokenmillError) else (None, None)
    rest = message
    if where is not None:
        rest = rest.removeprefix(where).removeprefix(": ")
    else:
        places = []
        while found := _PLACE.match(rest):
            places.append(found["place"])
            rest = rest[found.end() :]
        where = ": ".join(places) or None
    if fix is not None:
        what = rest.removesuffix(fix).rstrip()
    else:
        what, *advice = (rest, "") if "\n" in rest else _ADVICE.split(rest, maxsplit=1)
        fix = "".join(advice)
    return {
        "code": code,
        "title": CODES[code].title,
        "what": what,
        "where": where,
        "why": CODES[code].meaning,
        "fix": fix or CODES[code].advice,
        "message": message,
    }


@contextmanager
def stdout_kept() -> Iterator[None]:
    """Whatever is written to standard output in the block, by this process or a child, goes to standard error."""
    kept = None
    _flush()
    with suppress(OSError):  # one of them is closed
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()  # what went past sys.stdout
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:  # it was closed when the process began
            with suppress(OSError, ValueError):
                stream.flush()


def _print(envelope: dict[str, Any]) -> None:
    """In one line for a command that prints several."""
    print(json.dumps(envelope, indent=None if envelope["command"] in STREAMS else 2), flush=True)
