"""What is checked: a token dataset, the tables and the quarantine in the folders next to it, and its documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.corpus.filter import DocumentList
from tokenmill.corpus.units import Unit
from tokenmill.dataset.entries import OutputShard
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import UNIT_INDEX_FILE, TableInput
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.storage.file_facts import Digests
from tokenmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Inputs:
    """The documents of a dataset, found again.

    `units`: the documents of each file of the dataset, by its name; those that are missing have no entry. `lists`: the project's
    lists of documents to leave out; none if there is no project.
    """

    units: Mapping[str, Unit]
    lists: Sequence[DocumentList]


@dataclass(frozen=True)
class Subject:
    """A token dataset that is to be checked.

    `folder`: its folder. `names`: the files that are there, relative to it. `tables`, `quarantine`: their folders; None: they are
    not to be checked. `tokenizer_folder`: the tokenizer's folder, or its file. `inputs`: its documents; None: it is checked
    without them. `digests`: what is known of unchanged files; None: each file is read.
    """

    folder: Path
    names: Sequence[str]
    tables: Path | None
    quarantine: Path | None
    manifest: Manifest
    tokenizer: Tokenizer
    tokenizer_folder: Path
    inputs: Inputs | None
    digests: Digests | None


@dataclass(frozen=True)
class RightFile:
    """A file of a dataset whose rows were found right. `folder`: has its part of the tables, derived again. `index_sha256`: the
    digest of the document index there; empty if no keys are made of it."""

    entry: OutputShard
    folder: Path
    index_sha256: str = ""


def table_inputs(manifest: Manifest, files: Sequence[RightFile]) -> list[TableInput]:
    """What the tables are made from."""
    names = manifest.source_names()
    return [
        TableInput(file.entry.name, file.entry.pieces, file.folder, names.get(file.entry.rows[0].name, ""))
        for file in files
    ]


def encoded_units(subject: Subject, files: Sequence[RightFile]) -> list[EncodedUnit]:
    """What the file sets are made from. `files`: all files of the dataset."""
    sources = subject.manifest.source_names() if subject.manifest.sources else {}
    numbers = {file.name: number for number, file in enumerate(subject.manifest.sources)}
    return [
        EncodedUnit(
            name,
            subject.folder / file.entry.name,
            file.folder / UNIT_INDEX_FILE,
            file.entry.pieces,
            [file.entry.sha256, file.index_sha256],
            sources.get(file.entry.rows[0].name, ""),
            numbers.get(sources.get(file.entry.rows[0].name, ""), 0),
        )
        for (name, _), file in zip(subject.manifest.outputs(), files, strict=True)
    ]
