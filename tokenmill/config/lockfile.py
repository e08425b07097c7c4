"""tokenmill.lock: pins the tokenizer and the code that a project is built with."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from tokenmill.config.publish_params import TokenizerSource
from tokenmill.config.record import Record
from tokenmill.errors import VersionsError, first_finding
from tokenmill.layout import LOCK_FILE, STAGES
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import read


def _is_stage(name: str) -> str:
    if name not in STAGES:
        raise ValueError(f"found {name!r}; allowed: {', '.join(map(repr, STAGES))}")
    return name


StageName = Annotated[str, AfterValidator(_is_stage)]


class Pin(Record):
    """The pinned tokenizer. `asked`: the section tokenizer of params.yaml for which it was pinned.

    `version`, `commit`: null for a file or a directory. `digest`: the digest of the tokenizer as a build uses it.
    `files_sha256`: the sha256 over the imported files. `chat_sha256`: over the chat template and the names of special tokens that
    a folder has beside tokenizer.json; null where there are none, and in the pin of an earlier tokenmill. `beside_sha256`: over
    the files beside tokenizer.json that may add tokens; null in the same cases.
    """

    asked: TokenizerSource
    version: str | None
    commit: str | None
    digest: str
    files_sha256: str
    chat_sha256: str | None = None
    beside_sha256: str | None = None


class Lock(Record):
    """The contents of tokenmill.lock. `tokenmill`: the version that has this code, for people.

    `code`: the digest of each stage's code, on which the project's dvc.yaml depends; null if dvc.yaml names the source folders
    themselves. `libraries`: the versions of the libraries that are in these digests; null in the lock of an earlier tokenmill.
    """

    tokenizer: Pin | None = Field(default=None)
    tokenmill: str | None = Field(default=None)
    code: dict[StageName, str] | None = Field(default=None)
    libraries: dict[str, str] | None = Field(default=None)


def read_lock(root: Path) -> Lock:
    """The contents of tokenmill.lock; an empty Lock if the file is missing. Raises VersionsError if it is malformed."""
    path = root / LOCK_FILE
    try:
        return Lock.model_validate_json(read(path))
    except FileNotFoundError:
        return Lock()
    except ValidationError as error:
        raise VersionsError(path, f"{first_finding(error)}.", "Restore it from git.") from None


def write_lock(root: Path, lock: Lock) -> None:
    """Writes tokenmill.lock."""
    unused = {"tokenmill", "code", "libraries"} if lock.code is None else None
    with write_atomic(root / LOCK_FILE) as path:
        path.write_text(lock.model_dump_json(indent=1, by_alias=True, exclude=unused) + "\n", encoding="utf-8")


def read_pin(root: Path) -> Pin | None:
    """The pinned tokenizer; None if none is pinned. Raises VersionsError if the file is malformed."""
    return read_lock(root).tokenizer


def pinned(root: Path, wanted: TokenizerSource) -> Pin:
    """The pin of the tokenizer that params.yaml asks for. Raises VersionsError if tokenmill.lock pins none or another one."""
    pin = read_pin(root)
    if pin is None or pin.asked != wanted:
        found = "nothing" if pin is None else words_for(pin.asked)
        raise VersionsError(
            LOCK_FILE,
            f"params.yaml asks for {words_for(wanted)}, but {found} is pinned.",
            f"Run `tokenmill build` or `tokenmill pin`, and commit {LOCK_FILE}.",
        )
    return pin


def write_pin(root: Path, pin: Pin | None) -> None:
    """Pins a tokenizer in tokenmill.lock. None: the project imports no tokenizer."""
    write_lock(root, read_lock(root).model_copy(update={"tokenizer": pin}))


def words_for(asked: TokenizerSource) -> str:
    """The requested tokenizer as text for a message."""
    return asked.from_ if asked.name is None else f"{asked.name}@{asked.version} from {asked.from_}"
