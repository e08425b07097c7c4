"""Refuses files of tokenizers that are of another kind than is read."""

import re
from codecs import BOM_UTF8
from pathlib import Path

from tokenmill.errors import TokenizerError
from tokenmill.storage.contents import content_of

CONVERT = "Make a tokenizer.json of it once: tokenmill convert {} NEW_FOLDER. Then name NEW_FOLDER."
_RANK = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")


def refuse_other(place: str | Path, content: bytes, expected: str) -> None:
    """Raises TokenizerError if a file with these bytes, of which the first ones tell, plainly is no `expected`: "JSON", "text",
    "a SentencePiece model" or "a GGUF file"."""
    kind = content_of(content)
    if kind is not None and kind.is_pointer:
        raise TokenizerError(place, f"is {kind.what}.", kind.fix, code="TM214")
    if expected != "text" and _RANK.match(content):  # as the tokenizer.model of Llama 3
        raise TokenizerError(
            place,
            "is a vocabulary of tiktoken: each line has a token in base64 and its id.",
            "Copy it to a file whose name ends with .tiktoken, and give pattern= (--pattern).",
        )
    if kind is None or kind.what == expected or (kind.name == "text" and expected in ("JSON", "text")):
        return
    fix = kind.fix or (CONVERT.format("FILE") if kind.name == "gguf" else "Fetch the file again.")
    raise TokenizerError(place, f"is {kind.what}; expected {expected}.", fix)


def refuse_mark(place: str | Path, content: bytes) -> None:
    """Raises TokenizerError for a text with a byte order mark at its beginning, which other programs do not read."""
    if content.startswith(BOM_UTF8):
        fix = "Remove its first three bytes: `tail -c +4 FILE > NEW_FILE`."
        raise TokenizerError(place, "begins with a byte order mark, with which other programs do not read it.", fix)
