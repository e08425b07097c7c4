"""Runs the git commands that tokenmill needs."""

import os
import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenmill.errors import VersionsError

_TAGS = "refs/tags/"
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE")
MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")
"""The name of an object of DVC: the md5 of a file, or of the list of a folder's files."""


def git(root: Path, *arguments: str) -> str:
    """The output of a git command run in the folder `root`. Raises VersionsError with git's own message, and where the environment
    names another repository than that of the folder.

    Names of files and tags are bytes to git. What is no UTF-8 in them is in the text as in Python's own names of files.
    """
    for name in _REPOSITORY_VARIABLES:
        if value := os.environ.get(name):
            _refuse_other_repository(root, name, value)
    return _output(root, arguments, dict(os.environ))


def identity(root: Path) -> str:
    """The name and address with which git commits and tags, as in `NAME <ADDRESS>`. Raises VersionsError if it has none."""
    try:
        git(root, "var", "GIT_AUTHOR_IDENT")
        return git(root, "var", "GIT_COMMITTER_IDENT").rpartition(">")[0] + ">"
    except VersionsError:
        raise VersionsError(
            "git",
            "has no name and address for commits and tags.",
            "Run `git config --global user.name NAME; git config --global user.email ADDRESS`.",
        ) from None


@lru_cache
def _refuse_other_repository(root: Path, name: str, value: str) -> None:
    """Raises VersionsError if a variable of the environment, such as those of a hook of another repository, makes git take another
    repository than that of the folder. A folder without one of its own may be given one."""
    own = {key: repository for key, repository in os.environ.items() if key not in _REPOSITORY_VARIABLES}
    where = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    try:
        expected = _output(root, where, own).split("\n")
    except VersionsError:
        return
    try:
        repository = _output(root, where, dict(os.environ)).split("\n")
    except VersionsError:
        repository = ["none"]
    if repository != expected:
        raise VersionsError(
            f"the environment's {name}",
            f"{value}: expected the repository of {root}, {expected[0]}; found {' of '.join(filter(None, repository))}.",
            f"Run `unset {name}`.",
        )


def _output(root: Path, arguments: Sequence[str], environment: dict[str, str]) -> str:
    command = ["git", "-c", "core.quotePath=false", *arguments]
    english = {**environment, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=root, env=english, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise VersionsError("git is missing: install it (Debian: apt-get install git).") from None
    if done.returncode:
        errors = os.fsdecode(done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        last = next((i for i, line in enumerate(errors) if line.startswith(("fatal:", "error:"))), len(errors) - 1)
        said = "; ".join(line.strip() for line in errors[: last + 1])  # earlier lines often give the reason
        raise VersionsError(f"git {arguments[0]} in {root}: {said}")
    return os.fsdecode(done.stdout)


def lines(root: Path, *arguments: str) -> list[str]:
    """The lines of a git command's output, such as a name each. A name may have characters that Python takes for the end of a line
    or for a space."""
    return [line for line in git(root, *arguments).split("\n") if line]


def changed_files(root: Path) -> list[str]:
    """The files below `root`, relative to it, that differ from the last commit, or that git neither tracks nor ignores."""
    above = prefix_of(root)
    listed = git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", ".").split("\0")
    return [entry[3:].removeprefix(above) for entry in listed if entry]


def is_ignored(root: Path, name: str) -> bool:
    """Whether .gitignore matches a file of the folder `root`, even if git tracks it."""
    try:
        git(root, "check-ignore", "--quiet", "--no-index", "--", name)
    except VersionsError:
        return False
    return True


def prefix_of(root: Path) -> str:
    """The path of a folder in its repository: empty for the root, any other ends with a slash."""
    return git(root, "rev-parse", "--show-prefix").removesuffix("\n")


def commit_of(root: Path, revision: str) -> str | None:
    """The commit of a revision or tag; None if it does not exist."""
    try:
        return git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except VersionsError:
        return None


def remote_of(root: Path) -> str | None:
    """The git remote to publish to: origin, or the only one. None without a remote."""
    names = lines(root, "remote")
    if "origin" in names:
        return "origin"
    if len(names) > 1:
        raise VersionsError(root, f"git has the remotes {', '.join(names)}; name one of them origin.")
    return names[0] if names else None


def has_upstream(root: Path) -> bool:
    """Whether the branch has an upstream branch for `git push`."""
    try:
        git(root, "rev-parse", "--verify", "--quiet", "@{upstream}")
    except VersionsError:
        return False
    return True


def branch_to_push(root: Path, remote: str) -> str | None:
    """The current branch, if no known branch of `remote` has its last commit; else None, also without a branch."""
    branch = git(root, "branch", "--show-current").strip()
    has_it = git(root, "for-each-ref", "--contains", "HEAD", f"refs/remotes/{remote}/")
    return None if has_it else branch or None


def tags_of(root: Path, repository: str) -> dict[str, str]:
    """The commit of every tag of a repository: a folder, a URL, or the name of a remote of the folder `root`."""
    commits: dict[str, str] = {}
    try:
        listed = lines(root, "ls-remote", "--tags", "--", repository)
    except VersionsError as error:
        raise VersionsError(repository, f"{error}.", "Check the address, the network and your access.") from None
    for line in listed:
        commit, name = line.split("\t")
        if name.endswith("^{}"):  # the commit of an annotated tag; git lists it after the tag itself
            name = name.removesuffix("^{}")
        commits[name.removeprefix(_TAGS)] = commit
    return commits


def tag_message(root: Path, repository: str, tag: str) -> str:
    """The message of an annotated tag of a repository. `root`: a folder for git to work in, a repository or an empty one.

    Raises VersionsError, also for a tag that is not annotated.
    """
    if not (root / ".git").exists():
        git(root, "init", "--quiet")
    name = f"{_TAGS}{tag}"
    git(root, "fetch", "--quiet", "--depth", "1", "--no-tags", "--", repository, f"+{name}:{name}")
    if git(root, "cat-file", "-t", name).strip() != "tag" or commit_of(root, name) is None:
        raise VersionsError(
            repository,
            f"{tag} is no annotated tag of a commit, as `tokenmill publish` and `gto register` set.",
            "Take another version, or delete the tag and publish that version.",
        )
    _head, _, message = git(root, "cat-file", "tag", name).partition("\n\n")
    return os.fsencode(message).decode(errors="replace")


def text_at(root: Path, commit: str, path: str, characters_max: int) -> str | None:
    """The text of a file in a commit; None if there is none. Raises VersionsError for one that is too long or not UTF-8."""
    entry = git(root, "ls-tree", "--full-tree", "--long", "-z", commit, "--", path).partition("\t")[0].split()
    if len(entry) != 4 or entry[1] != "blob":  # mode, type, name and length
        return None
    if int(entry[3]) > 4 * characters_max:
        raise VersionsError(
            path, f"has {int(entry[3]):,} bytes; expected {4 * characters_max:,} at most.", "Shorten it."
        )
    try:
        return os.fsencode(git(root, "cat-file", "blob", entry[2])).decode()
    except UnicodeDecodeError as error:
        raise VersionsError(path, f"not UTF-8 at byte {error.start}.", "Save it as UTF-8.") from None


def names_at(root: Path, commit: str, folder: str) -> list[str]:
    """The names in a folder of a commit, each with the folder's path; the root is empty, any other ends with a slash."""
    below = ["--", folder] if folder else []
    listed = git(root, "ls-tree", "--full-tree", "--name-only", "-z", commit, *below)
    return [name for name in listed.split("\0") if name]
