"""Uploads the dataset of a project to a place: all its files, and its manifest last."""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Semaphore
from typing import Literal

from tokenmill.checks.manifest_checks import wrong_file
from tokenmill.console import Progress, progress
from tokenmill.dataset.manifest import parse_manifest, read_manifest
from tokenmill.errors import CorpusError, PassingError, StorageError, ValidationError, VersionsError
from tokenmill.layout import DVC_LOCK_FILE, TOKENS_DIRECTORY, UPLOADS_FILE
from tokenmill.storage import anywhere, hub
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.json_files import read_json
from tokenmill.storage.retries import with_patience
from tokenmill.storage.urls import StoredObject
from tokenmill.versioning import git
from tokenmill.versioning.dvc_files import recorded_md5
from tokenmill.versioning.stored import (
    MANIFEST,
    UPLOAD_FILE,
    StoredFile,
    dataset_folders,
    files_beside,
    folder_name,
    manifest_content,
    named_files,
)
from tokenmill_reader.manifest import MANIFEST_FILE
from tokenmill_reader.regular_files import read, sha256_file

_N_SENT_AT_ONCE = 4  # each has up to four parts of 16 MiB in memory
_N_IN_COMMIT = 500  # larger commits take a hub minutes, and may fail

How = Literal["there", "copied", "sent"]


@dataclass(frozen=True)
class Uploaded:
    """An uploaded dataset. `url`: PLACE/DIGEST. `files`: how many existed, were copied, or were sent. `sent_bytes`: the bytes
    sent."""

    url: str
    digest: str
    files: Mapping[How, int]
    sent_bytes: int


def upload(root: Path, place: str) -> Uploaded:
    """Uploads a project's dataset with its tables, tokenizer and quarantine to `place`, and records that in data/uploads.json.

    `place`: from `anywhere.place_of`. Existing files are not sent again, also after an interruption; files of the place's newest
    other dataset are copied. Raises ValidationError if a file is not the one that the manifest names, StorageError, PassingError
    and VersionsError.
    """
    data = (root / TOKENS_DIRECTORY).parent
    manifest = read_manifest(root / TOKENS_DIRECTORY)
    if not manifest.digest:
        raise ValidationError(
            root / TOKENS_DIRECTORY,
            "has no digest of its own: an older tokenmill made it.",
            "Run `tokenmill build --force`.",
        )
    folder = f"{place}/{folder_name(manifest)}"
    try:
        md5 = recorded_md5(read(root / DVC_LOCK_FILE).decode(), TOKENS_DIRECTORY)
    except ValueError:
        md5 = None
    if md5 is None:
        raise VersionsError(
            root / DVC_LOCK_FILE, f"names no {TOKENS_DIRECTORY}.", "Run `tokenmill build` and commit it."
        )
    beside = files_beside(data, manifest)
    facts = json.dumps({"tokens_md5": md5, "beside": beside}).encode() + b"\n"
    files = [*named_files(manifest), *beside]
    content = read(root / TOKENS_DIRECTORY / MANIFEST_FILE)
    with progress("upload", sum(file.n_bytes for file in files), "bytes") as now:
        if anywhere.is_hub(folder):
            done = _committed(data, folder, files, {UPLOAD_FILE: facts, MANIFEST: content}, now)
        else:
            _put_facts(folder, facts)  # first, because a folder with a new file does not count as a leftover
            anywhere.remove_left_over(folder)
            there, held = anywhere.list_files(folder), _files_of_newest(place, folder)
            transfer = _Transfer(data, folder, there, held, now, Semaphore(_N_SENT_AT_ONCE))
            done = list(anywhere.at_once(transfer.bring, files))
            _check_arrived(folder, files)
            if not anywhere.put_new(f"{folder}/{MANIFEST}", content) and manifest_content(folder) != content:
                raise _other_manifest(folder)
    _record(root, manifest.digest, folder, md5)
    sent = sum(file.n_bytes for file, how in zip(files, done, strict=True) if how == "sent")
    n_files = Counter(done)
    return Uploaded(folder, manifest.digest, {how: n_files[how] for how in ("there", "copied", "sent")}, sent)


@dataclass(frozen=True)
class _Transfer:
    """Brings files of `data` into `folder`. `there`: the files that the folder has. `held`: files of another dataset of the place,
    by their digests. `sending`: limits how many files are sent at the same time."""

    data: Path
    folder: str
    there: Mapping[str, StoredObject]
    held: Mapping[str, str]
    now: Progress
    sending: Semaphore

    def bring(self, file: StoredFile, ended: Event) -> How:
        """Brings one file there, and tries again after errors that may pass."""
        return with_patience(lambda: self._bring_now(file, ended), ended)

    def _bring_now(self, file: StoredFile, ended: Event) -> How:
        url, found = f"{self.folder}/{file.name}", self.there.get(file.name)
        if found is not None and found.n_bytes == file.n_bytes and anywhere.sha256_of(url) == file.sha256:
            self.now.skip(file.n_bytes)
            return "there"
        if file.sha256 in self.held and _copied(self.held[file.sha256], url, file.sha256):
            self.now.add(file.n_bytes)
            return "copied"
        path = self.data / file.name
        if wrong := wrong_file(path, file.n_bytes, file.sha256):
            raise ValidationError(path, f"{wrong}.", "Run `tokenmill build --force`.")

        def on_part(n_bytes: int) -> None:
            anywhere.go_on(ended)
            self.now.add(n_bytes)

        with self.sending:
            anywhere.put_file(path, url, file.sha256, on_part)
        return "sent"


def _committed(
    data: Path, folder: str, files: Sequence[StoredFile], last: Mapping[str, bytes], now: Progress
) -> list[How]:
    """Brings the files that a hub's folder lacks into it in commits. `last`: the files of the last commit, by their names, of which
    one is the manifest."""

    def refuse_other(name: str, content: bytes) -> None:
        if name == MANIFEST and content != last[MANIFEST]:
            raise _other_manifest(folder)

    def commit(some: Mapping[str, Path | bytes]) -> None:
        hub.commit_files(folder, some, f"Dataset {folder.rpartition('/')[2]}", refuse_other, now.add)

    there = anywhere.list_files(folder)
    if MANIFEST in there:
        refuse_other(MANIFEST, anywhere.get(f"{folder}/{MANIFEST}"))
    done: list[How] = []
    new: dict[str, Path | bytes] = {}
    for file in files:
        path, stored = data / file.name, there.get(file.name)
        if stored is not None and hub.is_same(stored, path, file.sha256):
            now.skip(file.n_bytes)
            done.append("there")
            continue
        if wrong := wrong_file(path, file.n_bytes, file.sha256):
            raise ValidationError(path, f"{wrong}.", "Run `tokenmill build --force`.")
        new[file.name] = path
        done.append("sent")
        if len(new) == _N_IN_COMMIT:
            commit(new)
            new = {}
    is_last_there = all(
        name in there and hub.is_same(there[name], content, hashlib.sha256(content).hexdigest())
        for name, content in last.items()
    )
    if new or not is_last_there:
        commit({**new, **last})
    _check_arrived(folder, files)
    return done


def _other_manifest(folder: str) -> StorageError:
    return StorageError(
        f"{folder}/{MANIFEST}",
        "differs from the manifest of this dataset, and nothing is overwritten.",
        "If `tokenmill verify` calls it wrong, delete that file and upload again; otherwise upload to another place.",
    )


def _put_facts(folder: str, facts: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="tokenmill-upload-") as scratch:
        path = Path(scratch) / UPLOAD_FILE
        path.write_bytes(facts)
        anywhere.put_file(path, f"{folder}/{UPLOAD_FILE}", sha256_file(path))


def _files_of_newest(place: str, but: str) -> dict[str, str]:
    """The files of the newest other dataset in the place, by their digests."""
    folders = [folder for name in dataset_folders(place) if (folder := f"{place}/{name}") != but]
    found = anywhere.at_once(lambda folder, _: anywhere.head(f"{folder}/{MANIFEST}"), folders)
    whole = {folder: one.modified_ns for folder, one in zip(folders, found, strict=True) if one is not None}
    if not whole:
        return {}
    newest = max(whole, key=lambda folder: whole[folder])
    try:
        manifest = parse_manifest(manifest_content(newest), newest)
    except ValidationError:  # made by another tokenmill, or just deleted
        return {}
    return {file.sha256: f"{newest}/{file.name}" for file in named_files(manifest)}


def _copied(from_url: str, url: str, sha256: str) -> bool:
    """Copies a file inside its place if it has this digest. False if it has another, is missing, or is too large for the server."""
    try:
        if anywhere.sha256_of(from_url) != sha256:
            return False
        anywhere.copy(from_url, url)
    except PassingError:
        raise
    except (StorageError, CorpusError, FileNotFoundError):
        return False
    return True


def _check_arrived(folder: str, files: Sequence[StoredFile]) -> None:
    there: dict[str, StoredObject] = anywhere.list_files(folder)
    for file in files:
        if file.name not in there or there[file.name].n_bytes != file.n_bytes:
            raise StorageError(
                f"{folder}/{file.name}",
                "was written, but is not there any more.",
                "Check that nobody deletes files there, and run the command again.",
            )


def _record(root: Path, digest: str, url: str, md5: str) -> None:
    """Adds an upload to data/uploads.json, if it does not name it yet."""
    path = root / UPLOADS_FILE
    try:
        uploads = read_json(path) if path.exists() else {}
        entry = uploads.setdefault(digest, {"commit": git.commit_of(root, "HEAD"), "tokens_md5": md5, "urls": []})
        urls = entry["urls"]
        if url in urls:
            return
        urls.append(url)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise VersionsError(
            path,
            "is not the record of uploads that tokenmill writes.",
            f"Correct it, or bring it back with `git checkout -- {UPLOADS_FILE}`, and run the command again; {url} is "
            "uploaded.",
        ) from None
    with write_atomic(path) as partial:
        partial.write_text(json.dumps(uploads, indent=1, sort_keys=True) + "\n", encoding="utf-8")
