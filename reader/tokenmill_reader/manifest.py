"""The manifest of a token dataset, as far as it is needed to read the dataset, to describe it and to check a copy of it.

tokenmill writes it, and checks all of it (tokenmill/dataset/manifest.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple, Optional

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.passwords import without_passwords
from tokenmill_reader.records import (
    Convert,
    Field,
    WrongValueError,
    anything,
    dict_of,
    flag,
    list_of,
    number,
    optional,
    record,
    text,
    whole,
)
from tokenmill_reader.regular_files import read

MANIFEST_FILE = "manifest.json"
CARD_FILE = "README.md"
"""The page about a dataset beside its manifest. It is made from the manifest, and may be edited: nothing checks it."""
DOCUMENTS_FOLDER = "documents"
"""The folder of the documents' own files in the dataset, since format 8."""
FORMAT_VERSION = 10
READ_VERSIONS = range(3, FORMAT_VERSION + 1)
"""The format versions that can be read; earlier ones lack the fields with a default."""

_MADE_AGAIN = "Delete the dataset's folder and run `tokenmill build`, or copy the dataset again."


class DatasetFile(NamedTuple):
    """A file. `name`: relative to the dataset's folder. `sha256`: in hex, as all digests."""

    name: str
    n_bytes: int
    sha256: str


class InputFile(NamedTuple):
    """An input file as it was encoded. `source`: the name of its source; None without named sources."""

    name: str
    n_bytes: int
    source: Optional[str]


class InputRows(NamedTuple):
    """The documents of the input file `name` in a file of documents. `n_bad`: None if the input file is damaged."""

    name: str
    n_bad: Optional[int]


class DocumentsFile(NamedTuple):
    """A Parquet file of documents. `tokens_sha256`: the digest of its documents; None up to format 8."""

    name: str
    n_bytes: int
    sha256: str
    n_documents: int
    n_tokens: int
    rows: list[InputRows]
    tokens_sha256: Optional[str]


class SetPart(NamedTuple):
    """One part of a file set, with the files of it. `n_items`: documents or sequences."""

    files: list[DatasetFile]
    n_items: int
    n_tokens: int


class FileSet(NamedTuple):
    """The files of one format for one split, source and epoch, each None if there is only one. `shared`: files that all parts
    share."""

    format: str
    split: Optional[str]
    source: Optional[str]
    epoch: Optional[int]
    parts: list[SetPart]
    shared: list[DatasetFile]

    @property
    def files(self) -> list[DatasetFile]:
        """All files of the set."""
        return [file for part in self.parts for file in part.files] + self.shared


class Shuffle(NamedTuple):
    """`encode.shuffle`: the order of the items in the files, one for each epoch."""

    seed: int
    epochs: int


class Pack(NamedTuple):
    """`encode.pack`: how documents are packed into sequences."""

    length: int
    mode: str
    long: str
    output: str
    pad: Optional[str]
    labels: bool


class Files(NamedTuple):
    """How the documents are arranged in the file sets: the parameters of `encode` that decide it. `pad_id`: the id that fills
    sequences up. `epochs`: how many passes over each named source the first split has, as a fraction like "3/2". `min_parts`: how
    many parts each set has at least; None if that was not asked for. `source_ids`: whether the files have the numbers of the items'
    sources."""

    file_bytes: int
    splits: dict[str, float]
    split_group: Optional[str]
    shuffle: Optional[Shuffle]
    pack: Optional[Pack]
    pad_id: Optional[int]
    epochs: dict[str, str]
    min_parts: Optional[int]
    source_ids: bool

    @property
    def is_arranged(self) -> bool:
        """Whether file sets have other items than the documents' own files, or have them in another order."""
        return bool(self.splits or self.shuffle or self.pack or self.epochs)


class Reading(NamedTuple):
    """How documents were read. `id_column`: the column with their ids; None if an id is the row."""

    id_column: Optional[str]


class Source(NamedTuple):
    """A named source: its requested weight (`epochs`, or a budget of `tokens`; the other is None), and sums over its documents."""

    name: str
    id_column: Optional[str]
    special_tokens_in_text: str
    epochs: Optional[float]
    tokens: Optional[int]
    n_documents: int
    n_tokens: int
    text_bytes: int


class MixedSource(NamedTuple):
    """The share of a named source in a split (None without splits). `epochs`: the passes over it, as a fraction like "3/2"."""

    split: Optional[str]
    source: str
    epochs: str
    n_documents: int
    n_tokens: int


class Chat(NamedTuple):
    """How conversations became tokens. `n_trained`: the tokens that are to be learned. `turns`: "each" if the documents are
    samples, one for each trained message of a conversation, else "together". `n_repeated`: the tokens of samples that a longer one
    of the same conversation follows. `untrained`: the parts of answers that are not trained."""

    template: Optional[str]
    template_name: str
    mask: str
    variables: dict[str, Any]
    n_trained: int
    tool_use_template: Optional[str]
    turns: str
    n_repeated: Optional[int]
    untrained: list[str]


class Manifest(NamedTuple):
    """What the manifest of a dataset says. `engine`: the version of tokenmill that encoded. `begin_of_document_id`,
    `end_of_document_id`: the ids around each document, or None. `n_bad`: documents in the quarantine. `n_dropped`: documents left
    out by request, by reason. `source`: how documents were read; None with named sources. `packed`: the numbers of the packing, by
    split. `digest`: over all other fields."""

    format_version: int
    engine: str
    tokenizer_digest: str
    tokenizer_origin: Optional[dict[str, Any]]
    id_type: str
    id_max: int
    begin_of_document_id: Optional[int]
    end_of_document_id: Optional[int]
    special_tokens_in_text: str
    n_documents: int
    n_tokens: int
    text_bytes: int
    n_bad: int
    n_dropped: dict[str, int]
    source: Optional[Reading]
    sources: list[Source]
    chat: Optional[Chat]
    tables: list[DatasetFile]
    inputs: list[InputFile]
    shards: list[DocumentsFile]
    files: Optional[Files]
    sets: list[FileSet]
    packed: dict[str, dict[str, int]]
    mixture: list[MixedSource]
    blends: list[DatasetFile]
    digest: str

    @property
    def has_mask(self) -> bool:
        """Whether its documents are conversations, whose tokens have a loss mask."""
        return self.chat is not None

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; otherwise their ids are rows."""
        return any(one is not None and one.id_column is not None for one in [*self.sources, self.source])

    @property
    def dataset_files(self) -> list[DatasetFile]:
        """All files of the dataset except the manifest."""
        documents = [DatasetFile(one.name, one.n_bytes, one.sha256) for one in self.shards]
        return documents + [file for one in self.sets for file in one.files] + self.blends

    def tokens_digest(self) -> str:
        """The sha256, in hex, of what the file sets are made from: the tokenizer's digest, and name and digest of each file of
        documents. The order of a shuffled set depends on it, so names are relative to the folder of documents, which earlier
        formats lacked. Up to format 8 the digests are those of the files' bytes."""
        above = "" if self.format_version < 8 else f"{DOCUMENTS_FOLDER}/"
        rule = 1 if self.format_version < 9 else 2
        names = (one.name[len(above) :] if one.name.startswith(above) else one.name for one in self.shards)
        digests = (one.sha256 if rule == 1 else str(one.tokens_sha256) for one in self.shards)
        return tokens_digest(self.tokenizer_digest, zip(names, digests), rule)


def tokens_digest(tokenizer_digest: str, files: Iterable[tuple[str, str]], rule: int = 2) -> str:
    """The sha256, in hex, over a tokenizer's digest, and the name and digest of each file of a dataset's documents, in order.
    `rule`: 1 if the digests are those of the files' bytes, as up to format 8; 2 if they are those of their documents."""
    lines = [f"tokens {rule} {tokenizer_digest}", *(f"{sha256} {name}" for name, sha256 in files)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def check_is_dataset(dataset: Path) -> None:
    """Raises ValidationError if the folder has no manifest."""
    if not (dataset / MANIFEST_FILE).exists():
        around = dataset_above(dataset) if dataset.is_dir() else None
        if around is not None:
            raise ValidationError(dataset, f"is a folder inside the dataset {around}.", "Name that one.", code="TM502")
        found = "a folder without one" if dataset.is_dir() else "a file" if dataset.exists() else "nothing there"
        raise ValidationError(
            dataset,
            f"expected a token dataset, a folder that has a {MANIFEST_FILE}; found {found}.",
            "Name the folder of a dataset.",
            code="TM502",
        )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a dataset. Raises ValidationError if it is missing or malformed."""
    return manifest_of(read_content(folder), str(folder / MANIFEST_FILE))


def read_content(folder: Path) -> Any:
    """The JSON of a dataset's manifest, as values of Python. Raises ValidationError if it is missing or no JSON."""
    path = folder / MANIFEST_FILE
    try:
        return json.loads(read(path))
    except FileNotFoundError:
        whole_dataset = dataset_above(folder)
        if whole_dataset is not None:
            raise ValidationError(
                folder, f"is a folder inside the dataset {whole_dataset}.", "Name that one."
            ) from None
        raise ValidationError(
            path, "missing.", "Run `tokenmill build` to make the dataset, or name the folder of one."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValidationError(path, f"is no JSON: {error}.", _MADE_AGAIN) from None


def manifest_of(content: Any, place: str) -> Manifest:
    """The manifest in values of JSON. `place`: names it in errors. Raises ValidationError for another format version, and for a
    field that is missing or has another type."""
    try:
        form = _FORM(content, "")
        if form in READ_VERSIONS:
            found: Manifest = _MANIFEST(content, "")
            return found
    except WrongValueError as error:
        raise ValidationError(f"{place}: {error.where}" if error.where else place, error.what, _MADE_AGAIN) from None
    age = "an older" if form < FORMAT_VERSION else "a newer"
    raise ValidationError(
        f"{place}: format_version",
        f"found {form}, expected {READ_VERSIONS[0]} to {FORMAT_VERSION}: {age} tokenmill made this dataset.",
        "Run `tokenmill build --force` to build it again, or read it with the version of tokenmill that made it.",
    )


def own_digest(content: Mapping[str, Any]) -> str:
    """The expected `digest` of a manifest: the sha256, in hex, of the other fields as JSON without white space, with sorted
    keys."""
    others = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def wrong_names(names: Iterable[str]) -> Iterator[str]:
    """The names of files that lead out of the dataset's folder or into a git repository, or occur twice."""
    seen: set[str] = set()
    for name in names:
        paths = PurePosixPath(name.lower()), PurePath(name.lower())
        if name in seen or any(path.anchor or {"..", ".git"} & {*path.parts} for path in paths):
            yield name
        seen.add(name)


def refuse_wrong_names(manifest: Manifest, folder: Path) -> None:
    """Raises ValidationError if a file of the dataset would be outside its folder, or is there twice."""
    for name in wrong_names([one.name for one in manifest.dataset_files]):
        raise ValidationError(
            folder / MANIFEST_FILE,
            f"{name!r} is there twice, or is no name of a file in the dataset.",
            "Copy the dataset again, or run `tokenmill build --force`.",
        )


def dataset_above(folder: Path) -> Path | None:
    """The dataset around this folder, such as data/tokens for data/tokens/documents; None if there is none."""
    datasets = (one for one in folder.parents if (one / DOCUMENTS_FOLDER).is_dir() and (one / MANIFEST_FILE).exists())
    return next(datasets, None)


def _clean(value: Any, place: str) -> str:
    return without_passwords(text(value, place))  # which an earlier tokenmill wrote into manifests


def _passes(value: Any, place: str) -> str:
    """A number of passes over a source, as a fraction like "3/2"."""
    try:
        if Fraction(text(value, place)) >= 0:
            return str(value)
    except (ValueError, ZeroDivisionError):
        pass
    raise WrongValueError(place, f'expected a fraction such as "3/2"; found {value!r:.60}.')


def _packing(value: Any, place: str) -> dict[str, int]:
    """The numbers of the packing of a split."""
    found: dict[str, int] = _NUMBERS(value, place)
    if missing := [name for name in ("n_padding", "n_sequences") if name not in found]:
        raise WrongValueError(f"{place}.{missing[0]}", "missing.")
    return found


_NUMBERS: Convert = dict_of(whole)
_FILE = record(DatasetFile, {"name": Field(text), "n_bytes": Field(whole), "sha256": Field(text)})
_INPUT = record(
    InputFile, {"name": Field(text), "n_bytes": Field(whole), "source": Field(optional(text), lambda: None)}
)
_ROWS = record(InputRows, {"name": Field(text), "n_bad": Field(optional(whole))})
_SHARD = record(
    DocumentsFile,
    {
        "name": Field(text),
        "n_bytes": Field(whole),
        "sha256": Field(text),
        "n_documents": Field(whole),
        "n_tokens": Field(whole),
        "rows": Field(list_of(_ROWS)),
        "tokens_sha256": Field(optional(text), lambda: None),
    },
)
_PART = record(SetPart, {"files": Field(list_of(_FILE)), "n_items": Field(whole), "n_tokens": Field(whole)})
_SET = record(
    FileSet,
    {
        "format": Field(text),
        "split": Field(optional(text)),
        "source": Field(optional(text)),
        "epoch": Field(optional(whole)),
        "parts": Field(list_of(_PART)),
        "shared": Field(list_of(_FILE)),
    },
)
_FILES = record(
    Files,
    {
        "file_bytes": Field(whole),
        "splits": Field(dict_of(number)),
        "split_group": Field(optional(text)),
        "shuffle": Field(optional(record(Shuffle, {"seed": Field(whole), "epochs": Field(whole, lambda: 1)}))),
        "pack": Field(
            optional(
                record(
                    Pack,
                    {
                        "length": Field(whole),
                        "mode": Field(text),
                        "long": Field(text, lambda: "split"),
                        "output": Field(text, lambda: "rows"),
                        "pad": Field(optional(text), lambda: None),
                        "labels": Field(flag, lambda: False),
                    },
                )
            )
        ),
        "pad_id": Field(optional(whole)),
        "epochs": Field(dict_of(_passes), dict),
        "min_parts": Field(optional(whole), lambda: None),
        "source_ids": Field(flag, lambda: False),
    },
)
_SOURCE = record(
    Source,
    {
        "name": Field(text),
        "id_column": Field(optional(text)),
        "special_tokens_in_text": Field(text),
        "epochs": Field(optional(number)),
        "tokens": Field(optional(whole)),
        "n_documents": Field(whole),
        "n_tokens": Field(whole),
        "text_bytes": Field(whole),
    },
)
_MIXED = record(
    MixedSource,
    {
        "split": Field(optional(text)),
        "source": Field(text),
        "epochs": Field(_passes),
        "n_documents": Field(whole),
        "n_tokens": Field(whole),
    },
)
_CHAT = record(
    Chat,
    {
        "template": Field(optional(text)),
        "template_name": Field(text),
        "mask": Field(text),
        "variables": Field(dict_of(anything)),
        "n_trained": Field(whole),
        "tool_use_template": Field(optional(text), lambda: None),
        "turns": Field(text, lambda: "together"),
        "n_repeated": Field(optional(whole), lambda: None),
        "untrained": Field(list_of(text), list),
    },
)
_FORM = record(int, {"format_version": Field(whole)})
_MANIFEST = record(
    Manifest,
    {
        "format_version": Field(whole),
        "engine": Field(text),
        "tokenizer_digest": Field(text),
        "tokenizer_origin": Field(optional(dict_of(optional(_clean))), lambda: None),
        "id_type": Field(text),
        "id_max": Field(whole),
        "begin_of_document_id": Field(optional(whole), lambda: None),
        "end_of_document_id": Field(optional(whole)),
        "special_tokens_in_text": Field(text),
        "n_documents": Field(whole),
        "n_tokens": Field(whole),
        "text_bytes": Field(whole),
        "n_bad": Field(whole),
        "n_dropped": Field(dict_of(whole), dict),
        "source": Field(optional(record(Reading, {"id_column": Field(optional(text))})), lambda: None),
        "sources": Field(list_of(_SOURCE), list),
        "chat": Field(optional(_CHAT), lambda: None),
        "tables": Field(list_of(_FILE), list),
        "inputs": Field(list_of(_INPUT)),
        "shards": Field(list_of(_SHARD)),
        "files": Field(optional(_FILES), lambda: None),
        "sets": Field(list_of(_SET), list),
        "packed": Field(dict_of(_packing), dict),
        "mixture": Field(list_of(_MIXED), list),
        "blends": Field(list_of(_FILE), list),
        "digest": Field(text, str),
    },
)
