"""Files in folders anywhere: the same calls for object storage and for folders of this machine.

A folder or a file is named by its URL, or by its path, which has no scheme. Calls on URLs raise the errors of
`tokenmill.storage.objects`, those on paths OSError.
"""

import io
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from tokenmill.errors import StorageError
from tokenmill.storage import hub, objects
from tokenmill.storage.atomic import (
    flush,
    is_left_over,
    make_folder,
    partial_path,
    raise_it,
    refuse_other_bytes,
    write_atomic,
)
from tokenmill.storage.links import NO_LINK
from tokenmill.storage.object_file import BLOCK_BYTES, ObjectFile
from tokenmill.storage.retries import with_patience
from tokenmill.storage.urls import StoredObject, refuse_password
from tokenmill_reader.regular_files import open_regular, read, sha256_file
from tokenmill_reader.urls import is_url, local_path, place

A = TypeVar("A")
B = TypeVar("B")

_N_AT_ONCE = 16
_LEFT_OVER_S = 86_400
_SHA256 = "sha256"  # the metadata of an object that holds the digest of its bytes


def place_of(text: str) -> str:
    """The URL without a slash at its end, or the absolute path, of a folder that a user named. Raises StorageError, and ParamsError
    for a URL with a password."""
    refuse_password("the place", text)
    if not is_url(text):
        return os.path.abspath(local_path(text))  # noqa: PTH100 — resolve() would follow links
    return place(text).url.rstrip("/")


def is_hub(folder: str) -> bool:
    """Whether a folder is on a Hugging Face hub, where files are written in commits alone."""
    return is_url(folder) and place(folder).scheme == "hf"


def list_objects(folder: str) -> list[StoredObject]:
    """The objects below the URL of a folder, at any depth, in no certain order."""
    return hub.list_objects(folder) if is_hub(folder) else objects.list_objects(folder)


def list_files(folder: str) -> dict[str, StoredObject]:
    """The files below a folder, at any depth, by their names relative to it, in the order of the names."""
    if is_url(folder):
        listed = with_patience(partial(list_objects, folder)) if is_hub(folder) else list_objects(folder)
        found = {one.url.removeprefix(f"{folder}/"): one for one in listed}
    else:
        found = {path.relative_to(folder).as_posix(): _stored(path) for path in files_below(Path(folder))}
    return dict(sorted(found.items()))


def files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder of this machine, at any depth; none if it is missing. Raises what `refuse_other_bytes` raises, and
    StorageError for a symbolic link, a FIFO, a socket or a device: somebody else may have put it there, and nothing follows it."""
    for above, folders, names in os.walk(folder, onerror=_unless_missing):
        for path in (Path(above) / name for name in [*folders, *names]):
            refuse_other_bytes(path)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                yield path
            elif not stat.S_ISDIR(mode):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "a FIFO, a socket or a device"
                raise StorageError(
                    path,
                    f"expected only files and folders; found {kind}, which was not followed.",
                    "Remove it, or copy the folder with `cp -rL`, which puts the files themselves in place of links.",
                )


def list_folders(folder: str) -> list[str]:
    """The names of the folders right below a folder, sorted, without symbolic links to folders."""
    if is_url(folder):
        return objects.list_folders(folder)
    path = Path(folder)
    return (
        sorted(child.name for child in path.iterdir() if child.is_dir() and not child.is_symlink())
        if path.is_dir()
        else []
    )


def head(file: str) -> StoredObject | None:
    """The length and time of a file; None if it is missing."""
    if is_url(file):
        return objects.head(file)
    return _stored(Path(file)) if Path(file).is_file() else None


def sha256_of(file: str) -> str | None:
    """The sha256 of a file's bytes, in hex: of an object the one that `put_file` gave it, None if it gave it none."""
    return objects.metadata(file).get(_SHA256) if is_url(file) else sha256_file(Path(file))


def get(file: str) -> bytes:
    """The bytes of a small file. Raises CorpusError or FileNotFoundError if there is none."""
    if is_hub(file):
        return with_patience(partial(hub.get, file))
    return objects.get(file) if is_url(file) else read(Path(file))


def fetch(stored: StoredObject, path: Path, ended: Event | None = None) -> None:
    """Copies a listed file to a new local path. A storage that does not answer is asked again for a minute. Raises Ended, between
    two blocks, once `ended` is set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(stored) as source, path.open("xb") as target:
        while block := source.read(BLOCK_BYTES):
            go_on(ended)
            target.write(block)


def _opened(stored: StoredObject) -> io.RawIOBase:
    if is_url(stored.url):
        return ObjectFile(stored)
    return io.FileIO(stored.url, opener=lambda path, flags: open_regular(path, flags | os.O_NOFOLLOW))


def put_file(path: Path, file: str, sha256: str, on_part: Callable[[int], None] = lambda _: None) -> None:
    """Writes a local file, whose digest is `sha256`, to a place, where it appears at once. `on_part`: called with the bytes of each
    part before it is written; an error that it raises ends the call."""
    if is_url(file):
        objects.put_file(path, file, {_SHA256: sha256}, on_part)
        return
    with write_atomic(Path(file)) as partial, path.open("rb") as source, partial.open("xb") as target:
        while block := source.read(BLOCK_BYTES):
            on_part(len(block))
            target.write(block)


def put_new(file: str, content: bytes) -> bool:
    """Writes a small file, unless there is one of that name: then nothing is changed and the answer is False. Of two writers at
    the same time, one gets True."""
    if is_url(file):
        return objects.put_new(file, content)
    make_folder(Path(file).parent)
    partial = partial_path(Path(file))
    try:
        partial.write_bytes(content)
        flush(partial)
        _link_new(partial, Path(file))
        flush(partial.parent)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def _link_new(partial: Path, path: Path) -> None:
    """Gives a file its name. Raises FileExistsError if there is one; on a file system without hard links, of two at once the last
    one wins."""
    try:
        os.link(partial, path)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        if path.exists():
            raise FileExistsError(error.errno, "exists", str(path)) from None
        partial.replace(path)


def remove_left_over(folder: str) -> None:
    """Removes the temporary files of killed writers from a folder of this machine, a day after their last change: they may be of
    another machine, on which the writer lives. Object storage has none."""
    if not is_url(folder):
        for path in Path(folder).rglob("*.partial"):
            with suppress(FileNotFoundError):
                if is_left_over(path) and time.time() - path.stat().st_mtime > _LEFT_OVER_S:
                    path.unlink()


def copy(file: str, to_file: str) -> None:
    """Copies a file in its place, an object on the server."""
    if is_url(file):
        objects.copy(file, to_file)
        return
    with write_atomic(Path(to_file)) as partial:
        shutil.copyfile(file, partial)


def delete_folder(folder: str, first: str) -> None:
    """Deletes the files below a folder, `first` before the others; on this machine also the folders, unless somebody writes a file
    into one meanwhile. What is not there is no error."""
    if is_url(folder):
        objects.delete([f"{folder}/{first}"])
        objects.delete([list_file.url for list_file in list_files(folder).values()])
        return
    Path(folder, first).unlink(missing_ok=True)
    for path in list(files_below(Path(folder))):
        path.unlink(missing_ok=True)
    for above, _, _ in os.walk(folder, topdown=False):
        if not any(Path(above).iterdir()):
            Path(above).rmdir()


class Ended(Exception):
    """Ends the work of a thread whose result nobody waits for any more."""


def go_on(ended: Event | None) -> None:
    """Raises Ended if the event is set."""
    if ended is not None and ended.is_set():
        raise Ended


def at_once(do: Callable[[A, Event], B], items: Iterable[A]) -> Iterator[B]:
    """Yields the result of `do` for each of `items`, in order, from 16 threads. An error or Ctrl-C cancels the rest, and sets the
    event that `do` gets."""
    ended = Event()
    pool = ThreadPoolExecutor(_N_AT_ONCE, thread_name_prefix="files")
    try:
        yield from pool.map(lambda item: do(item, ended), items)
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)


def _stored(path: Path) -> StoredObject:
    facts = path.stat()
    return StoredObject(str(path), facts.st_size, modified_ns=facts.st_mtime_ns)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise_it(error)
