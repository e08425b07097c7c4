"""The errors tokenmill raises on purpose, and the words for those of the machine.

    TokenmillError               a user can mend it; the command line prints the message alone and exits with 2
    ├── ParamsError              params.yaml, an argument of the command line, or dvc.yaml
    ├── CorpusError              an input file, a row of it, or its text
    │   ├── DamagedError         a file that is not whole: truncated, or with bytes that are not of its kind
    │   ├── PassingError         a file that could not be read this time, as a disk or a network failed: it is tried again
    │   └── SpecialTokenError    a special token's text inside a document, where that is to be refused
    ├── PatternError             a split pattern that does not compile, or gives up on a text
    ├── TokenizerError           a tokenizer file, a vocabulary, an id
    ├── CountsError              a table of counts, or the memory that counting may hold
    ├── VersionsError            DVC or git: no repository, a busy one, inputs that changed while a stage ran
    ├── BusyError                another process builds the project
    ├── ValidationError          a dataset that is not what it says
    ├── UnitTimeoutError         a unit took longer than run.unit_timeout_s allows
    └── UnitsError               several units of a stage failed, each with an error of the kinds above
    InternalError                a panic of the core: a defect of tokenmill, with a request to report it
    Terminated                   no error: the command is to end, by a termination signal or as cancelled in Prefect

A message says what, where (file, row), what was expected, what was found, and what to do.
"""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError as ModelError

_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN)


class TokenmillError(Exception):
    """Base of every error that a user can mend."""


class ParamsError(TokenmillError):
    """A parameter, an argument, or a stage definition is wrong."""


class CorpusError(TokenmillError):
    """An input file cannot be read as documents."""


class DamagedError(CorpusError):
    """An input file is not whole."""


class PassingError(CorpusError):
    """An input file could not be read for a reason that may pass."""


class SpecialTokenError(CorpusError):
    """A text holds the text of a special token. `index`: which text; `byte_offset`: where in it, in UTF-8, or None where
    it is only there once the text is normalized; `token`: which token."""

    def __init__(self, index: int, byte_offset: int | None, token: str, place: str | None = None) -> None:
        self.index: int = index
        self.byte_offset: int | None = byte_offset
        self.token: str = token
        at = "once it is normalized" if byte_offset is None else f"at byte {byte_offset}"
        super().__init__(
            f"{place or f'text {index}'}: the special token {token!r} stands {at}. Remove it, or let it be text (as_text) "
            "or its id (allow)."
        )


class PatternError(TokenmillError):
    """A split pattern does not compile, or gives up on a text."""


class TokenizerError(TokenmillError):
    """A tokenizer file, a vocabulary or an id is wrong."""


class CountsError(TokenmillError):
    """A table of counts is wrong, or counting would exceed its memory."""


class VersionsError(TokenmillError):
    """DVC or git cannot do what the build needs."""


class BusyError(TokenmillError):
    """Another process builds the project. `holder`: the sentence that says which; `advice`: what to do."""

    def __init__(self, holder: str, advice: str) -> None:
        self.holder = holder
        super().__init__(f"{holder} {advice}")


class ValidationError(TokenmillError):
    """A dataset does not hold what its manifest or its input says."""


class UnitTimeoutError(TokenmillError):
    """A unit takes too long."""


class UnitsError(TokenmillError):
    """Several units of a stage failed; the message has a line for each."""


class Terminated(BaseException):
    """The command is to end now; Prefect's server shows the message as the reason."""

    def __init__(self) -> None:
        super().__init__("asked to end; what is finished is kept for the next build")


_SHOWN_CHARACTERS_MAX = 60  # characters of a value in a message
EXIT_INTERRUPTED = 130
"""Of a command that Ctrl-C ended."""
EXIT_UNREAD = 141
"""Of one whose reader has seen enough, as `head` has: as the shell says of a command that SIGPIPE ended."""
EXIT_TERMINATED = 143
"""Of one that Terminated ended."""


class InternalError(Exception):
    """The core panicked: a defect of tokenmill, not of its input."""


def unreadable(place: str, error: OSError) -> CorpusError:
    """The error for an input file that the system did not let be read; `error.errno` is set."""
    kind = PassingError if error.errno in _PASSING else CorpusError
    why = error.strerror if error.errno == errno.EINVAL else os.strerror(error.errno or 0)
    return kind(f"{place} cannot be read: {why}. Check the path, its permissions and its disk.")


def of_the_machine(error: OSError) -> str:
    """What to say of a call of the system that failed: which file, why, and what to do."""
    place = error.filename or "a file"
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return f"{place}: {why}. Mend that and try again."
    return (
        f"{place}: {why}: {room(place)}. Make room and build again: what is finished is kept, and the last recorded version "
        "stays in DVC's cache."
    )


def first_finding(error: "ModelError") -> str:
    """Where a file differs from its model, and how, in words for a message."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def room(place: str) -> str:
    """How much is free on the disk that a path is on, whether or not it is there."""
    path = Path(os.path.abspath(place))  # noqa: PTH100 — links are not followed
    folder = next(one for one in (path, *path.parents) if one.is_dir())
    disk = os.statvfs(folder)
    return f"{disk.f_bavail * disk.f_frsize / 1e6:,.1f} MB are free there"


def shown(value: object) -> str:
    """A value in few characters, however deep it is; null and what is not there are nothing."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)[:_SHOWN_CHARACTERS_MAX]
