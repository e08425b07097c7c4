"""The manifest of a token dataset: its inputs, its contents, and the digests to check them."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel, Field, ValidationError

import tokenmill
from tokenmill import _core
from tokenmill.config.record import Record
from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.units import source_folder
from tokenmill.dataset.entries import (
    ChatEntry,
    Files,
    FileSet,
    InputShard,
    MixedSource,
    Origin,
    OutputShard,
    ReadingEntry,
    SourceEntry,
    TableFile,
)
from tokenmill.dataset.readings import source_of
from tokenmill.errors import ValidationError as DatasetError
from tokenmill.errors import first_finding
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.manifest import (
    DOCUMENTS_FOLDER,
    FORMAT_VERSION,
    MANIFEST_FILE,
    READ_VERSIONS,
    dataset_above,
    tokens_digest,
)
from tokenmill_reader.regular_files import read

_SINCE_5 = ("files", "sets", "packed", "blends", "sources")


class _Form(BaseModel):
    """The only field that manifests of all format versions have."""

    format_version: int


class _Layout(NamedTuple):
    """A JSON layout: sorted keys on one line, or one value per line."""

    encoder: json.JSONEncoder
    is_sorted: bool
    colon: str

    def line(self, depth: int) -> str:
        """The line break and indentation before a value at this depth; empty on one line."""
        return "" if self.is_sorted else "\n" + " " * depth

    def key(self, name: str) -> str:
        """The name of a field and its colon."""
        return f'"{name}"{self.colon}'

    def value(self, value: object, depth: int) -> str:
        """The JSON of a value, indented for this depth. JSON strings contain no line feeds, so replacing them is safe."""
        text = self.encoder.encode(value)  # which takes five times as long to indent
        return text if self.is_sorted else msgspec.json.format(text, indent=1).replace("\n", self.line(depth))


_CANONICAL = _Layout(json.JSONEncoder(sort_keys=True, separators=(",", ":")), is_sorted=True, colon=":")
_INDENTED = _Layout(json.JSONEncoder(ensure_ascii=False), is_sorted=False, colon=": ")


class Manifest(Record):
    """The manifest of a token dataset. All digests are sha256 in hex."""

    format_version: int = Field(default=FORMAT_VERSION)
    engine: str = Field(description="version of tokenmill and of the core's sources that encoded")
    tokenizer_digest: str
    tokenizer_origin: Origin | None = Field(default=None, description="null for a tokenizer that was trained here")
    tokenizer_files: list[TableFile] = Field(
        default=[], description="the files of data/tokenizer; empty up to format 9"
    )
    params_digest: str = Field(description="over the parameters that the dataset's bytes depend on")
    id_type: str = Field(pattern="^uint(16|32)$", description="uint16 or uint32")
    id_max: int = Field(description="largest id of the tokenizer")
    begin_of_document_id: int | None = Field(default=None, description="the id that begins each document")
    end_of_document_id: int | None
    special_tokens_in_text: SpecialTokensInText = Field(description="named sources have their own")
    n_documents: int
    n_tokens: int
    text_bytes: int
    n_bad: int = Field(description="documents in the quarantine; those of damaged input files are not counted")
    n_dropped: dict[str, int] = Field(default={}, description="documents that filters left out, by reason")
    filters: dict[str, Any] = Field(
        default={}, description="the filters that left documents out, with their values; not there without"
    )
    filter_packages: dict[str, str] = Field(
        default={}, description="name and version of the package that added a filter; not there without"
    )
    quarantine_sha256: str = Field(description="of data/quarantine/quarantine.parquet")
    source: ReadingEntry | None = Field(
        default=None, description="how documents were read; null with named sources, and in format 3"
    )
    sources: list[SourceEntry] = Field(default=[], description="the named sources; empty without")
    chat: ChatEntry | None = Field(
        default=None, description="how conversations became tokens; not there in a dataset of texts"
    )
    tables: list[TableFile] = Field(default=[], description="the files of data/tables; empty in format 3")
    inputs: list[InputShard]
    shards: list[OutputShard]
    files: Files | None = Field(default=None, description="how the file sets are arranged; null without file sets")
    sets: list[FileSet] = Field(
        default=[], description="the files that training jobs read, beside the documents' Parquet"
    )
    packed: dict[str, dict[str, int]] = Field(default={}, description="the numbers of the packing, by split")
    mixture: list[MixedSource] = Field(
        default=[], description="what the sets have of each source; not there without named sources and sets"
    )
    blends: list[TableFile] = Field(default=[], description="files that say to trainers how named sources are mixed")
    digest: str = Field(default="", description="sha256 over all other fields; empty in format 3")

    def own_digest(self) -> str:
        """The expected `digest`: the sha256, in hex, of the other fields as JSON without white space, with sorted keys."""
        digest = hashlib.sha256()
        for text in self._pieces(_CANONICAL, without=("digest",)):
            digest.update(text.encode())
        return digest.hexdigest()

    def tokens_digest(self) -> str:
        """The sha256, in hex, of what the file sets are made from: the tokenizer's digest, and name and digest of each file of
        documents. The order of a shuffled set depends on it, so names are relative to the folder of documents, which earlier
        formats lacked. Up to format 8 the digests are those of the files' bytes."""
        if self.format_version < 9:
            return tokens_digest(
                self.tokenizer_digest, ((name, shard.sha256) for name, shard in self.outputs()), rule=1
            )
        return tokens_digest(
            self.tokenizer_digest, ((name, str(shard.tokens_sha256)) for name, shard in self.outputs())
        )

    def outputs(self) -> list[tuple[str, OutputShard]]:
        """The entries of the documents' own files in order, each with its name below their folder: the `output` of its unit."""
        above = "" if self.format_version < 8 else f"{DOCUMENTS_FOLDER}/"
        return [(shard.name.removeprefix(above), shard) for shard in self.shards]

    def names(self) -> list[str]:
        """The names of all files of the dataset except the manifest, relative to its folder."""
        return [shard.name for shard in self.shards] + [file.name for file in self.set_files()]

    def set_files(self) -> list[TableFile]:
        """All files of the file sets, and the blend files."""
        return [file for file_set in self.sets for file in file_set.files] + self.blends

    def as_json(self) -> str:
        """The text of manifest.json."""
        return "".join(self.pieces_of_json())

    def pieces_of_json(self) -> Iterator[str]:
        """The text of manifest.json in pieces, because a dump of the whole takes several kB of memory per unit."""
        yield from self._pieces(_INDENTED)
        yield "\n"

    def _pieces(self, layout: "_Layout", without: Sequence[str] = ()) -> Iterator[str]:
        """The JSON of all fields but `without`, in pieces: one for each input, shard and other field."""
        left_out = self._not_written() | dict.fromkeys(without, True)
        lists: dict[str, Sequence[Record]] = {"inputs": self.inputs, "shards": self.shards}
        fields = self.model_dump(mode="json", exclude=left_out | dict.fromkeys(lists, True))
        names = [name for name in type(self).model_fields if name in fields or name in lists]
        for i, name in enumerate(sorted(names) if layout.is_sorted else names):
            yield f"{',' if i else '{'}{layout.line(1)}{layout.key(name)}"
            if not lists.get(name):
                yield layout.value(fields.get(name, []), 1)
                continue
            item_left_out = left_out.get(name, {}).get("__all__")
            for j, item in enumerate(lists[name]):
                yield f"{',' if j else '['}{layout.line(2)}"
                yield layout.value(item.model_dump(mode="json", exclude=item_left_out), 2)
            yield f"{layout.line(1)}]"
        yield f"{layout.line(0)}}}"

    def _not_written(self) -> dict[str, Any]:
        """The fields that manifest.json leaves out, in the form of pydantic's `exclude`."""
        left_out: dict[str, Any] = {} if self.sources else {"inputs": {"__all__": {"source"}}}
        left_out |= {name: True for name in ("filters", "filter_packages", "mixture") if not getattr(self, name)}
        if self.format_version < 10:
            left_out["tokenizer_files"] = True
        of_shards: dict[str, Any] = {"tokens_sha256": True} if self.format_version < 9 else {}
        if self.chat is None:
            left_out["chat"] = True
            of_shards |= {"n_trained": True, "answers": True}
        else:
            left_out["chat"] = self.chat.not_written()
            if self.chat.answers is None:
                of_shards["answers"] = True
        if self.chat is None or self.chat.turns == "together":
            of_shards["rows"] = {"__all__": {"n_samples"}}
        left_out["shards"] = {"__all__": of_shards}
        if self.source is not None:
            left_out["source"] = self.source.not_written()
        if self.files is not None:
            left_out["files"] = self.files.not_written()
        if self.sources:
            left_out["sources"] = {i: one.not_written() for i, one in enumerate(self.sources)}
        return left_out | (dict.fromkeys(_SINCE_5, True) if self.format_version < 5 else {})

    @property
    def has_mask(self) -> bool:
        """Whether its documents are conversations, whose tokens have a loss mask."""
        return self.chat is not None

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; otherwise their ids are rows."""
        readings = [*self.sources, *([] if self.source is None else [self.source])]
        return any(reading.id_column is not None for reading in readings)

    @property
    def kept_columns(self) -> list[str]:
        """The columns of input files that the document index keeps, of all sources."""
        readings = [*self.sources, *([] if self.source is None else [self.source])]
        return list(dict.fromkeys(name for reading in readings for name in reading.keep_columns))

    def document_sources(self) -> dict[str, DocumentSource]:
        """The source of each input file, by the file's name; empty for format 3, which does not record it."""
        if self.sources:
            named = {
                one.name: source_of(one, one.name, one.special_tokens_in_text, one.epochs, one.tokens)
                for one in self.sources
            }
            return {
                input_file.name: named[input_file.source] for input_file in self.inputs if input_file.source in named
            }
        if self.source is None:
            return {}
        source = source_of(self.source, None, self.special_tokens_in_text, epochs=1.0, tokens=None)
        return {input_file.name: source for input_file in self.inputs}

    def policies(self) -> dict[str, SpecialTokensInText]:
        """How texts of special tokens were treated in each input file, by its name."""
        named = {one.name: one.special_tokens_in_text for one in self.sources}
        return {
            input_file.name: named.get(input_file.source or "", self.special_tokens_in_text)
            for input_file in self.inputs
        }

    def source_names(self) -> dict[str, str]:
        """The name under which each input file is counted: its source's, or else its folder in data/raw."""
        return {input_file.name: input_file.source or source_folder(input_file.name) for input_file in self.inputs}


def engine_version() -> str:
    """The version of tokenmill with the digest of the core's code."""
    return f"tokenmill {tokenmill.__version__}, core {_core.CODE_HASH[:16]}"


def write_manifest(manifest: Manifest, directory: Path) -> Manifest:
    """Writes manifest.json, and returns the manifest with its digest. The same manifest gives the same bytes."""
    whole = manifest.model_copy(update={"digest": manifest.own_digest()})
    with write_atomic(directory / MANIFEST_FILE) as path, path.open("w", encoding="utf-8") as file:
        file.writelines(whole.pieces_of_json())
    return whole


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a dataset. Raises ValidationError (of tokenmill.errors) if it is missing or malformed."""
    return read_manifest_file(directory / MANIFEST_FILE)


def read_manifest_file(path: Path) -> Manifest:
    """The manifest in a file of any name, such as one in DVC's cache. Raises the same errors as `read_manifest`."""
    try:
        content = read(path)
    except FileNotFoundError:
        if whole := dataset_above(path.parent):
            raise DatasetError(f"{path.parent}: is a folder inside the dataset {whole}. Name that one.") from None
        raise DatasetError(f"{path}: missing. Run `tokenmill build` to make the dataset.") from None
    return parse_manifest(content, str(path))


def parse_manifest(content: bytes, place: str) -> Manifest:
    """Parses the content of a manifest. Raises a ValidationError (of tokenmill.errors) that begins with `place`."""
    try:
        form = _Form.model_validate_json(content).format_version
        if form in READ_VERSIONS:
            return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise DatasetError(
            f"{place}: {first_finding(error)}. Delete the dataset's folder and run `tokenmill build`."
        ) from None
    age = "an older" if form < FORMAT_VERSION else "a newer"
    raise DatasetError(
        f"{place}: format_version: found {form}, expected {READ_VERSIONS[0]} to {FORMAT_VERSION}: {age} tokenmill made this "
        "dataset. Run `tokenmill build --force` to build it again, or read it with the version of tokenmill that made it."
    )
