"""tekken.json, the tokenizer file of mistral-common: tiktoken's ranks, with the special tokens before them.

Source: mistral_common/tokens/tokenizers/tekken.py."""

import base64
import binascii
import json
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from tokenmill.errors import TokenizerError, shown
from tokenmill.pretokenizers import patterns
from tokenmill.tokenizer.formats import tiktoken_file, tokenizer_json
from tokenmill.tokenizer.formats.strict_json import Each, check, parse
from tokenmill.tokenizer.forms import Form, not_merged
from tokenmill.tokenizer.model import Model
from tokenmill_reader.regular_files import read

NAME = "tekken.json"
NAMES = "tekken*.json"
"""A pattern of the names under which such files are published, such as tekken_240911.json."""
_Token = TypeVar("_Token", str, bytes)
_UNLISTED_MAX = 2**16
"""A file may have so many special tokens without a text, or as many as it has tokens: mistral-common makes up a text for each."""
_TOKEN = {"rank": int, "token_bytes": str}
_SPECIAL = {"rank": int, "token_str": str}
_SHAPE = {
    "config": {"pattern": str, "default_vocab_size": int, "default_num_special_tokens": int},
    "vocab": Each([_TOKEN]),
}
_VERSION = "v3"
"""The first version of tekken.json. Later ones differ in chat templates, images and audio."""
_NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
"""What mistral-common calls these tokens."""
_UNNAMED = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]
"""The first special tokens of a file that names none."""


def read_tekken(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenizer.json of a tekken.json, and its special tokens by name. Raises TokenizerError."""
    document = _document_of(path)
    texts = {token["content"] for token in document["added_tokens"]}
    return document, {name: text for name, text in _NAMES.items() if text in texts}


def _document_of(path: Path) -> dict[str, Any]:
    content = parse(read(path), str(path), unchecked=("vocab",))
    check(content, _SHAPE, f"{path}: ")
    config, listed = content["config"], content.get("special_tokens")
    n_special, n_tokens = config["default_num_special_tokens"], config["default_vocab_size"]
    if listed is None:
        listed = [{"rank": rank, "token_str": text} for rank, text in enumerate(_UNNAMED[: max(0, n_special)])]
    check(listed, Each([_SPECIAL]), f"{path}: special_tokens")
    n_own = n_tokens - n_special
    if not 0 <= n_special <= n_tokens or not 0 < n_own <= len(content["vocab"]) or len(listed) > n_special:
        raise TokenizerError(
            f"{path}: config",
            f"expected {n_special:,} special tokens and {n_own:,} others, or more of them; found {len(listed):,} and "
            f"{len(content['vocab']):,}.",
        )
    if n_special - len(listed) > (n_unlisted_max := max(_UNLISTED_MAX, len(content["vocab"]))):
        raise TokenizerError(
            f"{path}: config.default_num_special_tokens",
            f"expected {len(listed) + n_unlisted_max:,} at most, since the file lists {len(listed):,}; found {n_special:,}.",
        )
    special: dict[str, int] = {}
    for rank, entry in enumerate(sorted(listed, key=itemgetter("rank"))):
        _check_place(entry, rank, f"{path}: special_tokens[{rank}]")
        _put(special, entry["token_str"], rank, f"{path}: special_tokens[{rank}]")
    for rank in range(len(listed), n_special):
        _put(special, f"<SPECIAL_{rank}>", rank, f"{path}: special_tokens")
    ranks: dict[bytes, int] = {}
    for rank, entry in enumerate(content["vocab"][:n_own]):
        where = f"{path}: vocab[{rank}]"
        _check_place(entry, rank, where)
        try:
            token = base64.b64decode(entry["token_bytes"], validate=True)
        except (ValueError, binascii.Error):
            raise TokenizerError(f"{where}.token_bytes", "expected base64; found something else.") from None
        _put(ranks, token, n_special + rank, where)
    model = tiktoken_file.model_of(ranks, patterns.steps_of(config["pattern"]), special, str(path))
    return tokenizer_json.document_of(tiktoken_file.with_own_ranks(model))


def _check_place(one: dict[str, Any], rank: int, where: str) -> None:
    """Raises TokenizerError unless the rank is the place in the list, as mistral-common expects."""
    if one["rank"] != rank:
        raise TokenizerError(f"{where}.rank", f"expected {rank}, its place; found {shown(one['rank'])}.")


def _put(ids: dict[_Token, int], token: _Token, id: int, where: str) -> None:
    if ids.setdefault(token, id) != id:
        raise TokenizerError(where, f"expected every token once; found {token!r:.60} twice.")


def files_of(form: Form) -> dict[str, bytes]:
    """The file tekken.json. Raises TokenizerError unless the ids are in its order, and mistral-common would give the same."""
    model = form.byte_level(NAME)
    if model.nfc or model.add_prefix_space:
        raise form.cannot(NAME, "normalizer", "it has none, and no prefix space")
    if len(model.steps) != 1:
        raise form.cannot(NAME, "pattern", f"expected one regex; found {len(model.steps)}")
    if others := [added_token.text for added_token in model.added if not added_token.special]:
        raise form.cannot(NAME, "added_tokens", f"it cannot say that {others[0]!r:.60} is found in any text")
    tokens = _in_order(form, model)
    _refuse_other_merges(form, model)
    special = {added_token.id: added_token.text for added_token in model.added}
    config = {
        "pattern": model.steps[0],
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": len(special) + len(tokens),
        "default_num_special_tokens": len(special),
        "version": _VERSION,
    }
    listed = [{"rank": id, "token_str": special[id], "is_control": True} for id in range(len(special))]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": _text(token)}
        for rank, token in enumerate(tokens)
    ]
    document = {"config": config, "vocab": vocab, "special_tokens": listed}
    return {NAME: json.dumps(document, ensure_ascii=False, indent=1).encode()}


def _in_order(form: Form, model: Model) -> list[bytes]:
    """The tokens without the special ones: these come first, then the 256 bytes from 0 to 255, then all others without a gap."""
    special = {token.id: token.text for token in model.added}
    n = len(special) + len(model.tokens)
    for id in range(n):
        byte = id - len(special)
        is_right = (
            id in special if byte < 0 else model.tokens.get(id) == bytes([byte]) if byte < 256 else id in model.tokens
        )
        if not is_right:
            wanted = "a special token" if byte < 0 else f"the byte {byte:#04x}" if byte < 256 else "a token"
            token = repr(special.get(id, model.tokens.get(id, "none")))
            raise form.cannot(
                NAME,
                f"id {id}",
                f"expected {wanted}, as it has special tokens first, then the 256 bytes in their order, then the others; found "
                f"{token:.60}",
            )
    return [model.tokens[id] for id in range(len(special), n)]


def _refuse_other_merges(form: Form, model: Model) -> None:
    """Raises TokenizerError unless the merges are those that tiktoken makes of the tokens, which mistral-common runs."""
    if not model.ignore_merges and (token := not_merged(model)) is not None:
        raise form.cannot(NAME, "model.ignore_merges", f"it makes tokens such as {token!r:.60} as a whole")
    ranks = {token: id for id, token in model.tokens.items()}
    there = tiktoken_file.with_own_ranks(tiktoken_file.model_of(ranks, model.steps, {}, form.place))
    expected = tokenizer_json.document_of(there)["model"]["merges"]
    found = form.tokenizer.document["model"]["merges"]
    for rank, (expected_merge, merge) in enumerate(zip_longest(expected, found)):
        if expected_merge != merge:
            raise form.cannot(
                NAME,
                f"merge {rank}",
                "it merges any two tokens that make a third, those of the lowest id first: "
                f"expected {expected_merge}; found {merge}",
            )


def _text(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None
