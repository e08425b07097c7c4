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


def words_of_pointer(content: bytes) -> tuple[str, str] | None:
    """Says what a file with this content is and what to do, if it is a pointer; else None."""
    if len(content) > POINTER_BYTES_MAX:
        return None
    if _LFS.fullmatch(content):
        return "is a pointer of Git LFS, not the file itself.", "Run `git lfs pull`."
    if _ANNEX.fullmatch(content):
        return "is a pointer of git-annex, not the file itself.", "Run `git annex get`."
    return None


def refuse_pointer(name: str, file: IO[bytes]) -> None:
    """Raises PointerError if the open file of documents is a pointer. Moves the file's position."""
    if words := words_of_pointer(file.read(POINTER_BYTES_MAX + 1)):
        raise PointerError(name, *words)


def how_to_restore(target: str) -> str:
    """The command that restores the file behind a broken link to `target`."""
    return "git annex get" if _ANNEX_LINK in target else "dvc checkout"
