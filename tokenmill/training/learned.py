"""Merges as the core gives them → tokenizers: the result of a training."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenmill import _core
from tokenmill.errors import ParamsError
from tokenmill.tokenizer.model import AddedToken, Merges, Model

if TYPE_CHECKING:
    from tokenmill.tokenizer.tokenizer import Tokenizer

MERGE = struct.Struct("<IIIQ")  # a merge as the core gives it: left, right, token, count


@dataclass(frozen=True)
class Learned:
    """The result of a training: a tokenizer for each requested size, in the order of the request, and figures of the run.

    `last_count`: the count of the last merged pair. `n_text_tokens`: the number of tokens in the counted text, encoded with
    the largest of the tokenizers. `n_refused`: the tokens that `Goal.forbid` and `Goal.protect` refused in all
    trainings.
    """

    tokenizers: list[Tokenizer]
    n_merges: int
    last_count: int | None
    n_text_tokens: int
    n_refused: int = 0


def learned_of(
    start: Model,
    merges: bytes,
    tokens: Sequence[bytes],
    vocab_sizes: Sequence[int],
    pad_vocab_to: int,
    n_text_tokens: int,
) -> Learned:
    """The tokenizers of a training. `merges`: as the core gives them. `tokens`: the bytes of all tokens but the special ones, in
    the order of learning."""
    models = [_model(start, merges, tokens, size - len(start.added), pad_vocab_to) for size in vocab_sizes]
    from tokenmill.tokenizer.tokenizer import Tokenizer  # imported after learning, which needs the most memory

    last_count = MERGE.unpack(merges[-MERGE.size :])[-1] if merges else None
    return Learned([Tokenizer(model) for model in models], len(merges) // MERGE.size, last_count, n_text_tokens)


def tokens_after(first: Sequence[bytes], merges: bytes) -> list[bytes]:
    """The bytes of all tokens: `first`, then those that the merges make."""
    tokens = list(first)
    for left, right, token, _ in MERGE.iter_unpack(merges):
        if token == len(tokens):
            tokens.append(tokens[left] + tokens[right])
    return tokens


def _model(start: Model, merges: bytes, tokens: Sequence[bytes], n_tokens_max: int, pad_vocab_to: int) -> Model:
    """`start` with the first `n_tokens_max` of `tokens` (in the order of learning), and the merges up to the last of them."""
    ids = sorted(start.tokens)
    tokens = tokens[:n_tokens_max]
    next_id = max([*ids, *(token.id for token in start.added)]) + 1
    rank = max((merge.rank for merge in start.merges), default=-1) + 1
    n_new = len(tokens) - len(ids)
    ids += range(next_id, next_id + n_new)
    next_id += n_new
    if len(tokens) == n_tokens_max:
        merges = merges[: _n_until(merges, len(tokens) - 1) * MERGE.size if n_new else 0]
    padding = [
        AddedToken(next_id + i, f"<|reserved_{i}|>", special=True, in_vocab=True)
        for i in range(-next_id % pad_vocab_to)
    ]
    if taken := {token.text for token in start.added} & {one.text for one in padding}:
        raise taken_name(min(taken))
    return replace(
        start,
        tokens=dict(zip(ids, tokens, strict=True)),
        merges=Merges(Merges.of(start.merges).rows + _core.merge_rows(merges, ids, rank)),
        added=(*start.added, *padding),
    )


def _n_until(merges: bytes, token: int) -> int:
    """The number of merges up to and including the first one that makes this token."""
    return next(n for n, merge in enumerate(MERGE.iter_unpack(merges), 1) if merge[2] == token)


def taken_name(text: str) -> ParamsError:
    """The error for a special token with the name of a reserved one."""
    return ParamsError("pad_vocab_to", f"{text} is a special token already.", "Give that one another name.")
