"""Finds and removes uploaded datasets that no git revision names."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenmill.errors import CorpusError, PassingError, StorageError, VersionsError
from tokenmill.layout import DVC_LOCK_FILE, TOKENS_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.storage import anywhere
from tokenmill.storage.json_files import parse_json
from tokenmill.storage.urls import StoredObject
from tokenmill.versioning import git
from tokenmill.versioning.dvc_files import recorded_md5
from tokenmill.versioning.stored import MANIFEST, UPLOAD_FILE, dataset_folders

_UPLOAD_S_MAX = 86_400  # an upload that wrote nothing for so long has ended

FolderState = Literal["kept", "unnamed", "leftover", "uploading", "unknown"]
REMOVED: tuple[FolderState, ...] = ("unnamed", "leftover")
"""The states to remove: datasets that no kept revision names, and interrupted uploads older than a day. Kept states: `uploading`, a
younger upload, and `unknown`, a dataset without a readable upload.json."""


@dataclass(frozen=True)
class FoundFolder:
    """A folder of a place that looks like a dataset. `modified_s`: the time of its newest file, in seconds since 1970. `named_by`:
    the branches, tags and revisions that name it."""

    name: str
    state: FolderState
    modified_s: int
    n_files: int
    n_bytes: int
    named_by: Sequence[str]


def find(root: Path, place: str, keep: Sequence[str]) -> list[FoundFolder]:
    """The datasets of a place, the oldest first. `root`: the project. `keep`: the revisions whose datasets are kept; empty: all
    branches and tags, and HEAD.

    Raises VersionsError if git does not know all revisions, or if no dataset would be kept; StorageError, also for a hub, and
    PassingError.
    """
    if anywhere.is_hub(place):
        raise StorageError(
            place,
            "expected a place at s3://, gs:// or az://, or a folder: a hub keeps the files of all commits.",
            "Delete the folder of a dataset on the hub's page, or with huggingface_hub's HfApi.delete_folder.",
        )
    named = _named(root, keep)
    folders = [f"{place}/{name}" for name in dataset_folders(place)]
    found_folders = [_found(folder, anywhere.list_files(folder), named) for folder in folders]
    if any(folder.state == "unnamed" for folder in found_folders) and not any(
        folder.state == "kept" for folder in found_folders
    ):
        raise VersionsError(
            place,
            f"it has {number_of(len(found_folders), 'dataset')}, none of which a kept revision names, so all would be removed.",
            "If it is this project's place, name a revision of a dataset with --keep, or delete the folder yourself.",
        )
    return sorted(found_folders, key=lambda folder: (folder.modified_s, folder.name))


def remove(place: str, folders: Iterable[FoundFolder]) -> None:
    """Removes the datasets in a state to remove, each one's manifest first, so that no half-removed dataset looks whole."""
    for unused in folders:
        if unused.state not in REMOVED:
            continue
        folder = f"{place}/{unused.name}"
        files = anywhere.list_files(folder)
        if unused.state == "leftover" and _found(folder, files, {}).state != "leftover":
            continue  # its upload continued meanwhile
        anywhere.delete_folder(folder, MANIFEST)


def _found(folder: str, files: dict[str, StoredObject], named: dict[str, list[str]]) -> FoundFolder:
    newest_s = max((file.modified_ns for file in files.values()), default=0) // 1_000_000_000
    md5 = _md5_of(folder) if UPLOAD_FILE in files else None
    state: FolderState
    if MANIFEST not in files:
        state = "uploading" if time.time() - newest_s < _UPLOAD_S_MAX else "leftover"
    elif md5 is None:
        state = "unknown"
    else:
        state = "kept" if md5 in named else "unnamed"
    n_bytes = sum(file.n_bytes for file in files.values())
    return FoundFolder(folder.rpartition("/")[2], state, newest_s, len(files), n_bytes, named.get(md5 or "", []))


def _md5_of(folder: str) -> str | None:
    """The md5 of data/tokens in upload.json, as dvc.lock had it; None if that cannot be read."""
    try:
        return str(parse_json(anywhere.get(f"{folder}/{UPLOAD_FILE}"))["tokens_md5"])
    except PassingError:
        raise
    except (CorpusError, FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _named(root: Path, keep: Sequence[str]) -> dict[str, list[str]]:
    """The kept revisions by the md5 of data/tokens in their dvc.lock."""
    try:
        is_shallow = git.git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
    except VersionsError as error:
        raise VersionsError(
            "", f"{error}.", "Without the project's git repository nothing says what is to be kept."
        ) from None
    if is_shallow:
        raise VersionsError(
            root,
            "is a shallow clone, which does not have all revisions.",
            "Run `git fetch --unshallow --tags`, and try again.",
        )
    if not keep:
        _refuse_behind(root)
    revisions = keep or [*git.lines(root, "for-each-ref", "--format=%(refname:short)"), "HEAD"]
    named: dict[str, list[str]] = {}
    md5s: dict[str, str | None] = {}  # by the digest of dvc.lock, which many revisions share
    for revision in revisions:
        commit = git.commit_of(root, revision)
        if commit is None:
            if revision in keep:
                raise VersionsError(f"--keep {revision}", "git has no such revision.", "Correct it.", code="TM403")
            continue  # a tag that is not on a commit, or HEAD before the first commit
        entry = git.git(root, "ls-tree", commit, "--", DVC_LOCK_FILE).split()
        if not entry:
            continue
        if entry[2] not in md5s:
            try:
                md5s[entry[2]] = recorded_md5(git.git(root, "cat-file", "blob", entry[2]), TOKENS_DIRECTORY)
            except ValueError:
                raise VersionsError(
                    "",
                    f"{DVC_LOCK_FILE} of {revision} cannot be read, so it is not known which dataset to keep for it.",
                    "Correct it there, or name the revisions to keep with --keep.",
                ) from None
        md5 = md5s[entry[2]]
        if md5 is not None:
            named.setdefault(md5, []).append(revision)
    return named


def _refuse_behind(root: Path) -> None:
    """Raises VersionsError if the git remote has branches or tags that this clone lacks."""
    remote = git.remote_of(root)
    if remote is None:
        return
    known = set(git.lines(root, "for-each-ref", "--format=%(objectname)"))
    there = [line.split("\t") for line in git.lines(root, "ls-remote", "--heads", "--tags", remote)]
    new = [name for commit, name in there if commit not in known and not name.endswith("^{}")]
    if new:
        raise VersionsError(
            root,
            f"{remote} has {len(new):,} branches or tags that are not here, such as {new[0]}, whose datasets are to "
            "be kept too.",
            f"Run `git fetch --prune --tags {remote}`, and try again.",
        )
