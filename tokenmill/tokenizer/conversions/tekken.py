"""Reads tekken.json, the tokenizer file of mistral-common: tiktoken's ranks, with the special tokens before them.

It is not written: mistral-common expects the 256 bytes in their order behind the special tokens, and trained vocabularies have
GPT-2's order. Source: mistral_common/tokens/tokenizers/tekken.py."""

import base64
import binascii
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers import patterns
from tokenmill.tokenizer.formats import tiktoken_file, tokenizer_json
from tokenmill.tokenizer.formats.strict_json import Each, check, parse
from tokenmill_reader.regular_files import read

_TOKEN = {"rank": int, "token_bytes": str}
_SPECIAL = {"rank": int, "token_str": str}
_SHAPE = {
    "config": {"pattern": str, "default_vocab_size": int, "default_num_special_tokens": int},
    "vocab": Each([_TOKEN]),
}


def document_of(path: Path) -> dict[str, Any]:
    """The tokenizer.json of a tekken.json. Raises TokenizerError."""
    found = parse(read(path), str(path), unchecked=("vocab",))
    check(found, _SHAPE, f"{path}: ")
    config, listed = found["config"], found.get("special_tokens") or []
    check(listed, Each([_SPECIAL]), f"{path}: special_tokens")
    n_special, n_tokens = config["default_num_special_tokens"], config["default_vocab_size"]
    n_own = n_tokens - n_special
    if not 0 <= n_special <= n_tokens or not 0 < n_own <= len(found["vocab"]) or len(listed) > n_special:
        raise TokenizerError(
            f"{path}: config",
            f"expected {n_special:,} special tokens and {n_own:,} others, or more of them; found {len(listed):,} and "
            f"{len(found['vocab']):,}.",
        )
    special = {f"<SPECIAL_{rank}>": rank for rank in range(n_special)}
    special = {text: rank for text, rank in special.items() if rank >= len(listed)}
    special |= {one["token_str"]: one["rank"] for one in listed}
    ranks = {}
    for rank, one in enumerate(found["vocab"][:n_own]):
        try:
            ranks[base64.b64decode(one["token_bytes"], validate=True)] = n_special + rank
        except (ValueError, binascii.Error):
            raise TokenizerError(
                f"{path}: vocab[{rank}].token_bytes", "expected base64; found something else."
            ) from None
    model = tiktoken_file.model_of(ranks, patterns.steps_of(config["pattern"]), special, str(path))
    return tokenizer_json.document_of(tiktoken_file.with_own_ranks(model))
