"""Recognizes small files that stand for a file which is not downloaded: pointers of Git LFS and of git-annex."""

import re

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
        return "a pointer of Git LFS, not the file itself", "Run `git lfs pull`."
    if _ANNEX.fullmatch(content):
        return "a pointer of git-annex, not the file itself", "Run `git annex get`."
    return None


def how_to_restore(target: str) -> str:
    """The command that restores the file behind a broken link to `target`."""
    return "git annex get" if _ANNEX_LINK in target else "dvc checkout"
