"""Reads the model of a tokenizer from its file, or from a folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import BeyondCore
from tokenmill.tokenizer.formats import tiktoken_file, tokenizer_json
from tokenmill.tokenizer.formats.files import file_of, read_tokenizer_file
from tokenmill.tokenizer.formats.folder import json_of, with_folder
from tokenmill.tokenizer.formats.schema import read_document
from tokenmill.tokenizer.model import Model
from tokenmill.tokenizer.saving import as_json


@dataclass(frozen=True)
class ForeignModel:
    """A tokenizer.json that is not byte-level BPE. `content`: its bytes. `reason`: what the core cannot do."""

    document: dict[str, Any]
    content: bytes
    reason: str


def read_model(path: Path, pattern: str | None, special_tokens: Mapping[str, int] | None) -> Model | ForeignModel:
    """The model in a folder or a file. The arguments are those of `Tokenizer.load`. Raises TokenizerError, PatternError."""
    file = file_of(path)
    content = read_tokenizer_file(file)
    if file.suffix != ".tiktoken":
        if pattern is not None or special_tokens is not None:
            raise TokenizerError(
                file, "pattern= and special_tokens= go with a .tiktoken file; tokenizer.json has its own."
            )
        return read_json(content, str(file), None if file == path else file.parent)
    if pattern is None:
        names = ", ".join(patterns.names())
        raise TokenizerError(
            file,
            "a .tiktoken file does not say how text is split.",
            f"Give pattern= (--pattern): {names}, or a regex.",
        )
    steps = patterns.steps_of(pattern)
    ranks = tiktoken_file.read_ranks(content, str(file))
    model = tiktoken_file.model_of(ranks, steps, special_tokens or {}, str(file))
    if b"" in ranks:  # which the core cannot decode
        document = tokenizer_json.document_of(tiktoken_file.with_own_ranks(model))
        return read_json(as_json(document), str(file))
    return model


def read_json(content: bytes, place: str, folder: Path | None = None) -> Model | ForeignModel:
    """The model of a tokenizer.json. `folder`: the folder whose other files count as well; None if the file is alone. Raises
    TokenizerError."""
    document = alone = read_document(content, place, merges_as_ids=True)
    if folder is not None:
        document = with_folder(alone, folder)
    if document.get("normalizer") is not None and sum(token["normalized"] for token in document["added_tokens"]) > 1:
        from tokenmill.tokenizer.tokenizers_engine import check_distinct

        check_distinct(document, place)
    try:
        return tokenizer_json.model_of(document)
    except BeyondCore as beyond:
        is_changed = document is not alone
        document = read_document(content, place)  # with the texts of its merges
        if folder is not None and is_changed:
            document = with_folder(document, folder)
            content = json_of(document)
        return ForeignModel(document, content, str(beyond))
