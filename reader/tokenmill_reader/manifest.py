"""The manifest of a token dataset, as far as it is needed to read the dataset, to describe it and to check a copy of it.

tokenmill writes it, and checks all of it (tokenmill/dataset/manifest.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union, get_args, get_origin, get_type_hints

from tokenmill_reader.errors import ValidationError
from tokenmill_reader.regular_files import read
from tokenmill_reader.shown import without_passwords

MANIFEST_FILE = "manifest.json"
CARD_FILE = "README.md"
"""The page about a dataset beside its manifest. It is made from the manifest, and may be edited: nothing checks it."""
DOCUMENTS_FOLDER = "documents"
"""The folder of the documents' own files in the dataset, since format 8."""
FORMAT_VERSION = 10
READ_VERSIONS = range(3, FORMAT_VERSION + 1)
"""The format versions that can be read; earlier ones lack the fields with a default."""

_MADE_AGAIN = "Delete the dataset's folder and run `tokenmill build`, or copy the dataset again."
_SHOWN_CHARACTERS_MAX = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_ID_TYPES = ("uint16", "uint32")

Convert = Callable[[Any, str], Any]
"""Turns a value at a place, such as `shards.3.n_bytes`, into the value of a field. Raises `WrongValueError`."""


class WrongValueError(ValidationError):
    """A value of JSON is not what was expected."""


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
    """How the documents are arranged in the file sets: parameters of `encode`. `pad_id`: the id that fills sequences up. `epochs`:
    the passes over each named source in the first split, as a fraction like "3/2". `min_parts`: the least number of parts of a set,
    or None. `source_ids`: whether the files have the numbers of the items' sources."""

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
    """The share of a named source in a split. `epochs`: the passes over it, as a fraction like "3/2"."""

    split: Optional[str]
    source: str
    epochs: str
    n_documents: int
    n_tokens: int


class Chat(NamedTuple):
    """How conversations became tokens. `n_trained`: the tokens that are to be learned. `turns`: "each" if a document is a sample
    for one trained message, else "together". `n_repeated`: the tokens of samples that a longer one of the conversation follows.
    `untrained`: the parts of answers that are not trained."""

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
    """What a manifest says. `engine`: the version of tokenmill that encoded. `begin_of_document_id`, `end_of_document_id`: the ids
    around each document, or None. `n_bad`: documents in the quarantine. `n_dropped`: documents left out by request, by reason.
    `source`: None with named sources. `packed`: the numbers of the packing, by split. `digest`: over all other fields."""

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
        documents = [DatasetFile(shard.name, shard.n_bytes, shard.sha256) for shard in self.shards]
        return documents + [file for file_set in self.sets for file in file_set.files] + self.blends

    def tokens_digest(self) -> str:
        """The digest of what the file sets are made from; see `tokens_digest`. The order of a shuffled set depends on it, so names
        are relative to the folder of documents, which earlier formats lacked."""
        above = "" if self.format_version < 8 else f"{DOCUMENTS_FOLDER}/"
        rule = 1 if self.format_version < 9 else 2
        names = (shard.name[len(above) :] if shard.name.startswith(above) else shard.name for shard in self.shards)
        digests = (shard.sha256 if rule == 1 else str(shard.tokens_sha256) for shard in self.shards)
        return tokens_digest(self.tokenizer_digest, zip(names, digests), rule)


def tokens_digest(tokenizer_digest: str, files: Iterable[tuple[str, str]], rule: int = 2) -> str:
    """The sha256, in hex, over a tokenizer's digest, and the name and digest of each file of documents. `rule`: 1 for digests of
    the files' bytes, as up to format 8; 2 for those of their documents."""
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
    """The manifest in values of JSON. `place`: names it in errors. Raises ValidationError for what is none."""
    try:
        form = _FORM(content, "").format_version
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
    """The `digest` of a manifest: the sha256 of the other fields as JSON without white space, with sorted keys."""
    others = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def wrong_names(names: Iterable[str]) -> Iterator[str]:
    """The names that lead out of the dataset's folder or into a git repository, occur twice, or have a NUL or a lone surrogate."""
    seen: set[str] = set()
    for name in names:
        paths = PurePosixPath(name.lower()), PurePath(name.lower())
        is_outside = any(path.anchor or {"..", ".git"} & {*path.parts} for path in paths)
        if name in seen or is_outside or re.search("[\0\ud800-\udfff]", name):
            yield name
        seen.add(name)


def refuse_wrong_names(manifest: Manifest, folder: Path) -> None:
    """Raises ValidationError if a file of the dataset would be outside its folder, or is there twice."""
    for name in wrong_names([dataset_file.name for dataset_file in manifest.dataset_files]):
        raise ValidationError(
            folder / MANIFEST_FILE,
            f"{name!r} is there twice, or is no name of a file in the dataset.",
            "Copy the dataset again, or run `tokenmill build --force`.",
        )


def dataset_above(folder: Path) -> Path | None:
    """The dataset around this folder, such as data/tokens for data/tokens/documents; None if there is none."""
    datasets = (
        parent
        for parent in folder.parents
        if (parent / DOCUMENTS_FOLDER).is_dir() and (parent / MANIFEST_FILE).exists()
    )
    return next(datasets, None)


def _clean(value: Any, place: str) -> str:
    return without_passwords(_text(value, place))  # which an earlier tokenmill wrote into manifests


def _passes(value: Any, place: str) -> str:
    """A number of passes over a source, as a fraction like "3/2"."""
    try:
        if Fraction(_text(value, place)) >= 0:
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


def _by_type(kind: Any) -> Convert:
    parts = get_args(kind)
    if get_origin(kind) is list:
        return _list_of(_by_type(parts[0]))
    if get_origin(kind) is dict:
        return _dict_of(_by_type(parts[1]))
    if get_origin(kind) is Union:
        return _optional(_by_type(parts[0]))
    return _OF_TYPES.get(kind) or _record(kind)


def _record(
    kind: type[Any],
    defaults: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    converts: Mapping[str, Convert] = MappingProxyType({}),
) -> Convert:
    """Converts an object of JSON to a NamedTuple by the types of its fields; other keys are left out. `defaults`: what makes the
    value of a field whose key may be missing. `converts`: how the fields are converted whose type does not say it."""
    fields = [
        (name, converts.get(name) or _by_type(type), defaults.get(name)) for name, type in get_type_hints(kind).items()
    ]

    def converted(value: Any, place: str) -> Any:
        _expect("an object", value, place, dict)
        values = []
        for name, convert, default in fields:
            place_of_field = f"{place}.{name}" if place else name
            if name in value:
                values.append(convert(value[name], place_of_field))
            elif default is None:
                raise WrongValueError(place_of_field, "missing.")
            else:
                values.append(default())
        return kind(*values)

    return converted


def _optional(convert: Convert) -> Convert:
    return lambda value, place: None if value is None else convert(value, place)


def _list_of(convert: Convert) -> Convert:
    def converted(value: Any, place: str) -> list[Any]:
        _expect("a list", value, place, list)
        return [convert(one, f"{place}.{i}") for i, one in enumerate(value)]

    return converted


def _dict_of(convert: Convert) -> Convert:
    """Converts an object with any keys."""

    def converted(value: Any, place: str) -> dict[str, Any]:
        _expect("an object", value, place, dict)
        return {_text(name, place): convert(one, f"{place}.{name}") for name, one in value.items()}

    return converted


def _whole(value: Any, place: str) -> int:
    types = [int] if type(value) is int and 0 <= value < 1 << 63 else []
    return int(_expect("a whole number from 0 to 2^63 - 1", value, place, *types))


def _number(value: Any, place: str) -> float:
    return float(_expect("a number", value, place, int, float))


def _text(value: Any, place: str) -> str:
    text = str(_expect("a string", value, place, str))
    if not text.isascii() and _SURROGATE.search(text):
        raise WrongValueError(place, f"expected text; found a lone surrogate in {ascii(text)[:_SHOWN_CHARACTERS_MAX]}.")
    return text


def _id_type(value: Any, place: str) -> str:
    if value not in _ID_TYPES:
        raise WrongValueError(place, f"expected {' or '.join(_ID_TYPES)}; found {value!r:.60}.")
    return str(value)


def _flag(value: Any, place: str) -> bool:
    return bool(_expect("true or false", value, place, bool))


def _expect(expected: str, value: Any, place: str, *types: type) -> Any:
    """The value, if it is of one of these types."""
    if type(value) in types:
        return value
    shown = {dict: "an object", list: "a list", type(None): "null"}.get(type(value))
    raise WrongValueError(place, f"expected {expected}; found {shown or repr(value)[:_SHOWN_CHARACTERS_MAX]}.")


_OF_TYPES: Mapping[Any, Convert] = {
    int: _whole,
    float: _number,
    str: _text,
    bool: _flag,
    Any: lambda value, _: value,
}


class _Form(NamedTuple):
    format_version: int


def _none() -> None:
    return None


_NUMBERS = _dict_of(_whole)
_PACK = _record(Pack, {"long": lambda: "split", "output": lambda: "rows", "pad": _none, "labels": lambda: False})
_FILES = _record(
    Files,
    {"epochs": dict, "min_parts": _none, "source_ids": lambda: False},
    {
        "shuffle": _optional(_record(Shuffle, {"epochs": lambda: 1})),
        "pack": _optional(_PACK),
        "epochs": _dict_of(_passes),
    },
)
_CHAT = _record(Chat, {"tool_use_template": _none, "turns": lambda: "together", "n_repeated": _none, "untrained": list})
_FORM = _record(_Form)
_MANIFEST = _record(
    Manifest,
    {
        "tokenizer_origin": _none,
        "begin_of_document_id": _none,
        "n_dropped": dict,
        "source": _none,
        "sources": list,
        "chat": _none,
        "tables": list,
        "files": _none,
        "sets": list,
        "packed": dict,
        "mixture": list,
        "blends": list,
        "digest": str,
    },
    {
        "tokenizer_origin": _optional(_dict_of(_optional(_clean))),
        "id_type": _id_type,
        "chat": _optional(_CHAT),
        "inputs": _list_of(_record(InputFile, {"source": _none})),
        "shards": _list_of(_record(DocumentsFile, {"tokens_sha256": _none})),
        "files": _optional(_FILES),
        "packed": _dict_of(_packing),
        "mixture": _list_of(_record(MixedSource, {}, {"epochs": _passes})),
    },
)
