"""Downloads a dataset from a place into a new folder, which appears when all files are there and checked."""

from pathlib import Path, PurePosixPath
from threading import Event

from tokenmill.checks.manifest_checks import wrong_file
from tokenmill.console import progress
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import ValidationError
from tokenmill.storage import anywhere
from tokenmill.storage.atomic import flush, write_atomic, write_directory
from tokenmill.storage.urls import StoredObject
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning.registry import check_free
from tokenmill.versioning.stored import (
    MANIFEST,
    QUARANTINE,
    TOKENIZER,
    DatasetFile,
    manifest_of,
    named_files,
    recorded_beside,
)

_QUARANTINE_FILE = f"{QUARANTINE}/quarantine.parquet"


def download(folder: str, directory: Path) -> Manifest:
    """Downloads the dataset PLACE/DIGEST with its tables, tokenizer and quarantine into `directory`, which appears atomically.
    Gives its manifest.

    Every file is checked: the manifest against the name of its folder, the files that it names and the quarantine against its
    digests, and the tokenizer against its digest. Raises ValidationError if one is wrong or missing, VersionsError if `directory`
    is not empty, StorageError and PassingError.
    """
    check_free(directory)
    manifest = manifest_of(folder)
    listed = anywhere.list_files(folder)
    wanted = _wanted(folder, manifest, listed)
    with (
        write_directory(directory) as made,
        progress("download", sum(listed[name].n_bytes for name in wanted), "bytes") as now,
    ):

        def bring(name: str, ended: Event) -> None:
            file, path = wanted[name], made / name
            anywhere.fetch(listed[name], path, ended)
            flush(path)
            if file is not None and (wrong := wrong_file(path, file.n_bytes, file.sha256)):
                raise _wrong(f"{folder}/{name}", wrong)
            now.add(listed[name].n_bytes)

        for _ in anywhere.at_once(bring, wanted):
            pass
        if (digest := Tokenizer.load(made / TOKENIZER).digest) != manifest.tokenizer_digest:
            expected = manifest.tokenizer_digest
            raise _wrong(f"{folder}/{TOKENIZER}", f"found the tokenizer {digest[:16]}…, expected {expected[:16]}…")
        with write_atomic(made / MANIFEST) as path:
            path.write_text(manifest.as_json(), encoding="utf-8")
    return manifest


def _wanted(folder: str, manifest: Manifest, listed: dict[str, StoredObject]) -> dict[str, DatasetFile | None]:
    """The names of the files to fetch, with expected sizes and digests; None for files of an unrecorded tokenizer, which is checked
    as a whole."""
    wanted: dict[str, DatasetFile | None] = {file.name: file for file in named_files(manifest)}
    wanted |= {
        name: None for name in listed if name.startswith(f"{TOKENIZER}/") and ".." not in PurePosixPath(name).parts
    }
    wanted |= {file.name: file for file in recorded_beside(folder) if ".." not in PurePosixPath(file.name).parts}
    if (stored := listed.get(_QUARANTINE_FILE)) is not None:
        wanted[_QUARANTINE_FILE] = DatasetFile(_QUARANTINE_FILE, stored.n_bytes, manifest.quarantine_sha256)
    if missing := [name for name in [*wanted, f"{TOKENIZER}/tokenizer.json"] if name not in listed]:
        raise _wrong(f"{folder}/{missing[0]}", "missing")
    return wanted


def _wrong(place: str, what: str) -> ValidationError:
    return ValidationError(
        place,
        f"{what}. Nothing was downloaded.",
        "Delete it if it is there, and upload the dataset again from the project that made it.",
    )
