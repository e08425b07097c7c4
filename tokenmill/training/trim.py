"""Trims a tokenizer: takes out the tokens that are used least, and renumbers the others."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokenmill.errors import ParamsError
from tokenmill.tokenizer.formats.tiktoken_file import with_own_ranks
from tokenmill.tokenizer.model import Merge, Merges, Model, bytes_of

if TYPE_CHECKING:
    from tokenmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Trimmed:
    """The result of trimming. `dropped`: the old ids of the tokens that went, in their order. `last_count`: the count of the last
    of them, with what it took over; None if none went."""

    tokenizer: Tokenizer
    dropped: list[int]
    last_count: int | None


def trim(
    tokenizer: Tokenizer,
    counts: Sequence[int],
    keep: int | None = None,
    min_count: int | None = None,
    chosen: Collection[str] = (),
) -> Trimmed:
    """The tokenizer with `keep` tokens, special tokens included; or without the tokens that are used less than `min_count` times.

    `counts`: how often each id is used, by id. A token goes only if no merge has it as a part: a leaf. At each step the leaf with
    the lowest count goes, and of leaves with equal counts the one with the largest id. Its count is added to those of the two parts
    of its first merge, which stand in its place. Bytes, added tokens, and the `chosen` tokens with their parts stay. The ids of the
    others follow each other from 0 in the order of the old ids, and the merges keep their order.

    Raises ParamsError for a tokenizer that is not byte-level, and for settings that do not fit it.

    >>> from tokenmill import Counter, train_vocab
    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["low low lower lowest"])
    >>> tokenizer = train_vocab(counter, vocab_size=300, pattern="gpt2")
    >>> trimmed = trim(tokenizer, [0] * tokenizer.vocab_size, keep=257)
    >>> [tokenizer.token_bytes(id) for id in trimmed.dropped], trimmed.tokenizer.token_bytes(256)
    ([b' lowe', b' low', b'low'], b'lo')
    """
    from tokenmill.tokenizer.tokenizer import Tokenizer

    if (keep is None) == (min_count is None):
        raise ParamsError("trim", "expected one of keep and min_count.", "Give one of them.")
    if tokenizer.model is None:
        raise ParamsError(f"a tokenizer of the engine {tokenizer.engine!r} cannot be trimmed; expected byte-level BPE.")
    model = with_own_ranks(tokenizer.model)
    leaves = _Leaves(model, counts, _staying(model, chosen))
    n_tokens = tokenizer.vocab_size
    if keep is not None and not leaves.n_staying <= keep <= n_tokens:
        raise ParamsError(
            "keep",
            f"found {keep:,}; allowed: {leaves.n_staying:,} (bytes, added and chosen tokens with their parts) to {n_tokens:,}, "
            "the size of the tokenizer.",
        )
    dropped: list[int] = []
    last_count = None
    while (count := leaves.lowest()) is not None:
        if len(dropped) == n_tokens - keep if keep is not None else count >= (min_count or 0):
            break
        dropped.append(leaves.drop())
        last_count = count
    return Trimmed(Tokenizer(without(model, dropped)), dropped, last_count)


class _Leaves:
    """The tokens that can go now, by their counts."""

    def __init__(self, model: Model, counts: Sequence[int], staying: Collection[int]) -> None:
        self._made: dict[int, list[Merge]] = defaultdict(list)
        for merge in sorted(model.merges, key=lambda one: one.rank):
            self._made[merge.token].append(merge)
        self._n_uses = Counter(part for merge in model.merges for part in (merge.left, merge.right))
        self._counts = Counter({id: int(count) for id, count in enumerate(counts)})
        whole = self._with_parts({*staying, *(added_token.id for added_token in model.added)})
        self.n_staying = len(whole)
        self._can_go = model.tokens.keys() - whole
        self._heap = [(self._counts[id], -id) for id in self._can_go if not self._n_uses[id]]
        heapq.heapify(self._heap)

    def lowest(self) -> int | None:
        """The count of the leaf that goes next; None if none is left."""
        return self._heap[0][0] if self._heap else None

    def drop(self) -> int:
        """Takes out that leaf, and gives its id."""
        count, minus = heapq.heappop(self._heap)
        for i, merge in enumerate(self._made[-minus]):
            parts = merge.left, merge.right
            for part in parts:
                self._counts[part] += count * (i == 0)
                self._n_uses[part] -= 1
            for part in {*parts}:  # its count is final: only tokens of which it is a part add to it
                if not self._n_uses[part] and part in self._can_go:
                    heapq.heappush(self._heap, (self._counts[part], -part))
        return -minus

    def _with_parts(self, ids: Collection[int]) -> set[int]:
        """These tokens of the vocabulary, and all that they are made of."""
        reached, todo = set(ids), list(ids)
        while todo:
            for merge in self._made[todo.pop()]:
                todo += {merge.left, merge.right} - reached
                reached |= {merge.left, merge.right}
        return reached


def without(model: Model, dropped: Collection[int]) -> Model:
    """The model without some tokens and their merges, and with new ids: from 0, in the order of the old ones."""
    import numpy as np

    gone, all_ids = set(dropped), {*model.tokens, *(added_token.id for added_token in model.added)}
    ids = sorted(all_ids - gone)
    new_of = {id: new for new, id in enumerate(ids)}
    old = np.frombuffer(Merges.of(model.merges).rows, "<u4").reshape(-1, len(Merge._fields))
    old = old[np.argsort(old[:, Merge._fields.index("rank")], kind="stable")]
    table = np.zeros(max(all_ids) + 1, np.uint32)
    table[ids] = range(len(ids))
    left, right, _, token = old[~np.isin(old[:, -1], list(gone))].T
    rows = np.stack([table[left], table[right], np.arange(len(token), dtype=np.uint32), table[token]], axis=1)
    return replace(
        model,
        tokens={new_of[id]: token for id, token in sorted(model.tokens.items()) if id not in gone},
        merges=Merges(rows.astype("<u4").tobytes()),
        added=tuple(replace(added_token, id=new_of[added_token.id]) for added_token in model.added),
        not_applied=_renumbered(model.not_applied, lambda id: new_of.get(id, id)),
    )


def _staying(model: Model, chosen: Collection[str]) -> set[int]:
    """The tokens of the vocabulary that must not go: bytes, chosen ones, and those that the rest of tokenizer.json names."""
    id_of = {token: id for id, token in model.tokens.items()}
    texts = {added_token.text for added_token in model.added}
    lacking = [text for text in chosen if text.encode() not in id_of and text not in texts]
    if lacking:
        raise ParamsError("chosen", f"found {lacking[0]!r}, which is no token.", "Take it out, or correct it.")
    named = set[int]()

    def note(id: int) -> int:
        named.add(id)
        return id

    _renumbered(model.not_applied, note)
    unknown = bytes_of(str(model.not_applied.get("model", {}).get("unk_token") or ""))
    staying = {id for token, id in id_of.items() if len(token) == 1 or token == unknown or id in named}
    return staying | {id_of[text.encode()] for text in chosen if text.encode() in id_of}


def _renumbered(part: Any, new_of: Callable[[int], int]) -> Any:
    """What encoding does not apply of a tokenizer.json, with new ids."""
    if isinstance(part, Mapping):
        renumbered: dict[str, Any] = {}
        for key, value in part.items():
            match key, value:
                case "ids", list():
                    renumbered[key] = [new_of(id) for id in value]
                case "pad_id", int():
                    renumbered[key] = new_of(value)
                case (("sep" | "cls"), [str(text), int(id)]):
                    renumbered[key] = [text, new_of(id)]
                case _:
                    renumbered[key] = _renumbered(value, new_of)
        return renumbered
    return [_renumbered(value, new_of) for value in part] if isinstance(part, list) else part
