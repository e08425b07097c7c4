"""Measures of a tokenizer from counts: Rényi efficiency, Gini coefficient, unused and rare tokens, compression by vocabulary size.

Everything here computes on arrays; nothing reads or writes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.model import Merge, Merges, Model

Counts = npt.NDArray[np.int64]

RARE = 10
"""A token is rare if it occurs, but less often than this."""

_POINTS_MAX = 120  # points of a curve in the report


def renyi_efficiency(counts: Counts, alpha: float) -> float | None:
    """The Rényi entropy of order `alpha` of the tokens' frequencies, divided by its largest value, the logarithm of the number of
    tokens; None without at least two tokens of which one occurs.

    `counts`: how often each token of the vocabulary occurs, zeros included. From Zouhar et al. 2023, "Tokenization and the
    Noiseless Channel" (arXiv 2306.16842), where 2.5 predicted translation quality best. Cognetta et al. 2024 (arXiv 2402.14614)
    show tokenizers with a higher efficiency and a worse model, so it screens and does not rank.

    >>> renyi_efficiency(np.array([1, 1, 1, 1]), 2.5), renyi_efficiency(np.array([8, 0]), 2.0)
    (1.0, 0.0)
    """
    assert alpha > 0 and alpha != 1
    total = int(counts.sum())
    if total == 0 or len(counts) < 2:
        return None
    shares = counts[counts > 0] / total
    entropy = math.log2(float(np.sum(shares**alpha))) / (1 - alpha)
    return abs(entropy) / math.log2(len(counts))  # abs: of -0.0


def gini(values: Sequence[float]) -> float | None:
    """The Gini coefficient of values that are not negative: 0 if all are equal, and near 1 if one has nearly everything. None
    without at least two values, or if all are 0.

    Used on the tokens per byte of languages, as in Foroutan et al. 2025, "Parity-Aware Byte-Pair Encoding" (arXiv 2508.04796).

    >>> gini([1, 1, 1]), gini([0, 1])
    (0.0, 0.5)
    """
    if len(values) < 2 or sum(values) == 0:
        return None
    ordered = np.sort(np.asarray(values, np.float64))
    ranks = np.arange(1, len(ordered) + 1)
    return float(np.sum((2 * ranks - len(ordered) - 1) * ordered) / (len(ordered) * ordered.sum()))


def log_spaced(n: int, points_max: int = _POINTS_MAX) -> list[int]:
    """Numbers from 1 to `n`, evenly spread on a logarithmic scale, each once, with both ends.

    >>> log_spaced(4), log_spaced(1000, 4), log_spaced(0)
    ([1, 2, 3, 4], [1, 10, 100, 1000], [])
    """
    if n < 1:
        return []
    found = np.unique(np.rint(np.geomspace(1, n, points_max)).astype(np.int64)).tolist()
    return [int(one) for one in found]


def ranks(counts: Counts) -> list[dict[str, float]]:
    """Token frequencies by rank: `rank` from 1 for the most frequent token, and its `count`. Leaves out unused tokens. Many ranks
    are thinned out evenly on a logarithmic scale."""
    ordered = np.sort(counts[counts > 0])[::-1]
    return [{"rank": rank, "count": int(ordered[rank - 1])} for rank in log_spaced(len(ordered))]


def coverage(counts: Counts) -> list[dict[str, float]]:
    """The `share` of all tokens that the most frequent `tokens` of the vocabulary are, for numbers of them evenly on a logarithmic
    scale."""
    covered = np.cumsum(np.sort(counts[counts > 0])[::-1])
    return [{"tokens": n, "share": int(covered[n - 1]) / int(covered[-1])} for n in log_spaced(len(covered))]


def by_vocab_size(model: Model, counts: Mapping[int, int], n_bytes: int) -> list[dict[str, float]] | None:
    """Compression by vocabulary size: each prefix of the merges is a tokenizer, and all belong to one training run.

    `counts`: how often each token occurs in the dataset, by id, special tokens included. `n_bytes`: the bytes of its text.
    Each row has `vocab_size` (tokens of the prefix, special tokens included) and the `bytes_per_token` of the same text.

    The result is exact and needs no encoding. While text is encoded, merges are applied in the order of their ranks, so the first
    k merges give what the full tokenizer has after k merges. A token is always made by the same merges; so the number of times
    that each merge is applied follows from the counts of the tokens, and each application makes one token of two.
    None if that does not hold: two merges make the same token, a merge comes before those of its parts, or the model takes whole
    pre-tokens without merging (`ignore_merges`).
    """
    rows = np.frombuffer(Merges.of(model.merges).rows, "<u4").reshape(-1, len(Merge._fields))
    rows = rows[np.argsort(rows[:, 2], kind="stable")]
    merged_tokens = rows[:, 3].tolist()
    rank_of = {token: i for i, token in enumerate(merged_tokens)}
    if model.ignore_merges or model.nfc or len(rank_of) < len(merged_tokens) or not n_bytes:
        return None
    applied = dict(counts)
    for i, (left, right, _rank, token) in reversed(list(enumerate(rows.tolist()))):
        if max(rank_of.get(left, -1), rank_of.get(right, -1)) >= i:
            return None
        if n := applied.get(token):
            applied[left] = applied.get(left, 0) + n
            applied[right] = applied.get(right, 0) + n
    # After k merges, every later application has not yet made one token of two.
    undone = np.cumsum([0, *(applied.get(token, 0) for token in reversed(merged_tokens))])[::-1]
    n_tokens = sum(counts.values()) + undone
    n_first = len(model.token_bytes()) - len(merged_tokens)
    sizes = _spread(n_first, n_first + len(merged_tokens))
    return [{"vocab_size": size, "bytes_per_token": n_bytes / max(int(n_tokens[size - n_first]), 1)} for size in sizes]


def _spread(first: int, last: int) -> list[int]:
    found = np.unique(np.rint(np.geomspace(max(first, 1), max(last, 1), _POINTS_MAX)).astype(np.int64))
    return [int(size) for size in found if first <= size <= last]


def lengths(n_tokens: Counts, n_documents: Counts) -> dict[str, Any]:
    """The distribution of document lengths. `n_tokens`: distinct lengths in tokens, ascending. `n_documents`: the number of
    documents of each.

    `percentiles` has the smallest length that the share of all documents does not exceed; `histogram` has documents by powers of
    two: from `from` tokens to one less than twice that (0 alone in the first).
    """
    if not len(n_tokens):
        return {"n_documents": 0, "mean": None, "percentiles": {}, "histogram": []}
    total = int(n_documents.sum())
    ends = np.cumsum(n_documents)
    percentiles = {
        name: int(n_tokens[np.searchsorted(ends, math.ceil(share * total))])
        for name, share in (("min", 1 / total), ("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }
    # The bin of n is the number of its bits. frexp is exact below 2^53.
    bins = np.frexp(n_tokens.astype(np.float64))[1]
    n_by_bin = np.bincount(bins, n_documents).astype(np.int64).tolist()
    return {
        "n_documents": total,
        "mean": round(float((n_tokens * n_documents).sum() / total), 2),
        "percentiles": percentiles,
        "histogram": [
            {"from": 0 if i == 0 else 2 ** (i - 1), "documents": n}
            for i, n in enumerate(n_by_bin)
            if i >= int(bins.min())
        ],
    }
