"""train-vocab with train_vocab.superwords, second phase: counts of sentences → tokens of several words, as one task."""

from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from tokenmill.artifacts.learned_with import words_of_superwords
from tokenmill.config.params import Params
from tokenmill.console import Advance
from tokenmill.counts.spill import Run
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.memory import Memory
from tokenmill.rounds import Task
from tokenmill.stages.count_sums import SCRATCH_PREFIX
from tokenmill.stages.train_vocab_learn import (
    LearnFacts,
    SuperwordsFacts,
    checkpoint_of,
    goal_of,
    shown,
    written,
)
from tokenmill.stages.train_vocab_report import Entry
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, Running
from tokenmill.training.checkpoint import Checkpoint
from tokenmill.training.superwords import Room, learn_superwords
from tokenmill_reader.regular_files import sha256_file


class SuperwordsTask(Task[LearnFacts], frozen=True, kw_only=True):
    """Learns tokens of several words. `base`: the tokenizer of the first phase. `table`: the counts of the pre-tokens of `pattern`.
    `memory_mb`: what learning may take. `scratch`: the folder where counts of phrases spill."""

    base: Tokenizer
    table: Path
    pattern: str
    vocab_size: int
    goal: Goal
    threads: int
    checkpoint: Checkpoint | None
    memory_mb: int
    scratch: Path

    def run(self, folder: Path, advance: Advance) -> LearnFacts:
        """Writes the tokenizer.json (see Task)."""
        with (
            shown(self.vocab_size, self.base.vocab_size) as show,
            scratch_directory(self.scratch, SCRATCH_PREFIX) as own_scratch,
        ):
            superwords = learn_superwords(
                self.base,
                Run.of_parquet(self.table).batches,
                self.pattern,
                self.vocab_size,
                self.goal,
                Running(self.threads, show, self.checkpoint),
                Room(self.memory_mb, own_scratch),
            )
        facts = SuperwordsFacts(
            self.base.vocab_size,
            superwords.text_bytes,
            superwords.n_text_tokens_before,
            [*superwords.n_by_words.items()],
        )
        return msgspec.structs.replace(written(superwords.learned, folder), superwords=facts)


def superwords_task(root: Path, params: Params, memory: Memory, table: Path, base: Tokenizer) -> SuperwordsTask:
    """The task of the second phase that params.yaml asks for. `table`: the counts of `count.superwords`."""
    settings, pattern = params.train_vocab, params.count.superwords
    assert settings.superwords is not None
    assert pattern is not None
    goal = replace(goal_of(settings), words_max=settings.superwords.words_max)
    key = unit_key(
        stage="train-vocab",
        code=code_digest("train-vocab"),
        counts=sha256_file(table),
        base=base.digest,
        pattern=pattern,
        sizes=[settings.vocab_size],
        goal=asdict(goal),
    )
    return SuperwordsTask(
        name=f"{settings.vocab_size:,} tokens",
        key=key,
        base=base,
        table=table,
        pattern=pattern,
        vocab_size=settings.vocab_size,
        goal=goal,
        threads=memory.own_threads,
        checkpoint=checkpoint_of(root, params),
        memory_mb=memory.mb_max - memory.base_mb,
        scratch=root / (params.run.spill_directory or SCRATCH_DIRECTORY),
    )


def both_phases(first: LearnFacts, second: LearnFacts) -> LearnFacts:
    """The figures of both phases together."""
    n_merges, n_refused = first.n_merges + second.n_merges, first.n_refused + second.n_refused
    return msgspec.structs.replace(
        second, n_merges=n_merges, n_refused=n_refused, last_count=second.last_count or first.last_count
    )


def superwords_entry(params: Params, facts: LearnFacts, learned: SuperwordsFacts) -> Entry:
    """The entry of training.json."""
    by_words = learned.by_words()
    value = {
        "n_tokens_before": learned.n_tokens_before,
        "n_text_tokens_before": learned.n_text_tokens_before,
        "n_tokens_by_words": by_words,
    }
    lines = [
        f"superwords: {words_of_superwords(by_words)}. The text is {facts.n_text_tokens:,} tokens, and "
        f"{learned.n_text_tokens_before:,} after the first phase."
    ]
    if not any(n_words > 1 for n_words, _ in learned.n_by_words):
        settings = params.train_vocab
        lines.append(
            f"WARNING: no token has several words. Either count.superwords ({params.count.superwords}) cuts text between words, "
            f"as superbpe does not, or no pair across words that is allowed occurs {settings.pair_count_min:,} times or more, or "
            f"the {settings.vocab_size - learned.n_tokens_before:,} tokens that train_vocab.superwords.transition leaves are too "
            "few."
        )
    return Entry("superwords", value, lines)
