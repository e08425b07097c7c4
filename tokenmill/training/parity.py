"""Learns a vocabulary that serves groups of documents alike: parity-aware BPE (Foroutan et al. 2025, arXiv 2508.04796)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenmill import _core
from tokenmill.errors import ParamsError
from tokenmill.special_tokens import listed
from tokenmill.training.bpe import Goal, Running, start_of
from tokenmill.training.learned import Learned, learned_of

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = "train_vocab.parity"


@dataclass(frozen=True)
class Turns:
    """How groups take turns. `global_merges`: the number of first merges that are chosen by the counts of all groups together.
    `window`: a group is passed over while it had more than alpha / groups of the last turns: the number of these turns, and alpha;
    None: the worst group always goes next."""

    global_merges: int = 0
    window: tuple[int, float] | None = None


_GOAL, _TURNS, _RUNNING = Goal(), Turns(), Running()


def learn_parity(
    groups: Mapping[str, pa.Table],
    vocab_sizes: Sequence[int],
    pattern: str | None,
    special_tokens: Sequence[str],
    goal: Goal = _GOAL,
    turns: Turns = _TURNS,
    ratio: Mapping[str, float] | None = None,
    dev: Mapping[str, pa.Table] | None = None,
    running: Running = _RUNNING,
) -> Learned:
    """A vocabulary of several sizes, as `learn` gives it, whose merges are those of tokenizers' ParityBpeTrainer.

    Each merge is the most frequent pair of the group whose text is compressed worst. `groups`: counts by the name of the group, in
    the order that decides between groups that are equally bad. `dev`: counts of a text with the same content for each group; the
    group with the most tokens of it is the worst. Otherwise it is the one with the lowest bytes per token over its `ratio` (None: 1
    for all). Of equal counts in the group, the pair is merged whose left side, and then whose right side, is the last in the order
    of characters in tokenizer.json. A group without a pair of `goal.pair_count_min` is left out from then on. One thread learns.

    Raises ParamsError, PatternError or CountsError.

    >>> from tokenmill import Counter
    >>> def counts_of(text):
    ...     counter = Counter(pattern="gpt2")
    ...     counter.update([text])
    ...     return counter.finish()
    >>> groups = {"en": counts_of("low low low low lower lowest"), "xx": counts_of("zuz zuz")}
    >>> tokenizer = learn_parity(groups, [260], "gpt2", []).tokenizers[0]
    >>> [tokenizer.token_bytes(id) for id in range(256, 260)]
    [b'ow', b'zu', b'low', b'zuz']
    """
    from tokenmill.counts.table import check_schema

    for name, counts in groups.items():
        check_schema(counts, f"the counts of {name!r}")
    if goal.score != "count":
        raise ParamsError("score", f"found {goal.score!r}; allowed with parity: count.")
    start = start_of(vocab_sizes, pattern, special_tokens, goal)
    _refuse_others("ratio", ratio, groups)
    _refuse_others("dev", dev, groups)
    model = start.model
    tokens = [model.tokens[id] for id in sorted(model.tokens)]
    merges, n_text_tokens, new_tokens = _core.train_parity(
        [(counts["pretoken"], counts["count"]) for counts in groups.values()],
        None if dev is None else [(dev[name]["pretoken"], dev[name]["count"]) for name in groups],
        [1.0 if ratio is None else float(ratio[name]) for name in groups],
        tokens,
        max(vocab_sizes) - len(tokens) - len(model.added),
        goal.pair_count_min,
        goal.token_bytes_max,
        start.forbidden,
        turns.global_merges,
        turns.window,
        running.progress,
    )
    return learned_of(model, merges, tokens + new_tokens, vocab_sizes, goal.pad_vocab_to, n_text_tokens)


def _refuse_others(key: str, found: Mapping[str, object] | None, groups: Mapping[str, object]) -> None:
    if found is None or found.keys() == groups.keys():
        return
    lacking, unknown = groups.keys() - found.keys(), found.keys() - groups.keys()
    words = (
        f"no value for {listed(sorted(lacking))}" if lacking else f"{listed(sorted(unknown))}, which no document has"
    )
    raise ParamsError(f"{_KEY}.{key}", f"found {words}; expected a value for each of {listed(groups)}.")
