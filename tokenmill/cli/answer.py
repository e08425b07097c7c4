"""The answer of a command: text for a person, or JSON in the envelope that all commands share."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

from tokenmill.error_pages import error_pages
from tokenmill.errors import EXIT_DONE, TokenmillError, code_of, of_the_machine
from tokenmill.quantities import finite
from tokenmill_reader.shown import as_shown

SCHEMA = 1
"""Version of the envelope. It rises when a field is removed or changes its meaning, not when one is added."""

STREAMS = ("serve", "view")
"""Commands that print one JSON object per line while they run."""


@dataclass(frozen=True)
class Answer:
    """The answer of a command. `result`: values of JSON. `show`: prints the answer as text. `is_asked_for`: the text is the
    purpose of the command, so -q still prints it; -q omits a report of what was done."""

    result: Any
    show: Callable[[], None]
    code: int = EXIT_DONE
    is_asked_for: bool = True


def text(result: Any, lines: str | Iterable[str], code: int = EXIT_DONE, is_asked_for: bool = True) -> Answer:
    """An answer whose text is these lines; a str is one line."""
    return Answer(result, lambda: print(as_shown(lines)), code, is_asked_for)


def print_result(command: str | None, result: Any) -> None:
    """Prints the result of a command as JSON."""
    _print({"schema": SCHEMA, "command": command, "ok": True, "result": result})


def print_error(command: str | None, error: BaseException) -> None:
    """Prints the error that ended a command as JSON."""
    _print({"schema": SCHEMA, "command": command, "ok": False, "error": as_json(error)})


def message_of(error: BaseException) -> str:
    """The whole message of an error, for people."""
    return str(_for_people(error))


def as_json(error: BaseException) -> dict[str, str | None]:
    """The parts of an error. `where`: file, row or setting. `why`: the meaning of its code. `fix`: what to do.

    >>> from tokenmill.errors import ParamsError
    >>> found = as_json(ParamsError("params.yaml: count.pattern", "found 3; allowed: a text.", "Put it in quotes.", code="TM102"))
    >>> found["where"], found["what"], found["fix"]
    ('params.yaml: count.pattern', 'found 3; allowed: a text.', 'Put it in quotes.')
    """
    shown = _for_people(error)
    page = error_pages()[shown.code]
    return {
        "code": shown.code,
        "title": page.title,
        "what": shown.what,
        "where": shown.where or None,
        "why": page.meaning,
        "fix": shown.fix or page.advice,
        "message": str(shown),
    }


def _for_people(error: BaseException) -> TokenmillError:
    """The error itself, or one with the words and the code for an error of another kind."""
    match error:
        case TokenmillError():
            return error
        case OSError():
            return of_the_machine(error)
        case KeyboardInterrupt():
            what = "interrupted by Ctrl-C; what is finished is kept for the next build"
            return TokenmillError(what, code=code_of(error))
        case MemoryError():
            return TokenmillError(
                "memory",
                f"the system gave no more to this process ({str(error) or 'for a Python object'}).",
                "Raise its limit (ulimit -v, or that of the container), or use fewer run.workers and a smaller run.memory_mb_max.",
                code=code_of(error),
            )
    return TokenmillError(str(error) or type(error).__name__, code=code_of(error))


class Stdout:
    """The standard output of a command, which can be redirected."""

    def __init__(self) -> None:
        self._original: int | None = None

    @contextmanager
    def to_stderr(self) -> Iterator[None]:
        """Redirects everything that this process or a child writes to standard output in the block to standard error."""
        _flush()
        with suppress(OSError):  # standard output or error is closed
            self._original = os.dup(1)
            os.dup2(2, 1)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Ends the redirection, also from another thread."""
        _flush()  # also what was written to sys.__stdout__
        original, self._original = self._original, None
        if original is not None:
            os.dup2(original, 1)
            os.close(original)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:  # None if it was closed when the process started
            with suppress(OSError, ValueError):
                stream.flush()


def _print(envelope: dict[str, Any]) -> None:
    """Prints an envelope, in one line for a command that prints several."""
    print(json.dumps(finite(envelope), indent=None if envelope["command"] in STREAMS else 2), flush=True)
