"""Files tokenizer.json: one that the core runs, others that it leaves to `tokenizers`, and changes of them."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

from tests.builders.trained import TOKENIZER
from tokenmill import Tokenizer
from tokenmill.tokenizer.formats.tokenizer_json import document_of

assert TOKENIZER._model is not None
DOCUMENT = document_of(TOKENIZER._model)
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LAST = {**GPT2, "use_regex": False}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
VOCAB = DOCUMENT["model"]["vocab"]
MERGES = DOCUMENT["model"]["merges"]
NEXT_ID = len(VOCAB)
ISOLATED = {"type": "Split", "behavior": "Isolated", "invert": False}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The document with another value at a path; every key but the last is there."""
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def with_added(*added: dict[str, Any]) -> dict[str, Any]:
    """The document with these added tokens, each with the id of its text in the vocabulary or a new one."""
    fresh = itertools.count(NEXT_ID)
    ids = [VOCAB[one["content"]] if one["content"] in VOCAB else next(fresh) for one in added]
    tokens = [{"id": id, "special": False, **FLAGS, **one} for id, one in zip(ids, added, strict=True)]
    return changed("added_tokens", to=[*DOCUMENT["added_tokens"], *tokens])


def split(**part: Any) -> dict[str, Any]:
    """The document with another pre-tokenizer in front of the one for bytes."""
    return changed("pre_tokenizer", to={"type": "Sequence", "pretokenizers": [part, LAST]})


def loaded(tmp_path: Path, document: object) -> Tokenizer:
    """The tokenizer of this document, from a file."""
    path = tmp_path / "tokenizer.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return Tokenizer.load(path)


IN_TOKENIZERS = {
    "normalizer is NFKC": changed("normalizer", to={"type": "NFKC"}),
    "normalizer is Sequence": changed(
        "normalizer", to={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    ),
    "pre_tokenizer is null": changed("pre_tokenizer", to=None),
    "ends with 'Whitespace'": changed("pre_tokenizer", to={"type": "Whitespace"}),
    "add_prefix_space is true after a split": changed(
        "pre_tokenizer",
        to={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**GPT2, "add_prefix_space": True}],
        },
    ),
    "Split with 'Removed'": split(type="Split", pattern={"Regex": r"\s"}, behavior="Removed", invert=False),
    "invert True": split(type="Split", pattern={"Regex": r"\s"}, behavior="Contiguous", invert=True),
    "differently from Oniguruma": split(**ISOLATED, pattern={"Regex": r"\p{N}{1,3}+|\s+$"}),
    "normalizer is ByteLevel": changed("normalizer", to={"type": "ByteLevel"}),
    "Punctuation": split(type="Punctuation", behavior="Isolated"),
    "decoder is null": changed("decoder", to=None),
    "stands for other bytes": with_added({"content": "é"}),
    "is a byte's token": with_added({"content": "a"}),
    "outside the byte-level alphabet": changed("model", "vocab", to={**DOCUMENT["model"]["vocab"], "a b": NEXT_ID}),
}
WORD_PIECE = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "[UNK]", "special": True, **FLAGS}],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
    },
}
