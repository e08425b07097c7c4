"""Lists and fetches the files of an output that a commit of a repository records."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.errors import VersionsError
from tokenmill.storage.anywhere import at_once
from tokenmill.storage.json_files import read_json
from tokenmill.versioning import git
from tokenmill.versioning.dvc_patches import ADVICE, LIST, refuse_names
from tokenmill.versioning.foreign_remote import Store, fetch_object
from tokenmill.versioning.recorded import Recorded


class ListedFile(NamedTuple):
    """A file of an output. `name`: relative to what was asked for, and empty for that itself."""

    name: str
    md5: str


@dataclass(frozen=True)
class OutputFiles:
    """The files of an output, or of a part of it. `stores`: where their objects are."""

    record: Recorded
    files: Sequence[ListedFile]
    stores: list[Store]

    def fetch(self, directory: Path) -> None:
        """Fetches all files into an existing directory."""

        def bring(file: ListedFile, _ended: Any) -> None:
            (directory / file.name).parent.mkdir(parents=True, exist_ok=True)
            self.fetch_one(file, directory / file.name)

        for _ in at_once(bring, self.files):
            pass

    def fetch_one(self, file: ListedFile, target: Path) -> None:
        """Fetches one file to a new path."""
        fetch_object(self.stores, file.md5, self.record.is_of_dvc_2, target)


def output_files(record: Recorded, stores: list[Store]) -> OutputFiles:
    """The files that a commit of a repository records. `stores`: where its objects are. Raises VersionsError if they cannot be
    listed."""
    if not record.md5.endswith(".dir"):
        files = [] if record.below else [ListedFile("", record.md5)]
        return OutputFiles(record, files, stores)
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        path = Path(folder) / "list"
        fetch_object(stores, record.md5, record.is_of_dvc_2, path)
        listed = _parsed(path)
    refuse_names((file.name.split("/") for file in listed), record.md5)
    if not record.below:
        return OutputFiles(record, listed, stores)
    below = [
        ListedFile(file.name.removeprefix(record.below).lstrip("/"), file.md5)
        for file in listed
        if f"{file.name}/".startswith(f"{record.below}/")
    ]
    return OutputFiles(record, below, stores)


def _parsed(path: Path) -> list[ListedFile]:
    try:
        listed = [ListedFile(entry["relpath"], entry["md5"]) for entry in read_json(path)]
        if not all(isinstance(file.name, str) and git.MD5.fullmatch(file.md5) for file in listed):
            raise ValueError("a name is no text, or an md5 is none")
        if len({file.name for file in listed}) < len(listed):
            raise ValueError("a name is there twice")
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise VersionsError(LIST, f"is malformed: {error!r:.100}.", ADVICE) from None
    return listed
