"""Decides by a keyed hash which split a document is in, and how often a mixture repeats it.

A document's key is the first 8 bytes, little-endian, of the sha256 of its text, or of its group's value where the documents of a
group are to stay together. Nothing else matters: not its file, its row, or the other documents.
"""

import hashlib
import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.corpus.text_digests import Keys, text_digests, text_keys
from tokenmill_reader.order import mix

Sizes = npt.NDArray[np.int64]

_SPLIT = "tokenmill split 1"  # what is hashed with the keys; another text would move documents between splits
_REPEAT = "tokenmill repeat 1"
_HASH_BITS = 40  # so a float can hold 8,191 epochs and a fraction of one


def group_key(value: str) -> int:
    """The key of every document of a group, from the group's value.

    >>> group_key("example.com") == int(group_keys(pa.array(["example.com"]))[0])
    True
    """
    return int.from_bytes(hashlib.sha256(value.encode()).digest()[:8], "little")


def group_keys(values: pa.StringArray | pa.LargeStringArray) -> Keys:
    """The key of each document, from the value of its group: uint64. Each distinct value is hashed once.

    Raises ValueError for nulls.
    """
    if values.null_count:
        raise ValueError(f"groups: expected a value for each document; found {values.null_count} nulls.")
    encoded = values.dictionary_encode()
    keys = text_keys(text_digests(encoded.dictionary.cast(pa.large_string())))
    indices: npt.NDArray[np.int32] = encoded.indices.to_numpy()
    return keys[indices]


def split_of(keys: Keys, shares: Mapping[str, float]) -> npt.NDArray[np.uint8]:
    """The index in `shares` of the split of each document, uint8. The shares add up to 1, and are at most 256.

    A document has a hash from 0 to 1. It is in the first split whose share, added to those before it, is above the hash. So a
    document stays in its split when other documents come or go, and when splits are renamed. Documents move when the shares or
    their order change. Where one of the sums changes, only documents with a hash between its old and its new value move, to
    the next split or back. If a split is to grow by what another one gives, put the two side by side.

    >>> split_of(np.arange(6, dtype=np.uint64), {"train": 0.5, "validation": 0.5}).tolist()
    [0, 0, 0, 1, 0, 1]
    """
    ends = [math.fsum(list(shares.values())[: i + 1]) for i in range(len(shares))]
    thresholds = [_threshold(Fraction(end)) for end in ends[:-1]]
    return np.searchsorted(np.array(thresholds, np.uint64), _hashes(keys, _SPLIT), side="right").astype(np.uint8)


def repeats(keys: Keys, epochs: Fraction | float, name: str) -> Sizes:
    """How often each document occurs in a mixture that wants `epochs` passes over a source: int64.

    Each whole pass takes every document once. The rest, between 0 and 1, repeats the documents whose hash is below it, so a larger
    `epochs` keeps all documents of a smaller one. `name`: the source's name in the mixture, on which the choice depends.

    >>> repeats(np.arange(6, dtype=np.uint64), 2.5, "web").tolist()
    [2, 2, 3, 3, 2, 3]
    """
    whole = math.floor(epochs)
    is_once_more = _hashes(keys, _repeat(name)) < np.uint64(_threshold(Fraction(epochs) - whole))
    return whole + is_once_more.astype(np.int64)


def epochs_of_budget(lengths: Sizes, keys: Keys, tokens: int, name: str) -> Fraction:
    """The largest number of passes over a source whose documents, by `repeats`, have at most `tokens` tokens.

    `lengths`: the tokens of each document. Whole passes are exact. In the rest the sum stays below the budget by less than the
    tokens of the next document in the order of the hashes; documents with the same key come together, and so do those whose hashes
    have the same 40 bits, one in a million of a million documents. `float()` of the result is exact below 8,192. Raises ValueError
    if there are no tokens to repeat.

    >>> epochs_of_budget(np.array([10, 10, 10]), np.arange(3, dtype=np.uint64), 60, "web")
    Fraction(2, 1)
    """
    n_tokens = int(lengths.sum())
    if tokens and not n_tokens:
        raise ValueError(f"source {name}: expected documents for {tokens:,} tokens; found none with a token.")
    whole, rest = divmod(tokens, n_tokens) if n_tokens else (0, 0)
    if not rest:
        return Fraction(whole)
    hashes = _hashes(keys, _repeat(name))
    by_hash = np.argsort(hashes, kind="stable")
    first_left_out = by_hash[np.searchsorted(np.cumsum(lengths[by_hash]), rest, side="right")]
    return whole + Fraction(int(hashes[first_left_out]), 1 << _HASH_BITS)


def _repeat(name: str) -> str:
    return f"{_REPEAT} {name}"


def _hashes(keys: Keys, salt: str) -> Keys:
    """A 40-bit hash of each key and the salt: the top bits of splitmix64's mix of (key ^ the salt's group_key)."""
    hashes = keys ^ np.uint64(group_key(salt))
    mix(hashes, np.empty_like(hashes))
    return hashes >> np.uint64(64 - _HASH_BITS)


def _threshold(share: Fraction) -> int:
    """The number of 40 bits that a hash is below with this probability, rounded up."""
    return math.ceil(share * (1 << _HASH_BITS))
