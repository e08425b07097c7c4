"""Imports a foreign tokenizer, and checks that it is the pinned one."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenmill.artifacts.golden import GOLDEN_FILE, check_golden, first_difference, write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.model_card import CARD_FILE, make_card, write_card
from tokenmill.config.lockfile import Pin, read_pin, words_for, write_pin
from tokenmill.config.publish_params import TokenizerSource
from tokenmill.console import say
from tokenmill.errors import TokenizerError, VersionsError
from tokenmill.layout import LOCK_FILE, TOKENIZER_DIRECTORY
from tokenmill.quantities import number_of
from tokenmill.storage.atomic import sha256_directory, write_directory
from tokenmill.storage.followed import followed, refuse_links
from tokenmill.tokenizer.beside import write_beside
from tokenmill.tokenizer.chat_files import DEFAULT, chat_of, copy_chat_files
from tokenmill.tokenizer.folder_copy import copy_folder
from tokenmill.tokenizer.formats.files import file_of
from tokenmill.tokenizer.formats.folder import FOLDER_FILES, changes, content_of, with_folder
from tokenmill.tokenizer.formats.schema import read_document
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning.registry import Reference, Version, fetch_tokenizer, find_version
from tokenmill_reader.regular_files import read, sha256_file


def pin_if_new(root: Path, source: TokenizerSource) -> Pin:
    """The pin of the tokenizer that params.yaml asks for. Pins it now unless tokenmill.lock already has its pin."""
    pin = read_pin(root)
    if pin is not None and pin.asked == source:
        return pin
    if source.name is not None:
        return pin_anew(root, source)
    source_path = _source(root, source)  # the build's import checks the rest
    return _pin(root, source, None, _load(source_path, source), _files_sha256(source_path))


def pin_anew(root: Path, source: TokenizerSource) -> Pin:
    """Looks up the tokenizer that params.yaml asks for, and pins it in tokenmill.lock if it can be imported.

    Raises VersionsError, TokenizerError, PatternError."""
    with _folder_for(source) as directory:
        version, files_sha256, tokenizer = _fetch_or_copy(root, source, None, directory)
    return _pin(root, source, version, tokenizer, files_sha256)


def look_at(root: Path, source: TokenizerSource, directory: Path) -> tuple[Tokenizer, Path] | None:
    """The tokenizer that an import would give, and the folder with its chat files: its own, or `directory` after an import into it.

    None if a published version is asked for that is not pinned yet. Raises what an import raises."""
    pin, source_path, there = read_pin(root), _source(root, source), root / TOKENIZER_DIRECTORY
    is_pinned = pin is not None and pin.asked == source
    if pin is not None and is_pinned and there.is_dir() and sha256_directory(there) == pin.files_sha256:
        return Tokenizer.load(there), there
    if source.name is None and source_path.exists():
        return _load(
            source_path, source
        ), source_path if source_path.is_dir() else directory  # a single file has no other files
    if pin is None or not is_pinned:
        return None
    if source.name is None and there.is_dir() and (tokenizer := Tokenizer.load(there)).digest == pin.digest:
        return tokenizer, there
    return import_pinned(root, pin, directory), directory


def _pin(root: Path, source: TokenizerSource, version: Version | None, tokenizer: Tokenizer, files_sha256: str) -> Pin:
    pin = Pin(
        asked=source,
        version=None if version is None else version.version,
        commit=None if version is None else version.commit,
        digest=tokenizer.digest,
        files_sha256=files_sha256,
        chat_sha256=_chat_sha256(root, source),
        beside_sha256=_beside_sha256(root, source),
    )
    write_pin(root, pin)
    return pin


def import_pinned(root: Path, pin: Pin, directory: Path) -> Tokenizer:
    """Imports the pinned tokenizer into `directory`, replacing its contents. Raises VersionsError if it is not the pinned one."""
    with _imported(root, pin) as (imported, tokenizer):
        if pin.asked.name is not None or _is_ours(
            _source(root, pin.asked)
        ):  # the vectors of any other were made just now
            check_golden(imported, tokenizer)
        with write_directory(directory) as partial:
            copy_folder(imported, partial)
    return tokenizer


def import_asked(root: Path, source: TokenizerSource, directory: Path) -> Tokenizer:
    """Imports the tokenizer that a build would import into `directory`, and pins nothing: the pinned one, or else the one that
    params.yaml asks for. Raises VersionsError, TokenizerError, PatternError."""
    pin = read_pin(root)
    if pin is not None and pin.asked == source:
        return import_pinned(root, pin, directory)
    with _folder_for(source) as imported:
        tokenizer = _fetch_or_copy(root, source, None, imported)[2]
        with write_directory(directory) as partial:
            copy_folder(imported, partial)
    return tokenizer


def check_pinned(root: Path, pin: Pin) -> None:
    """Raises VersionsError if the source now has another tokenizer than the pinned one, TokenizerError if it has none."""
    with _imported(root, pin):
        return


def refuse_changed(root: Path, pin: Pin) -> None:
    """Raises what `check_pinned` raises if the pinned file or directory has changed. A missing one does not count as changed,
    because only a new import needs it. Published versions do not change."""
    if pin.asked.name is not None:
        return
    source = _source(root, pin.asked)
    if not source.exists():
        return
    try:
        is_same = (
            _files_sha256(source) == pin.files_sha256
            and pin.chat_sha256 in (None, _chat_sha256(root, pin.asked))
            and _beside_is_same(root, pin)
        )
    except FileNotFoundError:  # a directory without its tokenizer.json
        is_same = False
    if not is_same:
        check_pinned(root, pin)


@contextmanager
def _imported(root: Path, pin: Pin) -> Iterator[tuple[Path, Tokenizer]]:
    with _folder_for(pin.asked) as directory:
        _version, files_sha256, tokenizer = _fetch_or_copy(root, pin.asked, pin, directory)
        for what, value, expected in (
            ("digest", tokenizer.digest, pin.digest),
            ("sha256 over its files", files_sha256, pin.files_sha256),
            ("sha256 of its chat template and names of special tokens", _chat_sha256(root, pin.asked), pin.chat_sha256),
        ):
            if value != expected and expected is not None:
                raise VersionsError(
                    words_for(pin.asked),
                    f"is not the tokenizer that {LOCK_FILE} pins: expected the {what} {expected}; found {value}.",
                    "To use it anyway, run `tokenmill pin`; all documents are then encoded again.",
                    code="TM405",
                )
        yield directory, tokenizer


@contextmanager
def _folder_for(source: TokenizerSource) -> Iterator[Path]:
    """Yields a temporary folder for the tokenizer's files. Errors about them name their origin."""
    with TemporaryDirectory(prefix="tokenmill-") as folder:
        directory = Path(folder) / "tokenizer"
        try:
            yield directory
        except TokenizerError as error:
            parts = (error.where, error.what, error.fix)
            raise TokenizerError(*(part.replace(str(directory), words_for(source)) for part in parts)) from None


def _fetch_or_copy(
    root: Path, source: TokenizerSource, pin: Pin | None, directory: Path
) -> tuple[Version | None, str, Tokenizer]:
    """Fills `directory` with the requested tokenizer. Gives its version, the sha256 over the imported files, and the tokenizer."""
    if source.name is None or source.version is None:
        return None, *_adopt(_source(root, source), source, directory)
    version = find_version(source.from_, Reference(source.name, (pin and pin.version) or source.version), root)
    if pin is not None and version.commit != pin.commit:
        raise VersionsError(
            f"{version} from {source.from_}: the tag was moved to the commit {version.commit}; {LOCK_FILE} pins {pin.commit}.",
            code="TM405",
        )
    fetch_tokenizer(version, directory)
    return version, sha256_directory(directory), Tokenizer.load(directory)


def _adopt(source_path: Path, source: TokenizerSource, directory: Path) -> tuple[str, Tokenizer]:
    """Copies a tokenizer that tokenmill made. Any other is saved again, with golden vectors and a model card."""
    if _is_ours(source_path):
        with write_directory(directory) as partial:
            copy_folder(source_path, partial)
        return sha256_directory(source_path), Tokenizer.load(directory)
    original = _load(source_path, source)
    if source_path.is_dir():
        _tell_changes(source_path)
    with write_directory(directory) as partial:
        original.save(partial)
        if source_path.is_dir():
            copy_chat_files(source_path, partial)
        tokenizer = Tokenizer.load(partial)
        golden = make_golden(partial, tokenizer, {})
        if different := first_difference(original.encode, golden.vectors):
            raise TokenizerError(source_path, f"a tokenizer.json made from this file gives other ids: {different}")
        write_golden(golden, partial)
        write_card(make_card(tokenizer, golden, None, None, origin=source.from_), partial)
        write_beside(partial)
    return _files_sha256(source_path), tokenizer


def _tell_changes(source: Path) -> None:
    """Prints how the other files of a folder change its tokenizer.json."""
    file = file_of(source)
    document = read_document(read(file), str(file))
    tokens, sections = changes(document, with_folder(document, source))
    if tokens:
        say(
            f"{source.name}: the files beside tokenizer.json add or change {number_of(len(tokens), 'token')}: "
            f"{', '.join(tokens[:10])}"
        )
    if sections:
        say(
            f"{source.name}: transformers' class for this tokenizer replaces these parts of tokenizer.json, and so does tokenmill: "
            f"{', '.join(sections)}"
        )


def _load(source: Path, asked: TokenizerSource) -> Tokenizer:
    if _is_ours(source):
        return Tokenizer.load(source)
    return Tokenizer.load(source, asked.pattern, asked.special_tokens)


def _source(root: Path, asked: TokenizerSource) -> Path:
    return root / Path(asked.from_).expanduser()


def _is_ours(source: Path) -> bool:
    return (source / CARD_FILE).is_file() and (source / GOLDEN_FILE).is_file()


def _files_sha256(source: Path) -> str:
    """The sha256 over the files that an import of this file or directory copies."""
    if _is_ours(source):
        refuse_links(source)
        return sha256_directory(source)
    return sha256_file(file_of(source))


def _chat_sha256(root: Path, asked: TokenizerSource) -> str | None:
    """The sha256 of the chat files that an import takes from a folder; None if there are none, or tokenmill made the folder, whose
    files have a digest."""
    if asked.name is not None or not (source := _source(root, asked)).is_dir() or _is_ours(source):
        return None
    templates, names = chat_of(source)
    if not templates and not names:
        return None
    only = (
        templates.get(DEFAULT) if templates.keys() <= {DEFAULT} else templates
    )  # as in the pins of an earlier tokenmill
    return hashlib.sha256(json.dumps((only, names)).encode()).hexdigest()


def _beside_sha256(root: Path, asked: TokenizerSource) -> str | None:
    """The sha256 over the files beside a folder's tokenizer.json that may add tokens; None if there are none."""
    if asked.name is not None or not (source := _source(root, asked)).is_dir() or _is_ours(source):
        return None
    files = {name: sha256_file(followed(source, name)) for name in FOLDER_FILES if (source / name).is_file()}
    return hashlib.sha256(json.dumps(files).encode()).hexdigest() if files else None


def _beside_is_same(root: Path, pin: Pin) -> bool:
    """Whether these files are the pinned ones. If an earlier tokenmill pinned, files that add nothing count as the same."""
    if pin.beside_sha256 is not None:
        return pin.beside_sha256 == _beside_sha256(root, pin.asked)
    source = _source(root, pin.asked)
    return not source.is_dir() or _is_ours(source) or content_of(source) == read(file_of(source))
