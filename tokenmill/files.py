"""Files and directories that appear whole or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUFFIX = ".partial"


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; when the block ends well, its file becomes `path` in one step.

    The order is: flush the file to disk, rename, flush the directory; a failure of any of them is an OSError and
    leaves no temporary file. An existing `path` is replaced, never written into: it may be a hard link into DVC's cache.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(path)
    try:
        yield partial
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def write_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`; when the block ends well, it becomes `path`, and what was there goes.

    Files inside are to be written with `write_atomic`. Leftovers of earlier, ended processes are removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}.*{_SUFFIX}"):
        if is_left_over(left):
            remove_tree(left)
    partial = partial_path(path)
    partial.mkdir()
    try:
        yield partial
        for folder, _folders, _files in os.walk(partial):
            flush(Path(folder))
        if path.exists():
            remove_tree(path)
        partial.replace(path)
        flush(path.parent)
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def partial_path(path: Path) -> Path:
    """A name beside `path` for what is to become it, which says what process writes it."""
    return path.with_name(f"{path.name}.{os.getpid()}-{_started(os.getpid())}{_SUFFIX}")


def is_left_over(partial: Path) -> bool:
    """Whether the process that wrote a path of `partial_path` has ended; one with its id that began at another time is not it."""
    pid, _, started = partial.name.removesuffix(_SUFFIX).rpartition(".")[2].partition("-")
    return partial.name.endswith(_SUFFIX) and pid.isdigit() and _started(int(pid)) != (started or None)


def remove_tree(path: Path) -> None:
    """Removes a directory or file; one that is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def md5_file(path: Path) -> str:
    """The md5 of a file's bytes, in hex: DVC's name for it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def sha256_directory(directory: Path) -> str:
    """The sha256, in hex, over the names and the sha256 of all files of a directory, as `sha256sum` lists them."""
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    lines = "".join(f"{sha256_file(files[name])}  {name}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def flush(path: Path) -> None:
    """Returns when the file or directory is on disk, as far as the system can tell."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _started(pid: int) -> str | None:
    """When the process began, in ticks since the machine did (proc(5), stat, field 22); None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None
