"""Whether this user may write into folders, asked before the work."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from tokenmill.errors import ParamsError, TokenmillError

_UNREADABLE = re.compile(r"%\(|'{3}|\"{3}")
"""What begins a variable in a value of DVC's configuration, or ends a value."""


def refuse_unusable_path(folder: Path) -> None:
    """Raises ParamsError for a project's folder whose path DVC and git cannot write into their files, and read from them again."""
    path = str(folder)
    if path != path.encode(errors="ignore").decode():
        raise ParamsError(folder, "expected a path that is valid UTF-8, which DVC and git need.", "Rename the folder.")
    if len(path.splitlines()) > 1:
        raise ParamsError(
            folder, "expected a path without line breaks, which DVC and git cannot read.", "Rename the folder."
        )
    if found := _UNREADABLE.search(path):
        raise ParamsError(
            folder,
            f"found {found[0]} in the path, which DVC cannot read in its configuration.",
            "Rename the folder.",
        )


def may_write(folder: Path) -> bool:
    """Whether this user may write into a folder, or make it."""
    return os.access(next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists()), os.W_OK | os.X_OK)


def user_caches() -> Path | None:
    """The user's folder for caches; None if there is none to write into, or if others may have written there, as it decides what is
    read without a second look."""
    found = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))  # noqa: PTH111 — there may be no home
    is_own = all(_is_own(folder) for folder in (found, found / "tokenmill") if folder.exists())
    return found if found.is_absolute() and may_write(found) and is_own else None


def _is_own(folder: Path) -> bool:
    """Whether a folder, or a link and the folder that it leads to, belongs to this user, and not everybody may write there."""
    facts = folder.stat()
    owners = {facts.st_uid, folder.lstat().st_uid}
    return stat.S_ISDIR(facts.st_mode) and owners == {os.geteuid()} and not facts.st_mode & stat.S_IWOTH


def check_writable(folders: Iterable[Path]) -> None:
    """Raises TokenmillError that names the first folder that can be neither written into nor made."""
    for folder in folders:
        there = next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())
        to_write = "there" if there == folder else f"into {folder}"
        if not there.is_dir():
            raise TokenmillError(
                there,
                f"expected a folder, found a file. A build writes {to_write}.",
                "Move the file away.",
                code="TM602",
            )
        if not may_write(there):
            fix = "Change the folder's owner or permissions (`ls -ld` shows them), or see whether its disk is mounted read-only."
            raise TokenmillError(
                there, f"this user may not write into the folder. A build writes {to_write}.", fix, code="TM602"
            )
