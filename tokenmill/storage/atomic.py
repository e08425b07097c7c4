"""Files and directories that appear whole or not at all."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_SUFFIX = ".partial"
_EXITING = 0x4  # PF_EXITING of the kernel's flags of a process


@contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; when the block ends well, its file becomes `path` in one step.

    The order is: flush the file to disk, rename, flush the directory; a failure of any of them is an OSError and
    leaves no temporary file. A file that could not be flushed is never flushed again: the system may have dropped what it
    held of it and say that all is well. An existing `path` is replaced, never written into: it may be a hard link into
    DVC's cache.
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
    """Yields an empty directory beside `path`; when the block ends well, it becomes `path`, and what was there goes.

    Files inside are to be written with `write_atomic`. Leftovers of earlier, ended processes are removed first.
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
    """Makes a folder, and those above it, to last; one that is there is fine."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Gives an OSError of the block that names no file, as those of reading and writing do, the name of this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def partial_path(path: Path) -> Path:
    """A name beside `path` for what is to become it, which says what process writes it."""
    return path.with_name(f"{path.name}.{_process(os.getpid())}{_SUFFIX}")


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


def read(path: Path) -> bytes:
    """A file's bytes; an error of reading names it."""
    with naming(path):
        return path.read_bytes()


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file, for `open(..., opener=)`. Raises OSError for what is none: reading a FIFO would never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a FIFO, a socket or a device", str(path))


def raise_it(error: OSError) -> None:
    """For `os.walk(..., onerror=)`, which passes over folders that it cannot list without it."""
    raise error


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with naming(path), open(path, "rb", opener=open_regular) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def md5_file(path: Path) -> str:
    """The md5 of a file's bytes, in hex: DVC's name for it."""
    with naming(path), open(path, "rb", opener=open_regular) as file:
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
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache  # of this process alone
def _process(pid: int) -> str:
    return f"{pid}-{_started(pid)}"


def _started(pid: int) -> str | None:
    """When the process began, in ticks since the machine did (proc(5), stat, fields 9 and 22); None when there is none, or one
    that is at its end. It gives its locks back then, and is still there until its parent has waited for it, which
    nobody does in a container without an init."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if int(fields[6]) & _EXITING else fields[19]
