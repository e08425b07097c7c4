"""Byte-pair encoding done naively: the oracle. It recounts every pair for each merge, and merges one pair at a time.

Symbols are the bytes of tokens, so no table of ids can hide a mistake. Training follows tokenizers' BpeTrainer: the
highest count first, then the smaller left and right id; ids of bytes are their places in `order`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Pair = tuple[bytes, bytes]


def merged(word: Sequence[bytes], pair: Pair) -> list[bytes]:
    """The word with every place of the pair joined, from left to right."""
    out: list[bytes] = []
    at = 0
    while at < len(word):
        n = 2 if tuple(word[at : at + 2]) == pair else 1
        out.append(b"".join(word[at : at + n]))
        at += n
    return out


def train(counts: Mapping[bytes, int], n_tokens_max: int, order: bytes, pair_count_min: int = 1) -> list[Pair]:
    """The merges. Only for counts in which no two merges make the same token (`makes_a_token_twice`)."""
    ids = {bytes([byte]): place for place, byte in enumerate(order)}
    words = {text: [bytes([byte]) for byte in text] for text in counts}
    merges: list[Pair] = []
    while len(merges) < n_tokens_max:
        pairs: Counter[Pair] = Counter()
        for text, word in words.items():
            for pair in pairwise(word):
                pairs[pair] += counts[text]
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]), default=None)
        if best is None or pairs[best] < max(1, pair_count_min):
            break
        merges.append(best)
        ids.setdefault(b"".join(best), len(ids))
        words = {text: merged(word, best) for text, word in words.items()}
    return merges


def makes_a_token_twice(merges: Sequence[Pair]) -> bool:
    return len({b"".join(pair) for pair in merges}) < len(merges)


def encode(pretoken: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """The tokens of a pre-token: the pair of the lowest rank, of those the leftmost, joined until none is left."""
    word = [bytes([byte]) for byte in pretoken]
    while True:
        places = [(ranks[pair], at) for at, pair in enumerate(pairwise(word)) if pair in ranks]
        if not places:
            return word
        _, at = min(places)
        word[at : at + 2] = [word[at] + word[at + 1]]
