"""Reads the files beside a tokenizer.json as AutoTokenizer of transformers does: they add tokens, and change how text is split."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers.json_steps import BeyondCore, parts_of, steps_from
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.formats.as_loaded import kept_as_loaded
from tokenmill.tokenizer.formats.files import file_of, read_tokenizer_file
from tokenmill.tokenizer.formats.named_tokens import (
    ADDED_FILE,
    CONFIG_FILE,
    NAMES,
    SPECIAL_MAP_FILE,
    ConfiguredToken,
    named_in,
    text_in,
)
from tokenmill.tokenizer.formats.schema import read_document
from tokenmill.tokenizer.formats.strict_json import object_of
from tokenmill.tokenizer.formats.transformers_classes import Built, built_by, class_of
from tokenmill.tokenizer.model import BYTE_TOKENS, CHARACTERS, FLAGS, Merges, bytes_of
from tokenmill_reader.regular_files import read

MODEL_CONFIG_FILE = "config.json"
FOLDER_FILES = (CONFIG_FILE, SPECIAL_MAP_FILE, ADDED_FILE, MODEL_CONFIG_FILE)
_OURS = ("card.json", "golden.json")
"""The files of a tokenizer that tokenmill made. Its tokenizer.json has every token with its flags; the names beside it add nothing,
also where an earlier version named a token that the tokenizer lacks."""
_NAMES_IN_ORDER = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
"""NAMES in the order in which the digests in tokenmill.lock have them. Another order would change these digests."""
_MISTRAL_MIN = 100_000
"""transformers applies `fix_mistral_regex` only to a larger vocabulary."""
_SECTIONS = ("normalizer", "pre_tokenizer", "decoder", "model")
_VERSIONED = re.compile(r"tokenizer\.(.*)\.json")
_ALONE = "Or name {} itself in place of its folder: then it counts alone."


def with_folder(document: dict[str, Any], directory: Path, name: str = "tokenizer.json") -> dict[str, Any]:
    """The tokenizer.json that AutoTokenizer makes of a folder with this one; the document itself if the other files change nothing.
    `name`: the file in the folder that the document was read from.

    Raises TokenizerError, which names the file, for settings that tokenmill cannot follow."""
    files = {name: object_of(directory / name) for name in FOLDER_FILES}
    if not any(files.values()):
        return document
    if all((directory / file_name).is_file() for file_name in _OURS):
        files[CONFIG_FILE] = {
            key: value for key, value in files[CONFIG_FILE].items() if key not in NAMES or not isinstance(value, str)
        }
    config, model_config = files[CONFIG_FILE], files[MODEL_CONFIG_FILE]
    _check_followed(document, config, directory, name)
    kind = class_of(config, model_config, _has_byte_level(document))
    built = built_by(kind, config) if kind else None
    if kind and (built is None or not _fits(document, built)):
        raise TokenizerError(
            directory,
            f"by {CONFIG_FILE} and {MODEL_CONFIG_FILE}, AutoTokenizer takes {kind}, which does not use "
            f"{name} as it is: its ids may be others.",
            f"If {name} is right, set tokenizer_class to PreTrainedTokenizerFast. {_ALONE.format(name)}",
        )
    changed = {} if built is None else _sections(document, built)
    listed = document["added_tokens"]
    if "added_tokens_decoder" not in config and (built or files[ADDED_FILE]):
        # with the ids that the file says
        listed = object_of(directory / name)["added_tokens"] if name == "tokenizer.json" else listed
    named = named_in(files, listed, built.named if built else {}, directory)
    own = [] if built else document["added_tokens"]
    tokens = named.in_order({file_name["content"] for file_name in own})
    if built and built.renews:
        tokens += named.renewed(built.renews)
    place = f"{directory / name} with the files beside it"
    added = _joined(own, _texts(document), tokens, place)
    if not changed and _same_tokens(added, document["added_tokens"]):
        return document
    joined = {**document, **changed, "added_tokens": added}
    _check_special(joined, document["added_tokens"], place, name)
    return kept_as_loaded(joined)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What `with_folder` changed in a tokenizer.json: the added tokens with their ids, and the names of the sections."""
    known = {token["content"]: token for token in before["added_tokens"]}
    tokens = [
        f"{token['content']} = {token['id']}" for token in after["added_tokens"] if token != known.get(token["content"])
    ]
    return tokens, [name for name in _SECTIONS if before.get(name) != after.get(name)]


def content_of(path: Path) -> bytes:
    """The tokenizer.json that a folder stands for, or the file at `path`. Raises TokenizerError."""
    file = file_of(path)
    content = read_tokenizer_file(file)
    if file == path:
        return content
    document = read_document(content, str(file), merges_as_ids=True)
    if with_folder(document, path) is document:
        return content
    return json_of(with_folder(read_document(content, str(file)), path))


def lacking(document: dict[str, Any], directory: Path) -> list[str]:
    """The added and special tokens that the files of a folder name, and that a document has not among its added tokens. Raises
    TokenizerError."""
    files = {name: object_of(directory / name) for name in FOLDER_FILES}
    known = {token["content"] for token in document["added_tokens"]}
    tokens = named_in(files, document["added_tokens"], {}, directory).in_order(known)
    return [token.content for token in tokens if token.content and token.content not in known]


def names_in(directory: Path) -> dict[str, str]:
    """The texts of the special tokens that the files of a folder name, such as bos_token, or else the class of the tokenizer, by
    these names; those of one model, such as image_token, last. Raises TokenizerError."""
    files = {name: object_of(directory / name) for name in FOLDER_FILES}
    named = named_in(files, [], _names_of_class(files, directory), directory).named
    in_order = [
        *(name for name in _NAMES_IN_ORDER if name in named),
        *(name for name in named if name not in _NAMES_IN_ORDER),
    ]
    return {name: str(text_in(named[name])) for name in in_order}


def _names_of_class(files: Mapping[str, Mapping[str, Any]], directory: Path) -> dict[str, str]:
    """The special tokens of the class that AutoTokenizer takes for a folder, by name; {} for a class that names none."""
    file = followed(directory, "tokenizer.json")
    is_byte_level = not file.is_file() or b'"ByteLevel"' in read(file)
    kind = class_of(files[CONFIG_FILE], files[MODEL_CONFIG_FILE], is_byte_level)
    built = built_by(kind, files[CONFIG_FILE]) if kind else None
    return built.named if built else {}


def json_of(document: Mapping[str, Any]) -> bytes:
    """The bytes of a tokenizer.json, for the `tokenizers` library."""
    return json.dumps(document, ensure_ascii=False).encode()


def _check_followed(document: dict[str, Any], config: Mapping[str, Any], directory: Path, name: str) -> None:
    alone = _ALONE.format(name)
    where = f"{directory / CONFIG_FILE}:"
    files = config.get("fast_tokenizer_files")
    if versioned := [file for file in files or [] if isinstance(file, str) and _VERSIONED.search(file)]:
        raise TokenizerError(
            f"{where} fast_tokenizer_files",
            f"transformers reads {versioned[0]!r:.60} in place of {name}.",
            f"Remove the entry if {name} is right. {alone}",
        )
    if config.get("split_special_tokens"):
        raise TokenizerError(
            f"{where} split_special_tokens",
            "transformers never turns the text of a special token into its id; in conversations tokenmill does.",
            f"Remove the entry. {alone}",
        )
    if config.get("fix_mistral_regex") and len(document["model"]["vocab"]) > _MISTRAL_MIN:
        raise TokenizerError(
            f"{where} fix_mistral_regex",
            f"transformers may split text otherwise than {name} says.",
            f"Put the corrected split into {name}, and remove the entry. {alone}",
        )


def _has_byte_level(document: dict[str, Any]) -> bool:
    sections = [document.get(one) for one in ("normalizer", "pre_tokenizer", "decoder", "post_processor")]
    return '"ByteLevel"' in json.dumps(sections)


def _fits(document: dict[str, Any], built: Built) -> bool:
    """Whether a class is for vocabularies of this kind: of bytes, of characters, or of words."""
    of_bytes = built.decoder["type"] == "ByteLevel"
    return bool(built.kind == document["model"]["type"]) and of_bytes == _has_byte_level(document)


def _texts(document: dict[str, Any]) -> Mapping[str, int]:
    """The vocabulary of the model: ids by text."""
    vocab = document["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else {text: id for id, (text, _score) in enumerate(vocab)}


def _sections(document: dict[str, Any], built: Built) -> dict[str, Any]:
    """The sections of a document that a class makes otherwise, so that ids or texts may differ."""
    changed: dict[str, Any] = {}
    for section, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")):
        built_section = getattr(built, section)
        if _effect(document.get(section), inner) != _effect(built_section, inner) and not (
            section == "pre_tokenizer" and _splits_alike(document.get(section), built_section)
        ):
            changed[section] = built_section
    model = document["model"]
    fields = dict(built.model)
    if built.kind == "BPE":
        fields |= {
            "ignore_merges": False,
            "dropout": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
        }
        is_byte_level = built.decoder["type"] == "ByteLevel"
        bytes_ = CHARACTERS if is_byte_level else BYTE_TOKENS
        if model["vocab"].keys() >= set(bytes_):  # then no text has a character without a token
            for field in ("unk_token", "fuse_unk", *(["byte_fallback"] if is_byte_level else [])):
                del fields[field]
    if any((model.get(field) or None) != (value or None) for field, value in fields.items()):
        changed["model"] = {**model, **fields}
    return changed


def _effect(section: Any, inner: str) -> list[dict[str, Any]]:
    """The parts of a section without what has no effect on ids and texts."""
    parts = []
    for part in parts_of(section, inner):
        if part["type"] == "ByteLevel":
            kept = (
                {"add_prefix_space": True, "use_regex": True, **part}
                if inner == "pretokenizers"
                else {"type": "ByteLevel"}
            )
            part = {name: value for name, value in kept.items() if name != "trim_offsets"}
        parts.append(part)
    return parts


def _splits_alike(one: Any, other: Any) -> bool:
    try:
        return steps_from(one) == steps_from(other)
    except BeyondCore:
        return False


def _joined(
    added: list[dict[str, Any]], vocab: Mapping[str, int], tokens: list[ConfiguredToken], place: str
) -> list[dict[str, Any]]:
    """The added tokens with others, as `tokenizers` adds them: a known one takes the new flags, a new one the next free id."""
    joined = list(added)
    index_of = {added_token["content"]: i for i, added_token in enumerate(joined)}
    next_id = max([len(vocab), *(added_token["id"] + 1 for added_token in joined)])
    text_of = {id: text for text, id in vocab.items()} | {
        added_token["id"]: added_token["content"] for added_token in joined
    }
    for token in tokens:
        if token.content in index_of:
            i = index_of[token.content]
            joined[i] = {**joined[i], **token.flags()}
        elif token.content:
            id = vocab.get(token.content, next_id)
            next_id += token.content not in vocab
            if text_of.setdefault(id, token.content) != token.content:
                raise TokenizerError(
                    place,
                    f"{token.content!r:.60} and {text_of[id]!r:.60} both have id {id} in transformers.",
                    "Give each token an id of its own.",
                )
            index_of[token.content] = len(joined)
            joined.append({"id": id, "content": token.content, **token.flags()})
    return joined


def _same_tokens(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    def plain(tokens: list[dict[str, Any]]) -> list[list[Any]]:
        return sorted([token["id"], token["content"], *(token[flag] for flag in FLAGS)] for token in tokens)

    return plain(before) == plain(after)


def _check_special(document: dict[str, Any], before: list[dict[str, Any]], place: str, name: str) -> None:
    """Raises TokenizerError for a new special token that plain text would become: a byte's own token, or one that merges make."""
    model, old = document["model"], {token["content"] for token in before if token["special"]}
    new = {token["content"] for token in document["added_tokens"] if token["special"]} - old
    if model["type"] != "BPE":
        return
    vocab, merges = model["vocab"], model["merges"]
    inside = sorted(new & vocab.keys())
    plain_texts = [
        text for text in inside if len(text) == 1 and bytes_of(text) is not None and text != model.get("unk_token")
    ]
    if isinstance(merges, Merges):
        plain_texts += (
            [text for text in inside if merges.makes([vocab[text]])]
            if merges.makes([vocab[text] for text in inside])
            else []
        )
    else:
        plain_texts += sorted({left + right for left, right in merges}.intersection(inside))
    if plain_texts:
        raise TokenizerError(
            f"{place}: {', '.join(f'{text!r:.60}' for text in plain_texts[:3])}",
            "transformers makes a special token of it, but plain text becomes it, too.",
            f"Remove it from the special tokens. {_ALONE.format(name)}",
        )
