"""train-vocab with train_vocab.parity: counts by group → tokenizers that serve the groups alike, as one task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
import pyarrow as pa

from tokenmill.config.params import Params
from tokenmill.config.parity_params import Parity
from tokenmill.config.sources import Reading
from tokenmill.config.training_params import N_BYTES
from tokenmill.console import Advance
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.provenance import Provenance
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.counts.counter import Counter
from tokenmill.counts.groups import Groups
from tokenmill.counts.table import read_counts
from tokenmill.errors import ParamsError
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.memory import Memory
from tokenmill.report.measures import gini
from tokenmill.rounds import Task
from tokenmill.stages.count_sums import SCRATCH_PREFIX
from tokenmill.stages.train_vocab_learn import GroupTokens, LearnFacts, goal_of, shown, written
from tokenmill.stages.train_vocab_report import Entry
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, Running, learn
from tokenmill.training.id_counts import ids_in_counts
from tokenmill.training.parity import Turns, learn_parity
from tokenmill_reader.regular_files import sha256_file


class ParityTask(Task[LearnFacts], frozen=True, kw_only=True):
    """Learns tokenizers of several sizes from counts by group. `table`: the counts of all documents. `groups`: the counts of each
    group. `dev`: the files with its text of the same content, and how they are read. `sizes`: the largest first. `kept_mb`,
    `scratch`: for the counts of `dev`, see CountTask."""

    table: Path
    groups: Mapping[str, Path]
    dev: Mapping[str, Sequence[Shard]] | None
    reading: Reading
    limits: Limits
    pattern: str | None
    special_tokens: Sequence[str]
    sizes: Sequence[int]
    goal: Goal
    turns: Turns
    ratio: Mapping[str, float] | None
    threads: int
    kept_mb: int
    scratch: Path

    def run(self, folder: Path, advance: Advance) -> LearnFacts:
        """Writes a tokenizer.json for each size (see Task)."""
        groups = {name: read_counts(path) for name, path in self.groups.items()}
        dev = None if self.dev is None else {name: self._counted(shards) for name, shards in self.dev.items()}
        with shown(self.sizes[0], N_BYTES + len(self.special_tokens)) as show:
            how = self.sizes, self.pattern, self.special_tokens, self.goal
            learned = learn_parity(groups, *how, self.turns, self.ratio, dev, Running(progress=show))
        facts = written(learned, folder)
        counts = read_counts(self.table)
        plain = learn(counts, [self.sizes[0]], *how[1:]).tokenizers[0]
        own = learned.tokenizers[0]
        measured = groups if dev is None else dev
        group_tokens = [
            GroupTokens(
                name,
                _n_bytes(counts_of_group),
                self._n_tokens(plain, counts_of_group),
                self._n_tokens(own, counts_of_group),
            )
            for name, counts_of_group in measured.items()
        ]
        return msgspec.structs.replace(facts, n_text_tokens=self._n_tokens(own, counts), groups=group_tokens)

    def _counted(self, shards: Sequence[Shard]) -> pa.Table:
        with scratch_directory(self.scratch, SCRATCH_PREFIX) as own_scratch:
            counter = Counter(self.pattern, self.kept_mb, threads=self.threads, spill_directory=own_scratch)
            for shard in shards:
                for batch in read_batches(shard, self.reading, limits=self.limits):
                    counter.update(batch.texts)
            return counter.finish()

    def _n_tokens(self, tokenizer: Tokenizer, counts: pa.Table) -> int:
        return int(ids_in_counts(tokenizer, counts, self.threads).sum())


def parity_task(
    root: Path, params: Params, memory: Memory, table: Path, folder: Path, groups: Groups, provenance: Provenance
) -> ParityTask:
    """The task that learns what train_vocab.parity asks for. `table`: the counts of all documents. `folder`: those of the groups.
    Raises ParamsError, and CorpusError for a glob without files."""
    settings, parity = params.train_vocab, params.train_vocab.parity
    assert parity is not None
    goal = goal_of(settings)
    turns = Turns(parity.global_merges, parity.window)
    sizes = [settings.vocab_size, *settings.vocab_sizes]
    paths = {name: groups.path(folder, name) for name in groups.names}
    dev = None
    if parity.dev is not None:
        dev = {
            name: find_shards(root, globs, f"train_vocab.parity.dev.{name}", provenance.source())
            for name, globs in parity.dev.items()
        }
    key = unit_key(
        stage="train-vocab",
        code=code_digest("train-vocab"),
        counts=sha256_file(table),
        groups={name: sha256_file(path) for name, path in paths.items()},
        dev=dev
        and {
            name: [(shard.kind.suffix, sha256_file(_path(shard))) for shard in shards] for name, shards in dev.items()
        },
        reading=provenance.source().reading.as_key(),
        pattern=params.count.pattern,
        special_tokens=settings.special_tokens,
        sizes=sizes,
        goal=asdict(goal),
        turns=asdict(turns),
        ratio=parity.ratio,
    )
    return ParityTask(
        name=f"{settings.vocab_size:,} tokens",
        key=key,
        table=table,
        groups=paths,
        dev=dev,
        reading=provenance.source().reading,
        limits=memory.limits,
        pattern=params.count.pattern,
        special_tokens=settings.special_tokens,
        sizes=sizes,
        goal=goal,
        turns=turns,
        ratio=parity.ratio,
        threads=memory.own_threads,
        kept_mb=memory.kept_mb,
        scratch=root / (params.run.spill_directory or SCRATCH_DIRECTORY),
    )


def parity_entry(parity: Parity, by: str, groups: Sequence[GroupTokens]) -> Entry:
    """The entry of training.json. The Gini coefficient is over the tokens of the dev files, or else over the tokens per byte times
    the ratio: 0 if all groups are served alike."""

    def cost(group: GroupTokens, n_tokens: int) -> float:
        if parity.dev is not None:
            return n_tokens
        return n_tokens / group.n_bytes * (1.0 if parity.ratio is None else parity.ratio[group.name])

    def rounded(n_tokens: Sequence[int]) -> float | None:
        value = gini([cost(group, n) for group, n in zip(groups, n_tokens, strict=True) if group.n_bytes])
        return None if value is None else round(value, 6)

    plain, own = rounded([group.n_tokens_plain for group in groups]), rounded([group.n_tokens for group in groups])
    value = {
        "by": by,
        "measured": "counts" if parity.dev is None else "dev",
        "gini_plain": plain,
        "gini": own,
        "groups": {
            group.name: {
                "text_bytes": group.n_bytes,
                "n_tokens_plain": group.n_tokens_plain,
                "n_tokens": group.n_tokens,
            }
            for group in groups
        },
    }
    if plain is None or own is None:
        return Entry("parity", value, [f"parity: {len(groups)} group by {by}; two or more can be served alike."])
    words = (
        f"parity: {len(groups)} groups by {by}; the Gini coefficient of their tokens is {own:.4f}, and {plain:.4f} with plain "
        "BPE of the same size."
    )
    return Entry("parity", value, [words])


def _path(shard: Shard) -> Path:
    if not isinstance(shard.path, Path):
        raise ParamsError("train_vocab.parity.dev", f"found {shard.name}; expected files of this machine.", "Copy it.")
    return shard.path


def _n_bytes(counts: pa.Table) -> int:
    import pyarrow.compute as pc

    n_bytes = pc.binary_length(counts["pretoken"]).cast("uint64")
    return pc.sum(pc.multiply_checked(n_bytes, counts["count"])).as_py() or 0
