"""Small GGUF files, whose fields may be of any type."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenmill.features.convert.formats.gguf import ARRAY, FLOAT32, INT32, STRING, _file

Field = tuple[int, Any]
"""A type and a value. That of a list is the type of its values, and these."""
FIELDS: dict[str, Field] = {
    "tokenizer.ggml.model": (STRING, "llama"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, ["<unk>", "<s>", "a", "b"])),
    "tokenizer.ggml.token_type": (ARRAY, (INT32, [2, 3, 1, 1])),
    "tokenizer.ggml.scores": (ARRAY, (FLOAT32, [0.0, 0.0, -1.0, -2.0])),
    "tokenizer.ggml.merges": (ARRAY, (STRING, [])),
    "tokenizer.ggml.pre": (STRING, "gpt-2"),
}


def gguf_file(path: Path, changes: Mapping[str, Field | None]) -> Path:
    """A GGUF of four pieces with some of its fields changed; None leaves one out."""
    changed = FIELDS | {f"tokenizer.{key}": value for key, value in changes.items()}
    path.write_bytes(b"".join(_file({key: value for key, value in changed.items() if value is not None})))
    return path
