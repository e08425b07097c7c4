"""Reads what the `tokenizers` library reads otherwise than a tokenizer.json has it: models without a type, and added tokens without
a text or with an id that is not the next free one."""

import json
from collections.abc import Mapping
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.formats.strict_json import wrong
from tokenmill.tokenizer.model import FLAGS, check_id, is_text

MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")


def type_of_untyped(model: dict[str, Any], place: str) -> str:
    """The type of a model that names none. `tokenizers` takes the first of BPE, WordPiece, WordLevel and Unigram that can be read.

    It skips a type of which any field is wrong, so a spoiled BPE model becomes a WordLevel one. Here the fields that are there
    decide. Raises TokenizerError where that would give another type than `tokenizers` takes.
    """
    if isinstance(model["vocab"], list):
        return "Unigram"
    if "merges" in model:
        return "BPE"
    has_unk = isinstance(model.get("unk_token"), str)
    chars_max = model.get("max_input_chars_per_word")
    is_length = type(chars_max) is int and 0 <= chars_max < 2**64
    if has_unk and is_length and isinstance(model.get("continuing_subword_prefix"), str):
        return "WordPiece"
    if has_unk and not {"max_input_chars_per_word", "continuing_subword_prefix"} & model.keys():
        return "WordLevel"
    raise TokenizerError(
        f"{place}: model.type",
        f"expected one of {', '.join(MODELS)}, or the fields of one; found neither.",
        "BPE has merges; WordPiece has unk_token, continuing_subword_prefix and max_input_chars_per_word; WordLevel "
        "has unk_token alone. Name the type.",
    )


def added_as_loaded(added: list[Any], vocab: Mapping[str, int], place: str) -> list[dict[str, Any]]:
    """The added tokens with the ids that `tokenizers` gives them: that of model.vocab, else the next one from the number of tokens
    in model.vocab on, whatever the file says. It skips an empty one.

    Releases of `tokenizers` before 0.23 gave the next id behind the largest one so far, which a token of model.vocab may have.
    Raises TokenizerError for a text that occurs twice, and for an id that another token has."""
    by_id: dict[int, str] = {id: token for token, id in vocab.items()}
    loaded: list[dict[str, Any]] = []
    texts: set[str] = set()
    next_id = len(vocab)
    for i, entry in enumerate(added):
        where = f"{place}: added_tokens[{i}]"
        if not isinstance(entry, dict):
            wrong(where, "an object", entry)
        told, text = check_id(entry.get("id"), where), entry.get("content")
        for flag in FLAGS:
            if not isinstance(entry.get(flag), bool):
                wrong(f"{where}.{flag}", "true or false", entry.get(flag))
        if text == "":
            continue
        if not is_text(text):
            wrong(f"{where}.content", "a text", text)
        if text in texts:
            raise TokenizerError(where, f"{text!r:.60} is there twice; expected every added token once.")
        id = vocab.get(text, next_id)
        if by_id.setdefault(id, text) != text:
            moved = "" if id == told else f"; the file says {told}, but the tokenizers library gives it {id}"
            raise TokenizerError(
                where,
                f"{text!r:.60} and {by_id[id]!r:.60} both have id {id}{moved}.",
                "Give each token an id of its own.",
            )
        loaded.append(entry if id == told else {**entry, "id": id})
        texts.add(text)
        next_id += text not in vocab
    return loaded


def kept_as_loaded(document: dict[str, Any]) -> dict[str, Any]:
    """The document in a form in which `tokenizers` keeps the ids of its added tokens: if it would give one of them another id,
    model.vocab lists them all. Raises TokenizerError where that would change what becomes of a text."""
    added, model = document["added_tokens"], document["model"]
    vocab = model["vocab"]
    if not isinstance(vocab, dict):  # a list has no gap
        return document
    new = [token for token in added if token["content"] not in vocab]
    if [token["id"] for token in new] == list(range(len(vocab), len(vocab) + len(new))):
        return document
    if model["type"] != "BPE":
        raise TokenizerError(
            f"added_tokens: {new[0]['content']!r:.60}",
            f"has id {new[0]['id']}, but the tokenizers library would give it {len(vocab)}.",
            "Give the tokens of model.vocab ids without a gap.",
        )
    return {**document, "model": {**model, "vocab": vocab | {token["content"]: token["id"] for token in new}}}


def mended(content: bytes, document: dict[str, Any]) -> dict[str, list[str]]:
    """The differences between a document and its file that `tokenizers` makes when loading: examples by kind."""
    written = json.loads(content)
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    listed = written.get("added_tokens", [])
    return {
        "model without a type, read as tokenizers reads it": []
        if "type" in written["model"]
        else [document["model"]["type"]],
        "added tokens without a text, which no text leads to": [
            f"id {entry['id']}" for entry in listed if not entry["content"]
        ],
        "added tokens whose id tokenizers changes": [
            f"{text!r}: {entry['id']} to {ids[text]}"
            for entry in listed
            if (text := entry["content"]) and ids[text] != entry["id"]
        ],
    }
