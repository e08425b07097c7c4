"""Fetches one file of a remote dataset into its folder: in ranges, checked by sha256, resumed after a break."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from tokenmill_reader.cache_folder import make_folder, open_own, partial_path, record_right
from tokenmill_reader.errors import StorageError, ValidationError
from tokenmill_reader.manifest import MANIFEST_FILE, DatasetFile, own_digest
from tokenmill_reader.object_clients import bounded_bytes, client
from tokenmill_reader.object_errors import lasting_error, storage_error
from tokenmill_reader.regular_files import READ_BYTES_MAX
from tokenmill_reader.urls import N_DIGITS, TOKENS, RemoteDataset, object_place
from tokenmill_reader.web import read_web

_RANGE_BYTES = 4 << 20
_HASHED_BYTES = 1 << 20

Patient = Callable[[Callable[[], Any]], Any]
"""Calls a function, perhaps several times."""


def fetch_manifest(dataset: RemoteDataset, patient: Patient) -> None:
    """Puts manifest.json into the folder, unless it is there. Raises ValidationError if it is missing or not that of the URL."""
    path, expected = dataset.folder / MANIFEST_FILE, dataset.folder.name
    make_folder(dataset.folder)
    url = f"{dataset.url}/{TOKENS}/{MANIFEST_FILE}"
    try:
        with open_own(path, os.O_RDONLY) as file:
            if _digest_of(file.read(READ_BYTES_MAX))[:N_DIGITS] == expected:
                return
    except FileNotFoundError:
        pass
    answer = patient(lambda: _read(url, None))
    if answer is None:
        raise ValidationError(
            dataset.url,
            f"expected an uploaded dataset, which has {TOKENS}/{MANIFEST_FILE}; found none.",
            "Name PLACE/DIGEST as `tokenmill upload` printed it.",
        )
    _, content = answer
    if (found := _digest_of(content)[:N_DIGITS]) != expected:
        raise ValidationError(
            url,
            f"expected the manifest with the digest {expected}…; found {found or 'no manifest'}.",
            "Do not use this dataset; upload it again.",
        )
    written = path.with_name(f"{MANIFEST_FILE}.{os.getpid()}")
    with suppress(FileNotFoundError):
        written.unlink()
    with open_own(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        file.write(content)
    written.replace(path)


def fetch_file(dataset: RemoteDataset, file: DatasetFile, patient: Patient) -> None:
    """Brings the rest of a file, whose lock the caller holds. Raises ValidationError if it is wrong twice."""
    path, url = partial_path(dataset.folder, file), f"{dataset.url}/{TOKENS}/{file.name}"
    for is_last in (False, True):
        with open_own(path, os.O_RDWR | os.O_CREAT) as out:
            outcome = _fetched(out, file, url, patient)
            if outcome == file.sha256:
                out.flush()
                os.fsync(out.fileno())
                break
        path.unlink()
        if is_last:
            raise ValidationError(
                url,
                f"was fetched twice, and is not the file that the manifest names ({outcome}).",
                "Run `tokenmill verify` with the URL of the dataset, and upload it again.",
            )
    path.replace(dataset.folder / file.name)
    record_right(dataset.folder, file)


def _fetched(out: BinaryIO, file: DatasetFile, url: str, patient: Patient) -> str:
    """The sha256, in hex, of the file that is whole then; or in words what is wrong."""
    digest = hashlib.sha256()
    if os.fstat(out.fileno()).st_size > file.n_bytes:
        out.truncate(0)
    while block := out.read(_HASHED_BYTES):
        digest.update(block)
    n_bytes = out.tell()
    while n_bytes < file.n_bytes:
        stop = min(n_bytes + _RANGE_BYTES, file.n_bytes)
        block = patient(partial(_range, url, n_bytes, stop, file.n_bytes))
        if block is None:
            return f"it has another size than {file.n_bytes:,} bytes"
        digest.update(block)
        _write(out, block)
        n_bytes = stop
    return digest.hexdigest()


def _write(out: BinaryIO, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[out.write(left) :]


def _range(url: str, start: int, stop: int, n_bytes: int) -> bytes | None:
    """These bytes of an object; None if it has another size."""
    found = _read(url, (start, stop))
    if found is None:
        raise StorageError(url, "is missing, though the manifest names it.", "Upload the dataset again.")
    size, content = found
    return content if (size, len(content)) == (n_bytes, stop - start) else None


def _read(url: str, range_: tuple[int, int] | None) -> tuple[int, bytes] | None:
    """The size of an object, and its bytes in a range, or all of a small one; None if there is none. Raises StorageError."""
    where = object_place(url)
    if where.scheme in ("http", "https"):
        return read_web(url, range_)
    store = client(where.scheme, where.bucket)
    import obstore
    from obstore.exceptions import BaseError

    try:
        answer = obstore.get(store, where.key, options={"range": range_} if range_ else {})
        size = int(answer.meta["size"])
        return size, bounded_bytes(url, answer, range_[1] - range_[0] if range_ else min(size, READ_BYTES_MAX))
    except FileNotFoundError as error:
        if (lasting := lasting_error(url, error)) is not None:  # no such bucket
            raise lasting from None
        return None
    except (BaseError, ValueError) as error:
        raise storage_error(url, error) from None


def _digest_of(content: bytes) -> str:
    """The digest that a manifest must have; empty if it is none or says another one."""
    try:
        values = json.loads(content)
        digest = own_digest(values)
        return digest if values["digest"] == digest else ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
