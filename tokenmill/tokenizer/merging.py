"""Applies merges to ids in Python, for bytes that need not be text."""

from collections.abc import Mapping
from itertools import pairwise

from tokenmill.tokenizer.model import ID_MAX, Merge

Rules = Mapping[tuple[int, int], Merge]
"""Merges by the pair that they join."""

_NEVER = Merge(0, 0, ID_MAX + 1, 0)


def merge_all(ids: list[int], rules: Rules) -> Merge | None:
    """Joins pairs of these ids, in place, until no merge is left: the pair of the lowest rank first, and the leftmost of several.
    Gives the last merge; None if there was none."""
    ranks = [rules.get(pair, _NEVER).rank for pair in pairwise(ids)]
    last = None
    while ranks:
        i = ranks.index(min(ranks))
        if (merge := rules.get((ids[i], ids[i + 1]))) is None:
            break
        last = merge
        ids[i : i + 2] = [last.token]
        beside = slice(max(i - 1, 0), i + 2)
        ranks[beside] = [rules.get(pair, _NEVER).rank for pair in pairwise(ids[beside])]
    return last
