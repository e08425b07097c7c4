"""Atomic writes: files and directories that appear complete or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tokenmill.errors import TokenmillError
from tokenmill_reader.regular_files import naming, open_regular, sha256_file

_SUFFIX = ".partial"
_EXITING = 0x4  # PF_EXITING, a kernel flag of a process


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`. If the block succeeds, that file replaces `path` atomically.

    The order is: fsync the file, rename it, fsync the directory. If a step fails, OSError is raised and no temporary file
    remains. A failed fsync is never retried: the kernel may have dropped the data and report success the second time. An
    existing `path` is replaced and never written into, because it may be a hard link into DVC's cache.
    """
    make_folder(path.parent)
    partial = partial_path(path)
    try:
        with naming(path):
            yield partial
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def write_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`. If the block succeeds, that directory replaces `path`.

    Write the files inside with `write_atomic`. Leftovers of processes that have ended are removed first.
    """
    make_folder(path.parent)
    for left in path.parent.glob(f"{path.name}.*{_SUFFIX}"):
        if is_left_over(left):
            remove_tree(left)
    partial = partial_path(path)
    partial.mkdir()
    try:
        with naming(path):
            yield partial
        for folder, _folders, _files in os.walk(partial, onerror=raise_it):
            flush(Path(folder))
        remove_tree(path)
        partial.replace(path)
        flush(path.parent)
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents, and fsyncs them. An existing folder is fine."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


def partial_path(path: Path) -> Path:
    """A temporary name beside `path` that contains the id of the writing process."""
    return path.with_name(f"{path.name}.{_process(os.getpid())}{_SUFFIX}")


def is_left_over(partial: Path) -> bool:
    """Whether the process that made a `partial_path` has ended. The start time tells a reused process id from the old one."""
    pid, _, started = partial.name.removesuffix(_SUFFIX).rpartition(".")[2].partition("-")
    return partial.name.endswith(_SUFFIX) and pid.isdigit() and _started(int(pid)) != (started or None)


def remove_tree(path: Path) -> None:
    """Removes a directory or file. A missing one is fine. An error names the file, or else the directory that it is in."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except OSError as error:
        if not Path(str(error.filename)).is_absolute():  # rmtree knows the name in its directory alone
            error.filename = str(path)
        raise


def raise_it(error: OSError) -> None:
    """For `os.walk(..., onerror=)`, which otherwise silently skips folders that it cannot list."""
    raise error


def md5_file(path: Path) -> str:
    """The md5 of a file's bytes, in hex, which is the file's name in DVC's cache."""
    with naming(path), open(path, "rb", opener=open_regular) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def files_of(directory: Path) -> dict[str, Path]:
    """The files of a directory, at any depth, by their sorted names relative to it. Raises what `refuse_other_bytes` raises."""
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    for path in files.values():
        refuse_other_bytes(path)
    return dict(sorted(files.items()))


def refuse_other_bytes(path: Path) -> None:
    """Raises TokenmillError for a file or folder with a name that lists of names cannot have: no UTF-8, or with a line break."""
    if "\n" in path.name or path.name != path.name.encode(errors="ignore").decode():
        raise TokenmillError(
            path,
            "expected a name that is valid UTF-8, without line breaks.",
            "Rename the file, or move it elsewhere.",
            code="TM602",
        )


def sha256_directory(directory: Path) -> str:
    """The sha256, in hex, of a listing of the directory's files in the format of `sha256sum`."""
    lines = "".join(f"{sha256_file(path)}  {name}\n" for name, path in files_of(directory).items())
    return hashlib.sha256(lines.encode()).hexdigest()


def flush(path: Path) -> None:
    """Calls fsync on a file or directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache  # only ever called for this process
def _process(pid: int) -> str:
    return f"{pid}-{_started(pid)}"


def _started(pid: int) -> str | None:
    """The start time of the process, in clock ticks since boot (proc(5), stat, field 22). None if there is no such process, or
    if it is exiting (field 9): it has released its locks by then, but remains as a zombie until its parent waits for it, which
    never happens in a container without an init process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if int(fields[6]) & _EXITING else fields[19]
