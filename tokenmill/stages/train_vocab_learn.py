"""train-vocab, first part: counts of pre-tokens → tokenizers of several sizes, as one task."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from tokenmill.config.params import Params
from tokenmill.config.training_params import N_BYTES, TrainVocab
from tokenmill.console import Advance, progress
from tokenmill.counts.table import read_counts
from tokenmill.layout import CHECKPOINT_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.memory import Memory
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Task
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, OnProgress, Running, extend, learn
from tokenmill.training.checkpoint import Checkpoint
from tokenmill.training.learned import Learned
from tokenmill_reader.regular_files import sha256_file


class GroupTokens(msgspec.Struct, frozen=True):
    """The text of a group of documents: its bytes, and its tokens with plain BPE and with the learned tokenizer."""

    name: str
    n_bytes: int
    n_tokens_plain: int
    n_tokens: int


class SuperwordsFacts(msgspec.Struct, frozen=True):
    """The figures of the second phase: see tokenmill.training.superwords.Superwords. `n_tokens_before`: the tokens of the first
    phase's vocabulary. `n_by_words`: pairs of a number of words and a number of tokens."""

    n_tokens_before: int
    text_bytes: int
    n_text_tokens_before: int
    n_by_words: list[tuple[int, int]]

    def by_words(self) -> dict[str, int]:
        """The numbers of tokens by numbers of words, as JSON has them."""
        return {str(n_words): n for n_words, n in self.n_by_words}


class LearnFacts(Facts, frozen=True):
    """The figures of a training (see Learned), whose tokenizers are files. `last_count` of a trimming: see Trimmed. `groups`: only
    with train_vocab.parity. `superwords`: only of the second phase of train_vocab.superwords."""

    n_merges: int
    last_count: int | None
    n_text_tokens: int
    n_refused: int = 0
    groups: list[GroupTokens] = msgspec.field(default_factory=list)
    superwords: SuperwordsFacts | None = None

    def __str__(self) -> str:
        return number_of(self.n_merges, "merge")


class LearnTask(Task[LearnFacts], frozen=True, kw_only=True):
    """Learns tokenizers of several sizes from a table of counts. `base`: the tokenizer to extend, or None. `sizes`: the largest
    first. `threads`: those that encode the counts for `extend`."""

    table: Path
    base: Tokenizer | None
    pattern: str | None
    special_tokens: Sequence[str]
    sizes: Sequence[int]
    goal: Goal
    threads: int
    checkpoint: Checkpoint | None

    def run(self, folder: Path, advance: Advance) -> LearnFacts:
        """Writes a tokenizer.json for each size (see Task)."""
        counts = read_counts(self.table)
        n_first = self.base.vocab_size if self.base else N_BYTES + len(self.special_tokens)
        with shown(self.sizes[0], n_first) as show:
            options = self.goal, Running(self.threads, show, self.checkpoint)
            learned = (
                extend(self.base, counts, self.sizes[0], *options)
                if self.base
                else learn(counts, self.sizes, self.pattern, self.special_tokens, *options)
            )
        return written(learned, folder)


@contextmanager
def shown(n_tokens_max: int, n_first: int) -> Iterator[OnProgress]:
    """Shows the progress of a training that begins with `n_first` tokens: gives what is called with the tokens learned so far."""
    n_done = 0
    with progress("train-vocab", n_tokens_max, "tokens") as now:
        now.skip(n_first)

        def show(n_tokens: int, _n_merges: int) -> None:
            nonlocal n_done
            now.add(n_tokens - n_done)
            n_done = n_tokens

        yield show


def write_all(tokenizers: Sequence[Tokenizer], folder: Path) -> None:
    """Writes a tokenizer.json for each of the tokenizers, whose names are in their order."""
    for i, tokenizer in enumerate(tokenizers):
        (folder / f"{i:04}.json").write_text(json.dumps(tokenizer.document), encoding="utf-8")


def written(learned: Learned, folder: Path) -> LearnFacts:
    """Writes the tokenizers of a training, and gives its figures."""
    write_all(learned.tokenizers, folder)
    return LearnFacts(learned.n_merges, learned.last_count, learned.n_text_tokens, learned.n_refused)


def goal_of(asked: TrainVocab) -> Goal:
    """When learning stops, and which tokens it makes."""
    limits = asked.pair_count_min, asked.token_bytes_max, asked.score, asked.pad_vocab_to
    return Goal(*limits, asked.forbid, asked.protect)


def learn_task(root: Path, params: Params, memory: Memory, table: Path, base: Tokenizer | None) -> LearnTask:
    """The task that learns what params.yaml asks for from the counts in `table`, with train_vocab.superwords only the first phase.
    `base`: the tokenizer to extend, or None."""
    settings, pattern = params.train_vocab, params.count.pattern
    goal = goal_of(settings)
    if settings.superwords:
        goal = replace(goal, pad_vocab_to=1)
    sizes = [settings.transition_size, *settings.vocab_sizes]
    key = unit_key(
        stage="train-vocab",
        code=code_digest("train-vocab"),
        counts=sha256_file(table),
        base=None if base is None else base.digest,
        pattern=pattern,
        special_tokens=settings.special_tokens,
        sizes=sizes,
        goal=asdict(goal),
    )
    return LearnTask(
        name=f"{sizes[0]:,} tokens",
        key=key,
        table=table,
        base=base,
        pattern=pattern,
        special_tokens=settings.special_tokens,
        sizes=sizes,
        goal=goal,
        threads=memory.own_threads,
        checkpoint=checkpoint_of(root, params),
    )


def checkpoint_of(root: Path, params: Params) -> Checkpoint | None:
    """Where a training saves its state, and how often; None if it does not."""
    every = params.run.checkpoint_every
    return Checkpoint(root / CHECKPOINT_DIRECTORY, every) if every else None
