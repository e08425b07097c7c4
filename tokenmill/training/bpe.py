"""Learns a byte-level BPE vocabulary from counts of pre-tokens, with the same merges as `tokenizers`' BpeTrainer."""

from __future__ import annotations

import collections
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, SupportsIndex, get_args

from tokenmill import _core
from tokenmill.arguments import threads_or_all
from tokenmill.counts.counter import Counter
from tokenmill.errors import ParamsError
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.pretokenizers.patterns import steps_of
from tokenmill.quantities import number_of
from tokenmill.special_tokens import RESERVED, RESERVED_MAX, listed
from tokenmill.tokenizer.model import (
    CHARACTERS,
    ID_MAX,
    AddedToken,
    Model,
    bytes_of,
    is_text,
)
from tokenmill.training.learned import MERGE, Learned, learned_of, taken_name, tokens_after
from tokenmill.training.places import place_encoder

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.arrow_texts import Texts
    from tokenmill.tokenizer.tokenizer import Tokenizer
    from tokenmill.training.checkpoint import Checkpoint

Score = Literal["count", "wordpiece", "bytes_saved"]
OnProgress = Callable[[int, int], None]

_N_BYTES = 256


@dataclass(frozen=True)
class Goal:
    """When learning stops and which pair it merges first; see `train_vocab`. `forbid`, `protect`: regexes over bytes. A token in
    which one of `forbid` is found is not made, nor one in which one of `protect` is found and which is not all of its match.
    `words_max`: see tokenmill.training.superwords; None for tokens within words."""

    pair_count_min: int = 2
    token_bytes_max: int | None = None
    score: Score = "count"
    pad_vocab_to: int = 1
    forbid: Sequence[str] = ()
    protect: Sequence[str] = ()
    words_max: int | None = None

    def refusal(self) -> Callable[[bytes], bool] | None:
        """Whether a token is refused, as a function; None if no token is."""
        forbid, protect = (
            [re.compile(pattern.encode(), re.DOTALL) for pattern in patterns]
            for patterns in (self.forbid, self.protect)
        )
        if not forbid and not protect:
            return None
        return lambda token: (
            any(one.search(token) for one in forbid)
            or any(one.search(token) and not one.fullmatch(token) for one in protect)
        )


@dataclass(frozen=True)
class Running:
    """How a training runs, which changes no merge. `threads`: those that encode the counts for `extend` and superwords; None uses
    all cores. One thread learns. `progress`: see `train_vocab`. `checkpoint`: where the state is saved now and then; a training
    that was killed resumes from it with the same result."""

    threads: int | None = None
    progress: OnProgress | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Start:
    """What a training begins with. `words`: the pre-tokens as lists of token positions; None for those of the counts, as bytes.
    `forbidden`: the tokens that no merge may make; `refused`: further ones, which the model does not imply."""

    model: Model
    forbidden: Sequence[bytes]
    words: pa.ChunkedArray | None = None
    refused: Sequence[bytes] = ()


def train_vocab(
    counts: pa.Table | Counter,
    vocab_size: int,
    pattern: str | None = None,
    special_tokens: Sequence[str] = (),
    pair_count_min: int = 2,
    token_bytes_max: int | None = None,
    threads: int | None = None,
    progress: OnProgress | None = None,
    score: Score = "count",
    pad_vocab_to: int = 1,
) -> Tokenizer:
    """A tokenizer of at most `vocab_size` tokens. The ids go first to the special tokens, then the 256 bytes, then learned tokens.

    `counts`: a Counter, which keeps its counts, or a table of pretoken (binary) and count (uint64). `pattern`: the split pattern
    that the pre-tokens of a table were counted with; a Counter knows its own. `pair_count_min`: a pair that occurs less often is
    not merged; when no such pair is left, learning stops, and a UserWarning says that the tokenizer is smaller than `vocab_size`.
    `token_bytes_max`: a token of more than
    two bytes is made only if it is shorter than this, as with `max_token_length` of BpeTrainer. `progress(n_tokens, n_merges)`
    is called now and then with the numbers learned so far. One thread learns, whatever `threads` is. A pair whose text is that of a
    special token is not merged.
    `score` decides which pair is merged first: "count" (BPE), "wordpiece" (count / (left's count × right's count)) or
    "bytes_saved" (count × (bytes - 1)); of equal pairs, the one with the smaller left id, then the smaller right id.
    `pad_vocab_to`: special tokens `<|reserved_0|>` … are appended until the size is a multiple of it.
    Raises ParamsError, PatternError or CountsError.

    >>> from tokenmill import Counter
    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["low low lower lowest"])
    >>> tokenizer = train_vocab(counter, vocab_size=260)
    >>> tokenizer.vocab_size, tokenizer.token_bytes(257)
    (260, b'low')
    """
    goal = Goal(pair_count_min, token_bytes_max, score, pad_vocab_to)
    if isinstance(counts, Counter):
        if pattern is not None and steps_of(pattern) != counts.steps:
            raise ParamsError(
                "pattern",
                f"found {pattern!r}; the counter used another pattern.",
                "Leave it out: a Counter knows its own.",
            )
        counts, pattern = counts.table(), counts.pattern
    learned = learn(counts, [vocab_size], pattern, special_tokens, goal, Running(threads, progress)).tokenizers[0]
    if learned.vocab_size < vocab_size:
        warnings.warn(
            f"vocab_size: asked for {vocab_size:,}; learned {learned.vocab_size:,}, as no pair is left that may be merged. "
            "Count more text, or ask for fewer tokens.",
            stacklevel=2,
        )
    return learned


def learn(
    counts: pa.Table,
    vocab_sizes: Sequence[int],
    pattern: str | None,
    special_tokens: Sequence[str],
    goal: Goal,
    running: Running = Running(),
) -> Learned:
    """One training for several sizes, because a smaller vocabulary is the beginning of a larger one. See `train_vocab`."""
    from tokenmill.counts.table import check_schema

    start = start_of(vocab_sizes, pattern, special_tokens, goal)
    check_schema(counts, "counts")
    return learn_allowed(start, counts, vocab_sizes, goal, running)


def start_of(vocab_sizes: Sequence[int], pattern: str | None, special_tokens: Sequence[str], goal: Goal) -> Start:
    """The start of a new vocabulary: special tokens and bytes. Raises ParamsError or PatternError for wrong parameters."""
    steps = steps_of(pattern)
    pre_tokenizer_of(steps)  # a pattern that cannot be saved fails now, not after training
    _check_special_tokens(special_tokens)
    _check_reserved(special_tokens, goal.pad_vocab_to)
    added = [AddedToken(id, text, special=True, in_vocab=True) for id, text in enumerate(special_tokens)]
    tokens = {len(added) + symbol: bytes([byte]) for symbol, byte in enumerate(_core.byte_order())}
    start = Model(tokens, (), steps, tuple(added), ignore_merges=False)
    _check_goal(vocab_sizes, goal, start)
    return Start(start, [token for text in special_tokens if (token := bytes_of(text)) is not None])


def extend(
    tokenizer: Tokenizer, counts: pa.Table, vocab_size: int, goal: Goal, running: Running = Running()
) -> Learned:
    """The tokenizer with more tokens, up to `vocab_size` in all, learned from counts of new text.

    Old ids and merges are kept. New ids follow the largest old id, and new merges come after all old ones. The counts must be
    made with the tokenizer's own split pattern, of what its `preparation` makes of texts. Raises ParamsError for a tokenizer that
    the core cannot run, and CountsError.

    >>> from tokenmill import Counter
    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["low low lower lowest"])
    >>> tokenizer = train_vocab(counter, vocab_size=258, pattern="gpt2")
    >>> counter.update(["new newer newest"])
    >>> longer = extend(tokenizer, counter.finish(), vocab_size=260, goal=Goal()).tokenizers[0]
    >>> [longer.token_bytes(id) for id in range(256, 260)]
    [b'lo', b'low', b'ew', b'new']
    """
    import pyarrow as pa

    from tokenmill.counts.table import check_schema

    check_schema(counts, "counts")
    model = tokenizer.model
    if model is None:
        raise ParamsError(
            f"a tokenizer of the engine {tokenizer.engine!r} cannot be extended; expected byte-level BPE."
        )
    places_of = place_encoder(model, running.threads)
    words = pa.chunked_array(map(places_of, counts["pretoken"].chunks), pa.large_list(pa.uint32()))
    # Old merges run before new ones, so a second way to make an old token could never apply: no new pair may make one.
    forbidden = [*model.tokens.values(), *(token.text.encode() for token in model.added)]
    tokens = model.merged_tokens()
    start = replace(model, tokens=tokens, added=tuple(token for token in model.added if token.id not in tokens))
    learned = learn_allowed(Start(start, forbidden, words), counts, [vocab_size], goal, running)
    return replace(learned, tokenizers=[_with_added(longer, model.added) for longer in learned.tokenizers])


def _with_added(longer: Tokenizer, added: Sequence[AddedToken]) -> Tokenizer:
    """The tokenizer in which the old added tokens are found in texts again, also those that merges make."""
    from tokenmill.tokenizer.tokenizer import Tokenizer

    model = longer.model
    assert model is not None
    old = {added_token.id for added_token in added}
    tokens = {id: token for id, token in model.tokens.items() if id not in old}
    new = (added_token for added_token in model.added if added_token.id not in old)
    return Tokenizer(replace(model, tokens=tokens, added=(*added, *new)))


def changed_documents(old: Tokenizer, new: Tokenizer, texts: Texts) -> int:
    """How many of the texts get different ids from the new tokenizer."""
    import numpy as np

    before, after = old.encode_batch(texts), new.encode_batch(texts)
    one_ends, other_ends = before.offsets.to_numpy(), after.offsets.to_numpy()
    one, other = before.values.to_numpy(), after.values.to_numpy()
    same_length = np.diff(one_ends) == np.diff(other_ends)
    return sum(
        not same or not np.array_equal(one[one_ends[i] : one_ends[i + 1]], other[other_ends[i] : other_ends[i + 1]])
        for i, same in enumerate(same_length)
    )


def learn_allowed(start: Start, counts: pa.Table, vocab_sizes: Sequence[int], goal: Goal, running: Running) -> Learned:
    """Trains again without the tokens that `goal` refuses, until none of them is made.

    A training that refuses each such token as it comes up gives the same: one that was never made did not come up."""
    is_refused = goal.refusal()
    if is_refused is None:
        return _learn(start, counts, vocab_sizes, goal, running)
    given, refused = set(start.model.tokens.values()), list[bytes]()
    while True:
        learned = _learn(replace(start, refused=refused), counts, vocab_sizes, goal, running)
        models = (tokenizer.model for tokenizer in learned.tokenizers)
        made = {token for model in models if model is not None for token in model.tokens.values()} - given
        found = sorted(filter(is_refused, made))
        if not found:
            return replace(learned, n_refused=len(refused))
        refused += found


def _learn(start: Start, counts: pa.Table, vocab_sizes: Sequence[int], goal: Goal, running: Running) -> Learned:
    model, checkpoint = start.model, running.checkpoint
    _check_goal(vocab_sizes, goal, model)
    threads_or_all(running.threads)  # a wrong number is an error, although one thread learns
    n_added = len(model.added)
    first = [model.tokens[id] for id in sorted(model.tokens)]
    n_tokens_max = max(vocab_sizes) - len(first) - n_added
    key, kept, earlier = "", None, b""
    if checkpoint:
        from tokenmill.training.checkpoint import key_of

        limits = (n_tokens_max, goal.score, goal.pair_count_min, goal.token_bytes_max, goal.words_max, *start.refused)
        key = key_of(counts, _core.CODE_HASH, model, *limits)
        kept = checkpoint.load(key)
    source = (counts["pretoken"] if start.words is None else start.words), counts["count"]
    if kept:
        table, earlier = kept
        source = table["ids"], table["count"]
    tokens = tokens_after(first, earlier)

    def keep(words_now: pa.Table, merges_now: bytes) -> None:
        assert checkpoint
        checkpoint.save(key, words_now, earlier + merges_now)

    def show(n_tokens: int, n_merges: int) -> None:
        if running.progress:
            running.progress(n_tokens + len(tokens) - len(first), n_merges + len(earlier) // MERGE.size)

    learned, n_text_tokens, new_tokens = _core.train(
        *source,
        tokens,
        _N_BYTES if goal.words_max else len(first),  # with superwords, only bytes are exempt from token_bytes_max
        n_tokens_max - (len(tokens) - len(first)),
        goal.score,
        goal.pair_count_min,
        goal.token_bytes_max,
        [*start.forbidden, *start.refused],
        show,
        checkpoint.every if checkpoint else None,
        keep if checkpoint else None,
        goal.words_max,
    )
    merges = earlier + learned
    tokens += new_tokens
    learned_all = learned_of(model, merges, tokens, vocab_sizes, goal.pad_vocab_to, n_text_tokens)
    if checkpoint:
        checkpoint.remove()
    return learned_all


def _check_reserved(special_tokens: Sequence[str], pad_vocab_to: int) -> None:
    for text in special_tokens:
        if (found := RESERVED.fullmatch(text)) and int(found[1]) < pad_vocab_to - 1:
            raise taken_name(text)


def _check_special_tokens(special_tokens: Sequence[str]) -> None:
    if isinstance(special_tokens, str):
        raise ParamsError(
            "special_tokens", f"expected a list of texts; found the text {special_tokens!r}.", "Put it into a list."
        )
    for text in special_tokens:
        if not is_text(text):
            raise ParamsError("special_tokens", f"found {text!r:.60}; expected a text that is not empty.")
        if text in CHARACTERS:
            raise ParamsError(
                "special_tokens", f"{text!r} is how tokenizer.json writes a byte.", "Choose a longer text."
            )
    if len(set(special_tokens)) < len(special_tokens):
        n_of = collections.Counter(special_tokens)
        twice = listed(text for text, n in n_of.items() if n > 1)
        raise ParamsError("special_tokens", f"expected every token once; found twice: {twice}.")


def _check_goal(vocab_sizes: Sequence[int], goal: Goal, start: Model) -> None:
    smallest = len(start.tokens) + len(start.added)
    what = "bytes" if len(start.tokens) == _N_BYTES else "old tokens"
    for vocab_size in vocab_sizes:
        if not hasattr(vocab_size, "__index__") or not smallest <= vocab_size <= ID_MAX:
            raise ParamsError(
                "vocab_size",
                f"found {vocab_size!r}; allowed: a whole number, {smallest} ({len(start.tokens)} {what} + "
                f"{number_of(len(start.added), 'special token')}) to {ID_MAX}.",
            )
    if goal.score not in get_args(Score):
        raise ParamsError("score", f"found {goal.score!r}; allowed: {', '.join(get_args(Score))}.")
    _check_whole("pair_count_min", goal.pair_count_min, 1)
    if goal.token_bytes_max is not None:
        _check_whole("token_bytes_max", goal.token_bytes_max, 2)
    _check_whole("pad_vocab_to", goal.pad_vocab_to, 1, RESERVED_MAX)


def _check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, SupportsIndex) and low <= value.__index__() and (high is None or value.__index__() <= high):
        return
    allowed = f"{low} or more" if high is None else f"{low} to {high}"
    raise ParamsError(name, f"found {value!r}; allowed: a whole number, {allowed}.")
