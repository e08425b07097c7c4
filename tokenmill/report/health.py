"""Examines a vocabulary for unused tokens, tokens that no text reaches, parts of characters, and long tokens."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tokenmill.report.measures import RARE
from tokenmill.tokenizer.tokenizer import Tokenizer

N_LISTED = 40


class Token(msgspec.Struct, frozen=True):
    """A token with its bytes and its count in the dataset (None: unknown)."""

    id: int
    content: bytes
    count: int | None

    def as_json(self) -> dict[str, Any]:
        """The token in the form of report.json: its text, or its bytes in hex if they are not UTF-8."""
        return {"id": self.id, "token": shown(self.content), "n_bytes": len(self.content), "count": self.count}


def shown(content: bytes) -> str:
    r"""The bytes as text; invalid UTF-8 as \x and two digits.

    >>> shown(" é".encode()), shown(b"\xc3")
    (' é', '\\xc3')
    """
    return content.decode(errors="backslashreplace")


def health_of(tokenizer: Tokenizer, counts: Mapping[int, int] | None) -> dict[str, Any]:
    """The report's entry on oddities of the vocabulary. `counts`: each token's count in the dataset, by id.

    Learned tokens are all tokens except special ones and the 256 bytes, which every vocabulary has. A token is unreached if it does
    not occur and its own text becomes other tokens. Lists have the first 40 of their tokens.
    """
    special = set(tokenizer.special_tokens.values())
    tokens = [
        Token(id, content, None if counts is None else counts.get(id, 0))
        for id, content in sorted(tokenizer.tokens.items())
        if id not in special
    ]
    learned = [token for token in tokens if len(token.content) > 1]
    unused = [token for token in learned if token.count == 0]
    rare = [token for token in learned if token.count is not None and 0 < token.count < RARE]
    partial = [token for token in learned if not _is_text(token.content)]
    unreached = _unreached(tokenizer, learned if counts is None else unused)
    longest = sorted(learned, key=lambda token: (-len(token.content), token.id))
    known = counts is not None
    return {
        "learned_tokens": len(learned),
        "unused": _listed(unused) if known else None,
        "rare": _listed(sorted(rare, key=lambda token: (token.count or 0, token.id))) if known else None,
        "unreached": _listed(unreached),
        "parts_of_characters": _listed(partial),
        "longest": [token.as_json() for token in longest[:N_LISTED]],
    }


def _listed(tokens: list[Token]) -> dict[str, Any]:
    return {"n_tokens": len(tokens), "first": [token.as_json() for token in tokens[:N_LISTED]]}


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unreached(tokenizer: Tokenizer, tokens: list[Token]) -> list[Token]:
    """The tokens whose own text is encoded as other tokens. Leaves out tokens that are not valid UTF-8."""
    whole = [token for token in tokens if _is_text(token.content)]
    if not whole:
        return []
    n_tokens = tokenizer.count_tokens(pa.array([token.content.decode() for token in whole], pa.large_string()))
    return [token for token, n in zip(whole, n_tokens.to_pylist(), strict=True) if n != 1]
