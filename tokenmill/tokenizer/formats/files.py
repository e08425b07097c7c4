"""Reads the file of a tokenizer, and checks the files beside it."""

import difflib
import os
import re
from pathlib import Path

from tokenmill.errors import TokenizerError
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.formats.other_kinds import CONVERT, refuse_mark, refuse_other
from tokenmill.tokenizer.formats.strict_json import parse
from tokenmill_reader.regular_files import read

_CODE = ("tokenizer.py", "tokenization*.py", "tokenizer*.pkl", "tokenizer*.pickle")
_CONFIG = "tokenizer_config.json"
_OTHERS = re.compile(r"vocab\.json|merges\.txt|tekken.*\.json|.*\.(model|gguf)")
_SAVE = "Of vocab.txt, save_pretrained of transformers writes a tokenizer.json with all tokens."
_PROTOBUF = b"\n"
"""The first byte of a SentencePiece model: its first field is a piece."""
_HEAD_BYTES = 4096


def file_of(path: Path) -> Path:
    """The file of a tokenizer, given its own path or the path of its directory. Raises StorageError for a link that leads out of
    the directory."""
    return followed(path, "tokenizer.json") if os.path.isdir(path) else path  # noqa: PTH112 — False for an invalid path


def read_tokenizer_file(file: Path) -> bytes:
    """The bytes of the file. Raises TokenizerError if the file is missing, too large or a pointer, or if code lies beside it."""
    try:
        if file.exists() and not file.is_file():
            raise TokenizerError(file.absolute(), "expected a file; found something else.")
        content = read(file)
    except FileNotFoundError:
        place = file.absolute()
        parent = next((parent for parent in place.parents if parent.is_dir()), place.parent)
        names = sorted(entry.name for entry in parent.iterdir()) if parent.is_dir() else []
        near = difflib.get_close_matches(place.name, names, n=3, cutoff=0.4) or names[:3]
        hint = f" Nearest there: {', '.join(near)}." if near else ""
        if place.name == "tokenizer.json" and (other := [name for name in names if _OTHERS.fullmatch(name)]):
            hint = f" There is {' and '.join(other)}. {CONVERT.format(parent)}"
        elif place.name == "tokenizer.json" and (ranks := [name for name in names if name.endswith(".tiktoken")]):
            hint = (
                f" Name {parent / ranks[0]} itself, with pattern= (--pattern) and the special tokens, which it lacks."
            )
        elif place.name == "tokenizer.json" and "vocab.txt" in names:
            hint = f" {_SAVE}"
        if place.name == "tokenizer.json" and "manifest.json" in names:
            hint = f" This is a token dataset. Name the folder of its tokenizer, such as {parent.parent / 'tokenizer'}."
        if "@" in place.name:
            hint += " Fetch a published version with `tokenmill fetch`, and name its folder."
        raise TokenizerError(place, f"there is no such file; {parent} is there.", hint) from None
    except OSError as error:
        raise TokenizerError(f"{file.absolute()!s:.200}", f"cannot be read: {error.strerror}.") from None
    except ValueError as error:  # the path has a NUL or a lone surrogate
        raise TokenizerError(f"{str(file)!r:.200}", f"not a valid path: {error}.") from None
    refuse_other(file.absolute(), content, "text" if file.suffix == ".tiktoken" else "JSON")
    refuse_mark(file.absolute(), content)
    _check_kind(file, content)
    _check_beside(file)
    return content


def _check_kind(file: Path, content: bytes) -> None:
    """Raises TokenizerError for a file of another kind that is called a tokenizer elsewhere."""
    if file.name == "vocab.txt":
        raise TokenizerError(file, "has tokens alone; expected a tokenizer.json.", _SAVE)
    if file.name == "merges.txt":
        raise TokenizerError(file, "has merges alone; expected a tokenizer.json.", CONVERT.format(file.parent))
    if content.startswith(_PROTOBUF) and (file.suffix == ".model" or b"<unk>" in content[:_HEAD_BYTES]):
        raise TokenizerError(file, "is a SentencePiece model; expected a tokenizer.json.", CONVERT.format(file))


def _check_beside(file: Path) -> None:
    """Raises TokenizerError for code beside a tokenizer. A library that runs the code may give other ids than the file alone."""
    hint = f"tokenmill runs no code of a tokenizer. If {file.name} alone is what you want, copy it into a folder of its own."
    for pattern in _CODE:
        for code in sorted(file.parent.glob(pattern)):
            raise TokenizerError(code, f"there is code beside the tokenizer; {hint}")
    config = followed(file.parent, _CONFIG)
    if config.is_file():
        try:
            content = read(config)
        except OSError as error:
            raise TokenizerError(config, f"cannot be read: {error.strerror}.") from None
        if "auto_map" in parse(content, str(config)):
            raise TokenizerError(f"{config}: auto_map", f"names code to run; {hint}")
