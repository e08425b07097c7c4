"""The layout of a dataset in a place (a folder in object storage or on a disk), and the expected content of its files.

    PLACE/DIGEST/tokens/manifest.json    written last; a folder without it is no dataset
                 tokens/…                the files that manifest.json names
                 tables/…  tokenizer/…  quarantine/…    what `tokenmill verify` reads beside them
                 upload.json             dvc.lock's md5 of data/tokens, and the files that manifest.json does not name

DIGEST is the first 16 digits of the manifest's own digest.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenmill.checks.findings import raise_first
from tokenmill.checks.manifest_checks import wrong_digest, wrong_names
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.dataset.entries import OutputShard, TableFile
from tokenmill.dataset.manifest import Manifest, parse_manifest
from tokenmill.errors import CorpusError, PassingError, ValidationError
from tokenmill.layout import QUARANTINE_DIRECTORY, TABLES_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.storage import anywhere
from tokenmill_reader.manifest import CARD_FILE, MANIFEST_FILE
from tokenmill_reader.regular_files import sha256_file

TOKENS = Path(TOKENS_DIRECTORY).name
TABLES = Path(TABLES_DIRECTORY).name
TOKENIZER = Path(TOKENIZER_DIRECTORY).name
QUARANTINE = Path(QUARANTINE_DIRECTORY).name
MANIFEST = f"{TOKENS}/{MANIFEST_FILE}"
UPLOAD_FILE = "upload.json"

_N_DIGITS = 16
_DIGEST = re.compile(rf"[0-9a-f]{{{_N_DIGITS}}}")


class StoredFile(NamedTuple):
    """A file of a dataset. `name`: relative to the dataset's folder in a place, and to `data` of a project."""

    name: str
    n_bytes: int
    sha256: str


def folder_name(manifest: Manifest) -> str:
    """The name of a dataset's folder in a place."""
    return manifest.digest[:_N_DIGITS]


def dataset_folders(place: str) -> list[str]:
    """The sorted names of folders in a place that look like datasets. Others are never touched."""
    return [name for name in anywhere.list_folders(place) if _DIGEST.fullmatch(name)]


def manifest_of(folder: str) -> Manifest:
    """The manifest of the dataset in a folder PLACE/DIGEST. Raises ValidationError if it is missing or has another digest."""
    content = manifest_content(folder)
    manifest = parse_manifest(content, f"{folder}/{MANIFEST}")
    raise_first([*wrong_digest(manifest, content), *wrong_names(manifest)], f"{folder}/{TOKENS}")
    if (name := folder.rpartition("/")[2]) != folder_name(manifest):
        raise (
            ValidationError(
                folder,
                f"holds the dataset {folder_name(manifest)}, but its folder is named after another one.",
                "Do not use it; upload it again.",
                code="TM501",
            )
            if _DIGEST.fullmatch(name)
            else not_a_dataset(folder)
        )
    return manifest


def manifest_content(folder: str) -> bytes:
    """The bytes of manifest.json of the dataset in a folder. Raises ValidationError if there is none."""
    try:
        return anywhere.get(f"{folder}/{MANIFEST}")
    except (CorpusError, FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, PassingError):
            raise
        raise not_a_dataset(folder) from None


def not_a_dataset(folder: str) -> ValidationError:
    """The error for a folder that holds no whole dataset."""
    return ValidationError(
        folder,
        f"expected an uploaded dataset, which has {MANIFEST}; found none.",
        "Name PLACE/DIGEST as `tokenmill upload` printed it; an upload that was interrupted is completed by running "
        "it again.",
    )


def named_files(manifest: Manifest) -> list[StoredFile]:
    """The files that the manifest names, without the quarantine. Up to format 9 it names none of the tokenizer."""
    named: dict[str, Sequence[OutputShard | TableFile]] = {
        TOKENS: [*manifest.shards, *manifest.set_files()],
        TABLES: manifest.tables,
        TOKENIZER: manifest.tokenizer_files,
    }
    return [
        StoredFile(f"{folder}/{file.name}", file.n_bytes, file.sha256)
        for folder, files in named.items()
        for file in files
    ]


def files_beside(data: Path, manifest: Manifest) -> list[StoredFile]:
    """The further files of an upload, in a project's `data`: the quarantine and the dataset's card if they are there, and the files
    of a tokenizer that the manifest does not name."""
    is_named = bool(manifest.tokenizer_files)
    paths = [] if is_named else [path for path in (data / TOKENIZER).rglob("*") if path.is_file()]
    one_each = (data / QUARANTINE / QUARANTINE_FILE, data / TOKENS / CARD_FILE)
    paths += [path for path in one_each if path.is_file()]
    return [
        StoredFile(path.relative_to(data).as_posix(), path.stat().st_size, sha256_file(path)) for path in sorted(paths)
    ]
