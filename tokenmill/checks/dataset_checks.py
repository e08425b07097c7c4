"""The checks of a token dataset, in their order: the same for `validate`, for `verify`, and for a dataset in object storage.

1. `wrong_identity`: if it finds something, every row would be wrong, or files elsewhere would be read, so nothing else is checked.
2. `wrong_manifest`: what the manifest says of itself, and which files are there.
3. For each file, in parallel: `wrong_stored`, and for those of documents `check_file` of `file_checks`.
4. `wrong_rest`: what needs all files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.checks.dropped_checks import wrong_dropped
from tokenmill.checks.findings import COPY, Finding, NotChecked
from tokenmill.checks.manifest_checks import (
    misplaced,
    wrong_digest,
    wrong_file,
    wrong_files,
    wrong_in_itself,
    wrong_names,
    wrong_quarantine,
    wrong_tokenizer_files,
    wrong_with_tokenizer,
)
from tokenmill.checks.set_checks import wrong_sets
from tokenmill.checks.subject import RightFile, Subject
from tokenmill.checks.table_checks import wrong_tables
from tokenmill.corpus.dropped import Dropped
from tokenmill.dataset.entries import OutputShard, TableFile
from tokenmill.layout import TOKENIZER_DIRECTORY
from tokenmill.rounds import Rounds
from tokenmill_reader.manifest import CARD_FILE, MANIFEST_FILE
from tokenmill_reader.regular_files import read


@dataclass(frozen=True)
class CheckedFiles:
    """What the checks of the single files gave. `files`: those that are right, in the manifest's order. `dropped`: the dropped
    documents; None if they could not be read. `scratch`: an empty folder. `threads`, `code`: for the checks of file sets (see
    `wrong_sets`)."""

    files: Sequence[RightFile]
    dropped: Dropped | None
    scratch: Path
    threads: int
    code: str


def wrong_identity(subject: Subject) -> Iterator[Finding]:
    """Checks that the dataset is of this tokenizer, and names files in its own folder alone."""
    yield from wrong_with_tokenizer(subject.manifest, subject.tokenizer)
    yield from wrong_names(subject.manifest)
    yield from misplaced(subject.manifest)


def wrong_manifest(subject: Subject) -> Iterator[Finding]:
    """Checks the manifest alone, and that the files which it names are there and no others."""
    yield from wrong_files([MANIFEST_FILE, *subject.manifest.names()], set(subject.names) - {CARD_FILE})
    yield from wrong_in_itself(subject.manifest)
    yield from wrong_digest(subject.manifest, read(subject.folder / MANIFEST_FILE))


def wrong_stored(subject: Subject, file: OutputShard | TableFile) -> Iterator[Finding]:
    """Checks the length and the digest of a file of the dataset, if it is there."""
    if what := wrong_file(subject.folder / file.name, file.n_bytes, file.sha256, subject.digests):
        yield Finding(file.name, None, what, COPY)


def wrong_rest(subject: Subject, checked: CheckedFiles) -> Rounds[list[Finding | NotChecked]]:
    """Checks what follows from all files together: the tables, the file sets, the dropped documents, the quarantine,
    and the files of the tokenizer beside the dataset."""
    of_tables = wrong_tables(subject, checked.files, checked.scratch)
    of_sets = yield from wrong_sets(subject, checked.files, checked.threads, checked.code)
    of_dropped = wrong_dropped(subject, checked.dropped, checked.scratch)
    of_beside = [*wrong_quarantine(subject.manifest, subject.quarantine)]
    if subject.tokenizer_folder == subject.folder.parent / Path(TOKENIZER_DIRECTORY).name:
        of_beside += wrong_tokenizer_files(subject.manifest, subject.tokenizer_folder)
    return [*of_tables, *of_sets, *of_dropped, *of_beside]
