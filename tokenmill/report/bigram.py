"""Bits per byte of a bigram model over held-out tokens, the best predictor of training loss among such measures.

Everything here computes on arrays; nothing reads or writes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SampleIds = npt.NDArray[np.uint32]

HELD_OUT_ONE_IN = 8
_DISCOUNT = 0.75  # the discount if the counts allow no estimate
_START = np.uint32(2**32 - 1)  # stands before a document's first token; no tokenizer has this id


@dataclass(frozen=True)
class Bigram:
    """The result of the bigram model. `bits_per_byte`: None without held-out text. `n_train`, `n_held_out`: the tokens of each
    part."""

    bits_per_byte: float | None
    n_train: int
    n_held_out: int


def bigram(
    ids: SampleIds, lengths: npt.NDArray[np.int64], n_bytes: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64]
) -> Bigram:
    """The bits that an interpolated bigram model needs for held-out tokens, divided by the bytes of their text.

    `ids`: the tokens of all documents, one after another; `lengths`, `n_bytes`, `keys`: tokens, bytes of text and a keyed hash of
    each document. One document in eight, by its hash, is held out; the others train the model. A document's first token is
    predicted from its beginning, and its end-of-document token, if it has one, is predicted like any other.

    Smoothing is absolute discounting, interpolated with the unigram distribution (Ney, Essen and Kneser 1994, "On structuring
    probabilistic dependences in stochastic language modelling"): p(b | a) = max(c(ab) - D, 0) / c(a) + D n(a) / c(a) p(b), where
    n(a) is the number of distinct tokens seen after a and D = n1 / (n1 + 2 n2), with n1 and n2 the numbers of pairs seen once and
    twice. p(b) = (c(b) + 1) / (N + V) is the unigram distribution with one added to every count, where V is the number of ids up
    to the largest one seen, so every token has a probability. Time and memory grow with the tokens, not with the vocabulary.
    """
    is_held_out = keys % np.uint64(HELD_OUT_ONE_IN) == 0
    of_token = np.repeat(is_held_out, lengths)
    previous = np.empty_like(ids)
    previous[1:] = ids[:-1]
    starts = np.cumsum(lengths) - lengths
    previous[starts[lengths > 0]] = _START
    pairs = previous.astype(np.uint64) << np.uint64(32) | ids
    n_held_out = int(of_token.sum())
    n_train = len(ids) - n_held_out
    held_out_bytes = int(n_bytes[is_held_out].sum())
    if not n_train or not n_held_out or not held_out_bytes:
        return Bigram(None, n_train, n_held_out)
    bits = _bits(pairs[~of_token], pairs[of_token], int(ids.max()) + 1)
    return Bigram(bits / held_out_bytes, n_train, n_held_out)


def _bits(train: npt.NDArray[np.uint64], held_out: npt.NDArray[np.uint64], n_ids: int) -> float:
    seen, n_seen = np.unique(train, return_counts=True)
    n_once, n_twice = int((n_seen == 1).sum()), int((n_seen == 2).sum())
    discount = n_once / (n_once + 2 * n_twice) if n_once and n_twice else _DISCOUNT
    low = np.uint64(2**32 - 1)
    unigram = np.bincount((seen & low).astype(np.int64), n_seen, n_ids) + 1.0
    unigram /= unigram.sum()
    # `seen` is sorted, so the pairs of one context follow each other.
    contexts, first, n_after = np.unique(seen >> np.uint64(32), return_index=True, return_counts=True)
    n_context = np.add.reduceat(n_seen, first)
    distinct, n_distinct = np.unique(held_out, return_counts=True)
    nearest = np.minimum(np.searchsorted(seen, distinct), len(seen) - 1)
    n_pair = np.where(seen[nearest] == distinct, n_seen[nearest], 0)
    context = distinct >> np.uint64(32)
    where = np.minimum(np.searchsorted(contexts, context), len(contexts) - 1)
    is_known = contexts[where] == context
    total = np.where(is_known, n_context[where], 1)
    kept = np.where(is_known, discount * n_after[where] / total, 1.0)
    chance = np.maximum(n_pair - discount, 0) / total + kept * unigram[(distinct & low).astype(np.int64)]
    return float(-(n_distinct * np.log2(chance)).sum())
