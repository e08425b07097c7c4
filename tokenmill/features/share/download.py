"""Downloads a dataset from a place into a new folder, which appears when all files are there and checked."""

from pathlib import Path
from threading import Event

from tokenmill.artifacts.dataset_card import licenses_in, write_dataset_card
from tokenmill.checks.manifest_checks import wrong_file
from tokenmill.console import progress, say
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
    TOKENS,
    StoredFile,
    manifest_of,
    named_files,
)
from tokenmill_reader.manifest import CARD_FILE

_CARD = f"{TOKENS}/{CARD_FILE}"
_TOKENIZER_FILE = f"{TOKENIZER}/tokenizer.json"
_QUARANTINE_FILE = f"{QUARANTINE}/quarantine.parquet"


def download(folder: str, directory: Path) -> Manifest:
    """Downloads the dataset PLACE/DIGEST with its tables, tokenizer and quarantine into `directory`, which appears atomically.
    Gives its manifest.

    Only files that the manifest vouches for are fetched, and each is checked against its digest: the manifest against the name of
    its folder. The dataset's card is not fetched but written. Raises ValidationError if a file is wrong or missing, VersionsError
    if `directory` is not empty, StorageError and PassingError.
    """
    check_free(directory)
    listed = anywhere.list_files(folder)  # refuses links, also of the manifest
    manifest = manifest_of(folder)
    wanted = _wanted(folder, manifest, listed)
    with (
        write_directory(directory) as partial,
        progress("download", sum(listed[name].n_bytes for name in wanted), "bytes") as now,
    ):

        def bring(name: str, ended: Event) -> None:
            file, path = wanted[name], partial / name
            anywhere.fetch(listed[name], path, ended)
            flush(path)
            if file is not None and (wrong := wrong_file(path, file.n_bytes, file.sha256)):
                raise _wrong(f"{folder}/{name}", wrong)
            now.add(listed[name].n_bytes)

        for _ in anywhere.at_once(bring, wanted):
            pass
        tokenizer = Tokenizer.load(partial / TOKENIZER)
        if tokenizer.digest != manifest.tokenizer_digest:
            expected = manifest.tokenizer_digest
            raise _wrong(
                f"{folder}/{TOKENIZER}", f"found the tokenizer {tokenizer.digest[:16]}…, expected {expected[:16]}…"
            )
        if not manifest.tokenizer_files:
            tokenizer.save(partial / TOKENIZER)
            say(
                f"{folder}: its manifest, of an earlier tokenmill, vouches for no file beside tokenizer.json. They are left out."
            )
        if _CARD in listed:
            card = anywhere.get(f"{folder}/{_CARD}").decode(errors="replace")
            write_dataset_card(manifest, licenses_in(card, manifest), partial / TOKENS)
        with write_atomic(partial / MANIFEST) as path:
            path.write_text(manifest.as_json(), encoding="utf-8")
    return manifest


def _wanted(folder: str, manifest: Manifest, listed: dict[str, StoredObject]) -> dict[str, StoredFile | None]:
    """The names of the files to fetch, with expected sizes and digests; None for a tokenizer.json that the manifest knows by the
    tokenizer's digest alone."""
    wanted: dict[str, StoredFile | None] = {file.name: file for file in named_files(manifest)}
    wanted.setdefault(_TOKENIZER_FILE, None)
    if (stored := listed.get(_QUARANTINE_FILE)) is not None:
        wanted[_QUARANTINE_FILE] = StoredFile(_QUARANTINE_FILE, stored.n_bytes, manifest.quarantine_sha256)
    if missing := [name for name in wanted if name not in listed]:
        raise _wrong(f"{folder}/{missing[0]}", "missing")
    return wanted


def _wrong(place: str, what: str) -> ValidationError:
    return ValidationError(
        place,
        f"{what}. Nothing was downloaded.",
        "Delete it if it is there, and upload the dataset again from the project that made it.",
    )
