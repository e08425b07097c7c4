"""Learns tokens of several words after those within words: the second phase of SuperBPE (Liu et al. 2025, arXiv 2503.13423).

The pre-tokens of the second phase are sentences, nearly all of which occur once. They are encoded with the tokens of the first
phase, and cut into phrases where no merge of the second phase can be (see core/src/train/superwords.rs). Phrases repeat, so they
are counted like pre-tokens, spilled where memory ends, and learned from.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill import _core
from tokenmill.counts.counter import Counter, count_phrases
from tokenmill.errors import CountsError, ParamsError
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.pretokenizers.patterns import steps_of
from tokenmill.tokenizer.model import Model
from tokenmill.training.bpe import Goal, Running, Start, learn_allowed
from tokenmill.training.learned import Learned
from tokenmill.training.places import place_encoder

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.tokenizer.tokenizer import Tokenizer

Batches = Callable[[], Iterable["pa.RecordBatch"]]

_SLOTS_BITS_MAX = 26  # 256 MB; with fewer, more neighbours share a slot, and phrases are longer
_SLOTS_BITS_MIN = 10
_FLOOR_RANK = 4  # at least so many pairs of neighbours for each token to learn reach the floor
_LOWER_BY = 8
# A token of a phrase takes 4 bytes in the table, 4 of cells and 5 of positions; a phrase takes 12, 4 of cells and 8 of offsets.
_MEMORY_PER_TABLE_BYTE = 3.5
_RUNNING = Running()


@dataclass(frozen=True)
class Room:
    """Where phrases are counted. `memory_mb`: what counting them may take, and then learning from them. `spill_directory`: where
    they go beyond it; None: the system's temporary directory."""

    memory_mb: int = 4096
    spill_directory: Path | None = None


@dataclass(frozen=True)
class LearnedSuperwords:
    """The result of the second phase. `learned`: see Learned; its `n_text_tokens` are those of the whole text. `text_bytes`: the
    bytes of the text. `n_text_tokens_before`: its tokens after the first phase. `n_by_words`: how many of the new tokens have so
    many words."""

    learned: Learned
    text_bytes: int
    n_text_tokens_before: int
    n_by_words: dict[int, int]


def learn_superwords(
    base: Tokenizer,
    batches: Batches,
    pattern: str,
    vocab_size: int,
    goal: Goal,
    running: Running = _RUNNING,
    room: Room = Room(),
) -> LearnedSuperwords:
    """The tokenizer with more tokens, up to `vocab_size` in all, learned from pre-tokens of several words, and with their pattern.

    `base`: the tokenizer of the first phase. `batches`: gives counts of the pre-tokens of `pattern`, in batches; it is called more
    than once. `goal.words_max`: a token has at most so many words. A word is bytes in a row without ASCII white space. A token
    with ": " inside is not made, nor is one that there is already, in another way. Otherwise the rules are those of `train_vocab`.

    Raises ParamsError, PatternError, and CountsError for phrases that take more memory than allowed.

    >>> from tokenmill import Counter, train_vocab
    >>> def counted(pattern):
    ...     counter = Counter(pattern)
    ...     counter.update(["by the way", "by the sea"])
    ...     return counter.finish()
    >>> base = train_vocab(counted("gpt2"), 260, "gpt2")
    >>> goal = Goal(words_max=2)
    >>> made = learn_superwords(base, counted("superbpe").to_batches, "superbpe", 262, goal).learned.tokenizers[0]
    >>> [made.token_bytes(id) for id in range(256, 262)]
    [b'by', b'he', b'the', b' the', b'by the', b'by the ']
    """
    steps = steps_of(pattern)
    pre_tokenizer_of(steps)  # a pattern that cannot be saved fails now, not after training
    model = base.model
    if model is None or goal.words_max is None or goal.score != "count":
        raise ParamsError("superwords", "expected a byte-level tokenizer, words_max, and score: count.")
    places_of = place_encoder(replace(model, ignore_merges=False), running.threads)

    def sentences() -> Iterator[tuple[Any, Any]]:
        for batch in batches():
            yield places_of(batch["pretoken"]), batch["count"]

    text_bytes = sum(_n_bytes(batch) for batch in batches())
    neighbours = _neighbours(model, goal, text_bytes, sentences())
    n_new = max(vocab_size - len(model.tokens) - len(model.added), 0)  # if negative, learning refuses it when it starts
    floor = max(goal.pair_count_min, neighbours.count_of_nth(_FLOOR_RANK * n_new))
    start = Start(replace(model, steps=steps), [token.text.encode() for token in model.added])
    while True:
        phrases = _counted(neighbours, sentences(), floor, room)
        words = _lists(phrases)
        above = replace(goal, pair_count_min=floor)
        learned = learn_allowed(replace(start, words=words), phrases, [vocab_size], above, running)
        if learned.n_merges == n_new or floor <= goal.pair_count_min:
            break
        floor = max(goal.pair_count_min, floor // _LOWER_BY)
    n_before = neighbours.n_tokens()
    n_saved = sum(_n_bytes(batch) // 4 for batch in phrases.to_batches()) - learned.n_text_tokens
    learned = replace(learned, n_text_tokens=n_before - n_saved)
    return LearnedSuperwords(learned, text_bytes, n_before, _n_by_words(learned, model))


def _neighbours(model: Model, goal: Goal, text_bytes: int, sentences: Iterable[tuple[Any, Any]]) -> _core.Neighbours:
    """The bounds of the counts of neighbouring tokens in the sentences."""
    assert goal.words_max is not None
    tokens = [model.tokens[id] for id in sorted(model.tokens)]
    n_bits = min(max(text_bytes.bit_length(), _SLOTS_BITS_MIN), _SLOTS_BITS_MAX)
    neighbours = _core.Neighbours(tokens, goal.words_max, goal.token_bytes_max, n_bits)
    for texts, counts in sentences:
        neighbours.note(texts, counts)
    return neighbours


def _counted(neighbours: _core.Neighbours, texts: Iterable[tuple[Any, Any]], floor: int, room: Room) -> pa.Table:
    """The phrases, as bytes of their tokens' places, with their counts."""
    import pyarrow as pa

    from tokenmill.counts.spill import SCHEMA

    counter = Counter(None, max(1, room.memory_mb // 4), threads=1, spill_directory=room.spill_directory)
    for lists, counts in texts:
        count_phrases(counter, neighbours, lists, counts, floor)
    batches, n_bytes = list[pa.RecordBatch](), 0
    for batch in counter.batches():
        batches.append(batch)
        n_bytes += batch.nbytes
        if n_bytes * _MEMORY_PER_TABLE_BYTE > room.memory_mb * 10**6:
            raise CountsError(
                "train_vocab.superwords",
                f"the phrases of tokens that occur {floor:,} times or more take more than the {room.memory_mb:,} MB that "
                "run.memory_mb_max leaves for learning.",
                "Raise it, or raise train_vocab.pair_count_min, or learn from less text.",
            )
    return pa.Table.from_batches(batches, SCHEMA)


def _lists(phrases: pa.Table) -> pa.ChunkedArray:
    """Phrases as lists of places."""
    import numpy as np
    import pyarrow as pa

    chunks = []
    for chunk in phrases["pretoken"].chunks:
        offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        values = np.frombuffer(chunk.buffers()[2] or b"", np.uint32)
        chunks.append(pa.LargeListArray.from_arrays(pa.array(offsets // 4, pa.int64()), pa.array(values)))
    return pa.chunked_array(chunks, pa.large_list(pa.uint32()))


def _n_by_words(learned: Learned, before: Model) -> dict[int, int]:
    """How many of the tokens that are not in `before` have so many words."""
    made = learned.tokenizers[0].model
    assert made is not None
    n_by_words = Tally(len(token.split()) for id, token in made.tokens.items() if id not in before.tokens)
    return dict(sorted(n_by_words.items()))


def _n_bytes(batch: pa.RecordBatch) -> int:
    import pyarrow.compute as pc

    n_bytes = pc.binary_length(batch["pretoken"]).cast("uint64")
    return pc.sum(pc.multiply_checked(n_bytes, batch["count"])).as_py() or 0
