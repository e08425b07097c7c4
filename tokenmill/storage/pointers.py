"""Recognizes small files that stand for a file which is not downloaded: pointers of Git LFS and of git-annex."""

import re
from typing import IO

from tokenmill.errors import PointerError

POINTER_BYTES_MAX = 1024
"""A larger file is no pointer (github.com/git-lfs/git-lfs, docs/spec.md). One of git-annex is shorter still."""

_LFS = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\r?\n"
    rb"(?:[a-z0-9.-]+ [^\n]*\n)*?oid [a-z0-9]+:[0-9a-f]+\r?\n(?:[a-z0-9.-]+ [^\n]*\n)*?size \d+\s*"
)
_ANNEX = re.compile(rb"/annex/objects/[^\n]*\s*")
_ANNEX_LINK = ".git/annex/objects/"


def words_of_pointer(name: str, content: bytes) -> str | None:
    """The message about a file with this content if it is a pointer; else None. `name`: its name in the message."""
    if len(content) > POINTER_BYTES_MAX:
        return None
    if _LFS.fullmatch(content):
        return f"{name}: is a pointer of Git LFS, not the file itself. Run `git lfs pull`."
    if _ANNEX.fullmatch(content):
        return f"{name}: is a pointer of git-annex, not the file itself. Run `git annex get`."
    return None


def refuse_pointer(name: str, file: IO[bytes]) -> None:
    """Raises PointerError if the open file of documents is a pointer. Moves the file's position."""
    if words := words_of_pointer(name, file.read(POINTER_BYTES_MAX + 1)):
        raise PointerError(words)


def how_to_restore(target: str) -> str:
    """The command that restores the file behind a broken link to `target`."""
    return "git annex get" if _ANNEX_LINK in target else "dvc checkout"
