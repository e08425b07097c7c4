"""Checks a copy of a dataset by what is cheap: the manifest's own digest, and the name, size and digest of every file."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from tokenmill_reader.manifest import (
    CARD_FILE,
    MANIFEST_FILE,
    DatasetFile,
    check_is_dataset,
    manifest_of,
    own_digest,
    read_content,
    refuse_wrong_names,
)
from tokenmill_reader.regular_files import sha256_file
from tokenmill_reader.urls import dataset_folder

_THREADS_MAX = 8  # as many as a disk or a network file system gains from


class Checked(NamedTuple):
    """What a check found. `wrong`: a line for each file that is not as the manifest says."""

    wrong: list[str]
    n_files: int
    n_bytes: int


def check(dataset: str | PathLike[str]) -> Checked:
    """Compares the files in a dataset's folder with its manifest: all names, sizes and digests. Each file is read once.

    It cannot say whether the manifest is the one that was built, nor whether the tokens are those of the documents: `tokenmill
    verify` does. Raises ValidationError if the manifest is missing or malformed, and OSError for a file that cannot be read.
    """
    folder = dataset_folder(fspath(dataset))
    check_is_dataset(folder)
    content = read_content(folder)
    manifest = manifest_of(content, str(folder / MANIFEST_FILE))
    files = manifest.dataset_files
    refuse_wrong_names(manifest, folder)  # before a file of such a name is read
    wrong = []
    digest = own_digest(content)
    if manifest.format_version > 3 and manifest.digest != digest:
        wrong.append(
            f"{MANIFEST_FILE}: digest: found {manifest.digest[:16]}…; expected {digest[:16]}…, the digest of its fields. "
            "It was changed."
        )
    threads = min(os.cpu_count() or 1, _THREADS_MAX)
    with ThreadPoolExecutor(threads, thread_name_prefix="check") as pool:
        wrong += [one for one in pool.map(partial(_wrong, folder), files) if one is not None]
    named = {MANIFEST_FILE, CARD_FILE, *(file.name for file in files)}
    wrong += [f"{name}: not named by {MANIFEST_FILE}." for name in files_below(folder) if name not in named]
    return Checked(wrong, len(files), sum(file.n_bytes for file in files))


def files_below(directory: Path) -> list[str]:
    """The names of all files below a directory, relative to it, and of the links to folders, which are not followed."""
    return sorted(
        path.relative_to(directory).as_posix()
        for folder, folders, names in os.walk(directory)
        for path in (Path(folder) / name for name in [*folders, *names])
        if path.is_symlink() or path.name in names
    )


def wrong_file(path: Path, n_bytes: int, sha256: str, sha256_of: Callable[[Path], str] = sha256_file) -> str | None:
    """Says how an existing file differs from the one that the manifest names; None if it does not, or is missing. `sha256_of`:
    gives the digest of a file of the right size."""
    if not path.exists():
        return None
    if (found := path.stat().st_size) != n_bytes:
        return f"not the file that the manifest names: found {found:,} bytes, expected {n_bytes:,}"
    if sha256_of(path) != sha256:
        return f"not the file that the manifest names (sha256 {sha256[:16]}…)"
    return None


def _wrong(folder: Path, file: DatasetFile) -> str | None:
    """The line for a file that is missing or wrong."""
    path = folder / file.name
    what = wrong_file(path, file.n_bytes, file.sha256) if path.exists() else "missing; the manifest names it"
    return None if what is None else f"{file.name}: {what}."
