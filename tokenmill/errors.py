"""The errors tokenmill raises on purpose, and the words for those of the machine.

    TokenmillError               a user can correct it; the command line prints the message alone and exits with 2
    ├── UsageError               the command line is not understood
    ├── ParamsError              params.yaml, an argument of the command line, or dvc.yaml
    ├── CorpusError              an input file, a row of it, or its text
    │   ├── DamagedError         a file that is not whole: truncated, or with bytes that are not of its kind
    │   ├── EncryptedError       a file that is encrypted
    │   ├── PointerError         a file that stands for another one, which is not downloaded
    │   ├── PassingError         a file that could not be read this time, as a disk or a network failed: it is tried again
    │   └── SpecialTokenError    a special token's text inside a document, where that is to be refused
    ├── PatternError             a split pattern that does not compile, or gives up on a text
    ├── TokenizerError           a tokenizer file, a vocabulary, an id
    ├── CountsError              a table of counts, or the memory that counting may hold
    ├── TemplateError            a chat template that does not compile, or that needs what its variables lack
    ├── ChatError                a conversation that its chat template does not render, or that cannot be masked
    ├── VersionsError            DVC or git: no repository, a busy one, inputs that changed while a stage ran
    ├── BusyError                another process builds the project
    ├── StorageError             object storage: a name, the credentials, or a permission
    ├── ValidationError          a dataset that is not what it says
    ├── ClusterError             the cluster of run.engine, or a worker of it
    ├── ProjectCodeError         a flow or task of the project itself
    ├── UnitTimeoutError         a unit took longer than run.unit_timeout_s allows
    └── UnitsError               several units of a stage failed, each with an error of the kinds above
    InternalError                a panic of the core: a defect of tokenmill, with a request to report it
    Terminated                   no error: the command is to end, by a termination signal or as cancelled in Prefect
    TokenmillDeprecationWarning  no error: what was used works still, and a later version takes it away

TokenmillError, ParamsError, StorageError and ValidationError are those of tokenmill_reader, which raises no others.

A message says what, where (file, row), what was expected, what was found, and what to do. Every error has a code, which
`tokenmill explain` explains: that of its class, or of its kind where a class has several.
"""

import errno
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tokenmill_reader.errors import EXIT_DONE as EXIT_DONE
from tokenmill_reader.errors import EXIT_ERROR as EXIT_ERROR
from tokenmill_reader.errors import EXIT_NO as EXIT_NO
from tokenmill_reader.errors import ParamsError as ParamsError
from tokenmill_reader.errors import StorageError as StorageError
from tokenmill_reader.errors import TokenmillError as TokenmillError
from tokenmill_reader.errors import ValidationError as ValidationError
from tokenmill_reader.errors import did_you_mean as did_you_mean
from tokenmill_reader.errors import nearest as nearest

if TYPE_CHECKING:
    from pydantic import ValidationError as ModelError

_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN)


class UsageError(TokenmillError):
    """The command line is invalid. `usage`: the command's usage line."""

    code = "TM001"

    def __init__(self, message: str, usage: str = "") -> None:
        self.usage = usage
        super().__init__(message)


class CorpusError(TokenmillError):
    """An input file cannot be read as documents."""

    code = "TM200"


class DamagedError(CorpusError):
    """An input file is not whole."""

    code = "TM202"


class EncryptedError(CorpusError):
    """An input file is encrypted. `what`: the part of it, in words."""

    code = "TM213"

    def __init__(self, name: str, what: str) -> None:
        is_several = what.startswith("the columns")
        super().__init__(
            name,
            f"{what} {'are' if is_several else 'is'} encrypted (Parquet Modular Encryption), and tokenmill has no keys.",
            "Write it again without encryption.",
        )


class PointerError(CorpusError):
    """An input file stands for another one, which is not downloaded."""

    code = "TM214"


class PassingError(CorpusError):
    """An input file could not be read for a reason that may pass."""

    code = "TM204"


class SpecialTokenError(CorpusError):
    """A text holds the text of a special token. `index`: which text; `byte_offset`: where in it, in UTF-8, or None where
    it is only there once the text is normalized; `token`: which token."""

    code = "TM205"

    def __init__(self, index: int, byte_offset: int | None, token: str, place: str | None = None) -> None:
        self.index: int = index
        self.byte_offset: int | None = byte_offset
        self.token: str = token
        at = "once it is normalized" if byte_offset is None else f"at byte {byte_offset}"
        super().__init__(
            place or f"text {index}",
            f"the special token {token!r} stands {at}.",
            "Remove it, or let it be text (as_text) or its id (allow).",
        )


class PatternError(TokenmillError):
    """A split pattern does not compile, or gives up on a text."""

    code = "TM302"


class TokenizerError(TokenmillError):
    """A tokenizer file, a vocabulary or an id is wrong."""

    code = "TM301"


class CountsError(TokenmillError):
    """A table of counts is wrong, or counting would exceed its memory."""

    code = "TM303"


class TemplateError(TokenmillError):
    """A chat template cannot be used."""

    code = "TM304"


class ChatError(TokenmillError):
    """A conversation cannot be rendered, encoded or masked. `index`: which conversation of the batch; the message names the message
    of it, if one is at fault, but not the conversation."""

    code = "TM305"

    def __init__(self, index: int, message: str) -> None:
        self.index: int = index
        super().__init__(message)


class VersionsError(TokenmillError):
    """DVC or git cannot do what the build needs."""

    code = "TM401"


class BusyError(TokenmillError):
    """Another process builds the project. `holder`: the sentence that says which; `advice`: what to do."""

    code = "TM402"

    def __init__(self, holder: str, advice: str) -> None:
        self.holder = holder
        super().__init__("", holder, advice)


class ClusterError(TokenmillError):
    """The cluster that run.engine names cannot be used, or does not end its work."""

    code = "TM705"


class UnitTimeoutError(TokenmillError):
    """A unit takes too long."""

    code = "TM701"


class ProjectCodeError(TokenmillError):
    """A project's own flow or task raised an error."""

    code = "TM112"


class UnitsError(TokenmillError):
    """Several units of a stage failed; the message has the first twenty errors, and the number of the others."""

    code = "TM702"


class Terminated(BaseException):
    """The command is to end now; Prefect's server shows the message as the reason."""

    def __init__(self) -> None:
        super().__init__("asked to end; what is finished is kept for the next build")


_SHOWN_CHARACTERS_MAX = 60  # characters of a value in a message
EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + the signal's number, as shells report
EXIT_UNREAD = 141
EXIT_TERMINATED = 143
EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        EXIT_DONE: "done, or nothing to do",
        EXIT_NO: "no: status (work to do), plan (no room), verify, doctor (something wrong), diff (not equal), locate (not found)",
        EXIT_ERROR: "an error that you can correct (`tokenmill explain CODE` says more), or verify could not check something",
        EXIT_DEFECT: "a defect of tokenmill",
        EXIT_INTERRUPTED: "interrupted by Ctrl-C",
        EXIT_UNREAD: "nobody reads what is printed, as when `head` has seen enough",
        EXIT_TERMINATED: "terminated by a signal, by the end of the terminal, or by a cancellation in Prefect",
    }
)
"""The meaning of each exit code of all commands."""


class InternalError(Exception):
    """The core panicked: a defect of tokenmill, not of its input."""


class TokenmillDeprecationWarning(DeprecationWarning):
    """Something that is used here is deprecated. `what`: its name; `version`: the first one without it; `fix`: what to do."""

    def __init__(self, what: str, version: str, fix: str) -> None:
        self.what: str = what
        self.version: str = version
        self.fix: str = fix
        super().__init__(f"{what}: is gone from tokenmill {version} on. {fix}")


@contextmanager
def noted(errors: list[TokenmillError]) -> Iterator[None]:
    """Adds the error of the block to a list, unless the list has it."""
    try:
        yield
    except TokenmillError as error:
        if str(error) not in map(str, errors):
            errors.append(error)


def raise_all(errors: list[TokenmillError], kind: type[TokenmillError] = ParamsError) -> None:
    """Raises the error, or one of the given kind with the lines of all if there are several. Does nothing without errors."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise kind([line for error in errors for line in error.lines], code=errors[0].code)


def unreadable(place: str, error: OSError) -> CorpusError:
    """The error for an input file that the system could not read. `error.errno` must be set."""
    kind = PassingError if error.errno in _PASSING else CorpusError
    return kind(place, f"cannot be read: {_why(error)}.", "Check the path, its permissions and its disk.")


def _why(error: OSError) -> str:
    """The system's text for the error; our own for a file of the wrong kind or too large."""
    why = str(error.strerror) if error.errno in (errno.EINVAL, errno.EFBIG) else os.strerror(error.errno or 0)
    if error.errno == errno.EMFILE:
        return f"{why} (this process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} of them: ulimit -n)"
    return why + _file_limit() if error.errno == errno.EFBIG else why


def _file_limit() -> str:
    """The limit on the size of files that this process writes, for a message; nothing without one."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return "" if most == resource.RLIM_INFINITY else f" (this process may write files of {most:,} bytes: ulimit -f)"


def of_the_machine(error: OSError) -> TokenmillError:
    """The error for a failed system call: which file, why, and what to do."""
    place = str(error.filename or "standard output, or a file")
    why = _why(error) if error.errno else str(error)
    code = code_of(error)
    if code == "TM602" or error.filename is None:
        return TokenmillError(place, f"{why}.", "Correct that and try again.", code=code)
    fix = "Make room and build again: what is finished is kept, and the last recorded version stays in DVC's cache."
    return TokenmillError(place, f"{why}: {room(place)}.", fix, code=code)


def code_of(error: BaseException) -> str:
    """The code, a key of `error_pages`, of any error that ends a command."""
    match error:
        case TokenmillError():
            return error.code
        case OSError():
            return "TM601" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "TM602"
        case MemoryError():
            return "TM110"
        case KeyboardInterrupt():
            return "TM801"
        case Terminated():
            return "TM802"
        case _:
            return "TM901"


def first_finding(error: "ModelError") -> str:
    """Says where and how a file first differs from its model, for a message."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def room(place: str) -> str:
    """Says how much is free on a path's disk; the path need not exist."""
    path = Path(os.path.abspath(place))  # noqa: PTH100 — links are not followed
    folder = next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())
    disk = os.statvfs(folder)
    return f"{disk.f_bavail * disk.f_frsize / 1e6:,.1f} MB are free there{_file_limit()}"


def shown(value: object) -> str:
    """Shortens a value of any depth for a message; None becomes "nothing"."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)[:_SHOWN_CHARACTERS_MAX]
