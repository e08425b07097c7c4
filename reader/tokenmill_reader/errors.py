"""The errors of reading a dataset, and the base of all errors that a user can correct.

    TokenmillError         a user can correct it; a command prints the message alone and exits with 2
    ├── ParamsError        an argument, or a parameter
    ├── StorageError       object storage: a name, the credentials, or a permission
    │   └── OutageError    the storage cannot be reached, which may pass
    └── ValidationError    a dataset that is not what it says

tokenmill has the same classes and adds its own to them (tokenmill/errors.py). Every error has a code, which `tokenmill explain`
explains.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenmill_reader.shown import as_shown, without_passwords

EXIT_DONE = 0
EXIT_NO = 1
EXIT_ERROR = 2

_BEGINNING_MIN = 3  # the least length of a beginning that identifies a name


class TokenmillError(Exception):
    """Base of every error that a user can correct. Its message is `where: what fix`, without passwords in URLs.

    `where`: the file, row or setting. `what`: what is wrong, one line or a list of lines; an argument alone is this one.
    `fix`: what to do; below several lines it is a line of its own. `code`: the name of its page; default: the class's code."""

    code: str = "TM900"

    def __init__(
        self,
        where: str | Path | Sequence[str],
        what: str | Sequence[str] | None = None,
        fix: str = "",
        *,
        code: str | None = None,
    ) -> None:
        if what is None:
            where, what = "", str(where) if isinstance(where, Path) else where
        self.where: str = as_shown(without_passwords(str(where)))
        self.fix: str = as_shown(without_passwords(fix.strip()).splitlines())
        lines = [as_shown(without_passwords(one)) for one in ([what] if isinstance(what, str) else what)]
        self.what: str = "\n".join(lines)
        if self.where:
            lines[0] = f"{self.where}: {lines[0]}"
        self.lines: list[str] = (
            [*lines, *self.fix.splitlines()] if len(lines) > 1 else [f"{lines[0]} {self.fix}".rstrip(" ")]
        )
        super().__init__("\n".join(self.lines))
        if code is not None:
            self.code = code

    def inside(self, place: str | Path) -> tuple[str, list[str], str]:
        """The three arguments of an error like this one, with a place in front of `where`."""
        where = f"{place}: {self.where}" if self.where else str(place)
        return where, self.what.split("\n"), self.fix

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the error with all its attributes, whatever arguments its class takes, so that it survives the way from a
        cluster's worker."""
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[TokenmillError], arguments: tuple[Any, ...], values: dict[str, Any]) -> TokenmillError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(values)
    return error


class ParamsError(TokenmillError):
    """A parameter, an argument, or a stage definition is wrong."""

    code = "TM100"


class StorageError(TokenmillError):
    """Object storage does not do what it is asked for."""

    code = "TM603"


class OutageError(StorageError):
    """Object storage cannot be reached now."""


class ValidationError(TokenmillError):
    """A dataset does not hold what its manifest or its input says."""

    code = "TM501"


def nearest(name_given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that begins with the found one, or is nearest to it; None if none is near."""
    names = list(allowed)
    begun = [name for name in names if len(name_given) >= _BEGINNING_MIN and name.startswith(name_given)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(name_given, names, n=1)
    return close[0] if close else None


def did_you_mean(name_given: str, allowed: Iterable[str]) -> str:
    """A sentence that suggests the nearest allowed name, for the end of a message; empty if none is near.

    >>> did_you_mean("biuld", ["build", "status"]), did_you_mean("x", ["build"])
    (' Did you mean build?', '')
    """
    near = nearest(name_given, allowed)
    return f" Did you mean {near}?" if near else ""


def has_pyarrow() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def need_pyarrow(path: Path) -> None:
    """Raises ParamsError if pyarrow is not installed. `path`: the file that it is to read."""
    if not has_pyarrow():
        raise ParamsError(
            path,
            "is an Arrow or Parquet file, which needs pyarrow, and pyarrow is not installed.",
            "Install it (pip install pyarrow), or build with a format that numpy reads alone, such as megatron.",
        )
