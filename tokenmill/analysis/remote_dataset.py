"""A dataset in object storage, whose files are fetched when they are looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tokenmill.checks.findings import Finding
from tokenmill.checks.manifest_checks import wrong_tokenizer_files
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import TokenizerError, ValidationError
from tokenmill.storage import anywhere
from tokenmill.versioning.stored import (
    MANIFEST,
    QUARANTINE,
    TABLES,
    TOKENIZER,
    TOKENS,
    UPLOAD_FILE,
    not_a_dataset,
)

_QUARANTINE = f"{QUARANTINE}/{QUARANTINE_FILE}"


class StoredDataset:
    """The dataset PLACE/DIGEST, as it was listed. `tokens`: the folder of this machine that its files are fetched into.
    `names`: the files in its folder `tokens`. `wrong`: what no upload leaves there, or leaves out. `keeps`: whether `at_hand`
    leaves a file where it is for later; it is False at first."""

    def __init__(self, folder: str, scratch: Path) -> None:
        self.folder: str = folder
        self._local = scratch / folder.rpartition("/")[2]
        self._listed = anywhere.list_files(folder)
        if MANIFEST not in self._listed:
            raise not_a_dataset(folder)
        self.tokens: Path = self._local / TOKENS
        self.names: list[str] = [
            name.removeprefix(f"{TOKENS}/") for name in self._listed if name.startswith(f"{TOKENS}/")
        ]
        known = tuple(f"{one}/" for one in (TOKENS, TABLES, TOKENIZER, QUARANTINE))
        self.wrong: list[Finding] = [
            Finding(f"../{name}", None, "not a file of an upload.", "Delete it.")
            for name in self._listed
            if not name.startswith(known) and name != UPLOAD_FILE
        ]
        if _QUARANTINE not in self._listed:
            self.wrong.append(Finding(f"../{_QUARANTINE}", None, "missing.", "Upload the dataset again."))
        self.keeps: bool = False

    def fetch_beside(self, needs_tokenizer: bool, has_tables: bool) -> None:
        """Fetches the manifest, and what lies beside the dataset. Raises TokenizerError if a tokenizer is needed and missing."""
        if needs_tokenizer and f"{TOKENIZER}/tokenizer.json" not in self._listed:
            raise TokenizerError(
                f"{self.folder}/{TOKENIZER}",
                "expected the dataset's tokenizer; nothing is there.",
                "Name it with --tokenizer.",
            )
        folders = (f"{TOKENIZER}/", f"{QUARANTINE}/", *[f"{TABLES}/"] * has_tables)
        wanted = [name for name in self._listed if name.startswith(folders) or name == MANIFEST]
        for _ in anywhere.at_once(self._fetch, wanted):
            pass

    def wrong_tokenizer(self) -> list[Finding]:
        """How the files of the tokenizer differ from those that the manifest names; none if it cannot be read. Call `fetch_beside`
        first."""
        try:
            manifest = read_manifest(self.tokens)
        except ValidationError:
            return []
        return list(wrong_tokenizer_files(manifest, self._path(TOKENIZER)))

    @contextmanager
    def at_hand(self, name: str, ended: Event) -> Iterator[None]:
        """Has a file of the folder `tokens` on this machine while the block runs. One that is not in storage is not here either."""
        name = f"{TOKENS}/{name}"
        if name not in self._listed:
            yield
            return
        try:
            self._fetch(name, ended)
            yield
        finally:
            if not self.keeps:
                self._path(name).unlink(missing_ok=True)

    def in_words(self, words: str) -> str:
        """Replaces the paths of fetched files in a text by their URLs in storage."""
        return words.replace(str(self._local), self.folder)

    def _fetch(self, name: str, ended: Event) -> None:
        anywhere.fetch(self._listed[name], self._path(name), ended)

    def _path(self, name: str) -> Path:
        return self._local / name
