"""Training by any score, done naively: the oracle for the scores of the core; it recounts everything for each merge."""

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise

from tests.reference import Pair, merged

SCORES: dict[str, Callable[[int, int, int, int], Fraction]] = {  # of count, left's count, right's count, bytes
    "count": lambda count, _left, _right, _n_bytes: Fraction(count),
    "wordpiece": lambda count, left, right, _n_bytes: Fraction(count, left * right),
    "bytes_saved": lambda count, _left, _right, n_bytes: Fraction(count * (n_bytes - 1)),
}


def train(counts: Mapping[bytes, int], n_tokens_max: int, order: bytes, pair_count_min: int, score: str) -> list[Pair]:
    """The merges, the highest score first. Only where no two merges make the same token."""
    ids = {bytes([byte]): place for place, byte in enumerate(order)}
    words = {text: [bytes([byte]) for byte in text] for text in counts}
    merges: list[Pair] = []
    while len(merges) < n_tokens_max:
        pairs: Counter[Pair] = Counter()
        tokens: Counter[bytes] = Counter()
        for text, word in words.items():
            for token in word:
                tokens[token] += counts[text]
            for pair in pairwise(word):
                pairs[pair] += counts[text]
        ranked = [
            (
                -SCORES[score](count, tokens[left], tokens[right], len(left + right)),
                ids[left],
                ids[right],
                (left, right),
            )
            for (left, right), count in pairs.items()
            if count >= max(1, pair_count_min)
        ]
        if not ranked:
            break
        best = min(ranked)[3]
        merges.append(best)
        ids.setdefault(b"".join(best), len(ids))
        words = {text: merged(word, best) for text, word in words.items()}
    return merges
