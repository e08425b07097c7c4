"""train-vocab, instead of learning: a tokenizer and counts of its ids → the tokenizer without the tokens that are used least."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tokenmill.config.training_params import Trim
from tokenmill.console import Advance
from tokenmill.counts.table import read_counts
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.rounds import Task
from tokenmill.stages.train_vocab_learn import LearnFacts, write_all
from tokenmill.stages.train_vocab_report import Entry
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.id_counts import ids_in_counts, ids_in_dataset
from tokenmill.training.trim import trim
from tokenmill_reader.regular_files import sha256_file


class TrimTask(Task[LearnFacts], frozen=True, kw_only=True):
    """Trims a tokenizer. `base`: the one to trim. `table`: the counts of the project's documents. `id_counts`: the counts of ids of
    a dataset, by which tokens go; None: by those of the documents."""

    base: Tokenizer
    table: Path
    id_counts: Path | None
    keep: int | None
    min_count: int | None
    chosen: Sequence[str]
    threads: int

    def run(self, folder: Path, advance: Advance) -> LearnFacts:
        """Writes the tokenizer.json (see Task)."""
        counts = read_counts(self.table)
        by = (
            ids_in_counts(self.base, counts, self.threads)
            if self.id_counts is None
            else ids_in_dataset(self.base, self.id_counts)
        )
        trimmed = trim(self.base, by.tolist(), self.keep, self.min_count, self.chosen)
        made = trimmed.tokenizer
        write_all([made], folder)
        return LearnFacts(made.n_merges or 0, trimmed.last_count, int(ids_in_counts(made, counts, self.threads).sum()))


def trim_task(root: Path, settings: Trim, table: Path, base: Tokenizer, threads: int) -> TrimTask:
    """The task that trims `base` as params.yaml asks. `table`: the counts of the project's documents."""
    id_counts = None if settings.counts is None else root / settings.counts
    key = unit_key(
        stage="train-vocab",
        code=code_digest("train-vocab"),
        counts=sha256_file(table),
        base=base.digest,
        trim=settings.model_dump(mode="json", exclude={"from_", "counts"}),
        id_counts=None if id_counts is None else sha256_file(id_counts),
    )
    return TrimTask(
        name=f"trim {base.vocab_size:,} tokens",
        key=key,
        base=base,
        table=table,
        id_counts=id_counts,
        keep=settings.keep,
        min_count=settings.min_count,
        chosen=settings.chosen,
        threads=threads,
    )


def trimmed_entry(base: Tokenizer, trimmed: Tokenizer, counts: pa.Table, facts: LearnFacts, threads: int) -> Entry:
    """The entry of training.json. `counts`: those of the project's documents."""
    value = {
        "digest": base.digest,
        "n_tokens_dropped": base.vocab_size - trimmed.vocab_size,
        "last_count": facts.last_count,
        "n_text_tokens_before": int(ids_in_counts(base, counts, threads).sum()),
    }
    return Entry("trimmed", value)


def unlearned(root: Path, settings: Trim, base: Tokenizer) -> Tokenizer:
    """A tokenizer with what the trimmed one has for certain, made without the project's counts. Raises the errors of trimming's
    parameters."""
    counts = (
        [0] * (base.id_max + 1) if settings.counts is None else ids_in_dataset(base, root / settings.counts).tolist()
    )
    return trim(base, counts, settings.keep, settings.min_count, settings.chosen).tokenizer
