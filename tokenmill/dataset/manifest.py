"""The manifest beside a token dataset: what it was made from, what it holds, how to check it."""

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import tokenmill
from tokenmill import _core
from tokenmill.errors import ValidationError as DatasetError
from tokenmill.errors import first_finding
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.storage.atomic import read, write_atomic

MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 3


class _Record(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Form(BaseModel):
    """What a manifest of every format says."""

    format_version: int


class InputShard(_Record):
    """An input file as it was when it was encoded; `name` is seen from the project's folder."""

    name: str
    n_bytes: int
    sha256: str


class InputRows(_Record):
    """Documents of the input file `name`, from row `first_row` on, which is line `first_line` of a .jsonl (1 of any other).
    `n_bad`: those among them that are in the quarantine; null: the file is damaged, and all from `first_row` on in this unit
    are."""

    name: str
    first_row: int
    first_line: int
    n_documents: int
    n_bad: int | None


class OutputShard(_Record):
    """A file of the dataset; `name` is seen from the dataset's folder. `unit`: the key of its unit in the unit store.
    `text_bytes` are of UTF-8 text. `rows`: the documents that its rows hold, in order."""

    name: str
    unit: str
    n_bytes: int
    sha256: str
    n_documents: int
    n_tokens: int
    text_bytes: int
    rows: list[InputRows]


class Origin(_Record):
    """Where a tokenizer that was not trained here was taken from; `version` and `commit` are null for a file."""

    source: str
    name: str | None
    version: str | None
    commit: str | None


class Manifest(_Record):
    """What ties a token dataset together (all digests are sha256 in hex)."""

    format_version: int = Field(default=FORMAT_VERSION)
    engine: str = Field(description="version of tokenmill and of the core's sources that encoded")
    tokenizer_digest: str
    tokenizer_origin: Origin | None = Field(default=None, description="null for a tokenizer that was trained here")
    params_digest: str = Field(description="over the parameters that the dataset's bytes depend on")
    id_type: str = Field(description="uint16 or uint32")
    id_max: int = Field(description="largest id of the tokenizer")
    end_of_document_id: int | None
    special_tokens_in_text: SpecialTokensInText
    n_documents: int
    n_tokens: int
    text_bytes: int
    n_bad: int = Field(description="documents in the quarantine, but for those of damaged input files")
    quarantine_sha256: str = Field(description="of data/quarantine/quarantine.parquet")
    inputs: list[InputShard]
    shards: list[OutputShard]


def engine_version() -> str:
    """The version of tokenmill with the digest of the core's sources."""
    return f"tokenmill {tokenmill.__version__}, core {_core.SOURCE_HASH[:16]}"


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Writes manifest.json; the same manifest gives the same bytes."""
    with write_atomic(directory / MANIFEST_FILE) as path:
        path.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a dataset. Raises ValidationError (of tokenmill.errors) when it is missing or malformed."""
    return read_manifest_file(directory / MANIFEST_FILE)


def read_manifest_file(path: Path) -> Manifest:
    """The same of a manifest under another name, as DVC's cache has it."""
    try:
        content = read(path)
    except FileNotFoundError:
        raise DatasetError(f"{path}: missing. Run `tokenmill build` to make the dataset.") from None
    return parse_manifest(content, str(path))


def parse_manifest(content: bytes, place: str) -> Manifest:
    """The manifest with this content. Raises ValidationError (of tokenmill.errors), which begins with `place`."""
    try:
        form = _Form.model_validate_json(content).format_version
        if form == FORMAT_VERSION:
            return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise DatasetError(
            f"{place}: {first_finding(error)}. Delete the dataset's folder and run `tokenmill build`."
        ) from None
    age = "an older" if form < FORMAT_VERSION else "a newer"
    raise DatasetError(
        f"{place}: format_version: found {form}, expected {FORMAT_VERSION}: {age} tokenmill made this dataset. "
        "Run `tokenmill build --force` to make it anew, or read it with the version that made it."
    )
