"""Vocabulary sizes and split patterns beside each other, on the project's own documents, before anything is built."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.params import Params
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import Batch, Shard, read_batches
from tokenmill.corpus.source_shards import find_documents
from tokenmill.counts.counter import Counter
from tokenmill.counts.table import merge
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.report.bigram import bigram
from tokenmill.report.sample import row_keys
from tokenmill.stages.count import weights_of
from tokenmill.stages.train_vocab_learn import goal_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import learn

_SLICE_ROWS = 1 << 18
_SAMPLE_BYTES = 8_000_000
_NONE = np.empty(0, np.uint64)


@dataclass(frozen=True)
class Rung:
    """A vocabulary. `vocab_size`: as learned, which may be less than was asked. `by_source`: bytes per token of each source.
    `n_unused`: tokens that the corpus does not need. `n_embedding`: the parameters of an embedding of the model's width.
    `is_knee`: a larger vocabulary of this pattern gains less than the sizes before."""

    pattern: str
    vocab_size: int
    bytes_per_token: float
    by_source: dict[str, float]
    n_tokens: int
    n_unused: int
    n_embedding: int
    bits_per_byte: float | None = None
    is_knee: bool = False


def choose(root: Path, params: Params, sizes: Sequence[int], patterns: Sequence[str], width: int) -> list[Rung]:
    """Counts the project's documents with each pattern, learns a vocabulary of each size, and measures all of them on these counts.
    They are exact; bad documents are left out, and drop lists are not applied. `width`: that of the model's embedding.

    Raises ParamsError for sizes that leave no room, and what counting and training raise."""
    n_given = 256 + len(params.train_vocab.special_tokens)
    if min(sizes) <= n_given or width < 1:
        raise ParamsError(
            "--sizes", f"expected more than {n_given:,}, the number of bytes and special tokens; found {min(sizes):,}."
        )
    shards = find_documents(root, params)
    if not shards:
        raise CorpusError(root, "expected documents that source.glob names; found none.")
    weights = weights_of(root, params.count.weights, [shard.name for shard in shards])
    sample = _DrawnTexts(shards)
    return [rung for pattern in patterns for rung in _ladder(pattern, shards, sample, weights, params, sizes, width)]


class _DrawnTexts:
    """Documents that a keyed hash of file and row draws, of about 8 MB of the files."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        share = _SAMPLE_BYTES / max(sum(shard.n_bytes for shard in shards), 1)
        self._key_max = np.uint64(
            min(share, 1.0) * (2**64 - 1025)
        )  # the largest number below 2**64 that a float can be
        self._texts: list[pa.LargeStringArray] = []
        self._keys: list[npt.NDArray[np.uint64]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added yet."""
        return not self._keys

    def add(self, shard: Shard, batch: Batch) -> None:
        """Draws from documents that follow each other."""
        keys = row_keys(shard.name, np.arange(batch.first_row, batch.first_row + len(batch.texts), dtype=np.uint64))
        is_drawn = keys <= self._key_max
        self._texts.append(batch.texts.filter(pa.array(is_drawn)))
        self._keys.append(keys[is_drawn])

    def bits_per_byte(self, tokenizer: Tokenizer) -> float | None:
        """The bits that a bigram model needs for a byte of the drawn documents; None if there are too few."""
        texts = pa.chunked_array(self._texts, pa.large_string()).combine_chunks()
        lists = tokenizer.encode_batch(texts)
        lengths, n_bytes = np.diff(lists.offsets.to_numpy()), pc.binary_length(texts).to_numpy()
        found = bigram(lists.values.to_numpy(), lengths, n_bytes, np.concatenate([_NONE, *self._keys])).bits_per_byte
        return None if found is None else round(found, 4)


def _ladder(
    pattern: str,
    shards: Sequence[Shard],
    sample: _DrawnTexts,
    weights: Mapping[str, Fraction],
    params: Params,
    sizes: Sequence[int],
    width: int,
) -> Iterator[Rung]:
    """Yields the vocabularies of one pattern, the smallest first. Fills an empty sample from the documents."""
    is_first = sample.is_empty
    memory_mb = max(params.run.memory_mb_max // 4, 1)
    counters: dict[tuple[str, Fraction], Counter] = {}
    for shard in shards:
        key = shard.named_source or "all", weights.get(shard.name, Fraction(1))
        if key not in counters:
            counters[key] = Counter(pattern, memory_mb)
        for batch in read_batches(shard, _reading(shard), on_bad=lambda _bad: None):
            counters[key].update(batch.texts)
            if is_first:
                sample.add(shard, batch)
    counts = {key: counter.finish() for key, counter in counters.items()}
    asked = params.train_vocab
    goal = goal_of(asked)
    whole = merge(list(counts.values()), [weight for _, weight in counts])
    learned = learn(whole, sorted(sizes, reverse=True), pattern, asked.special_tokens, goal)
    rungs = [_measured(pattern, tokenizer, counts, sample, width) for tokenizer in reversed(learned.tokenizers)]
    knee = _knee(rungs)
    for i, rung in enumerate(rungs):
        yield replace(rung, is_knee=i == knee)


def _reading(shard: Shard) -> Reading:
    source = shard.source
    assert source is not None
    return replace(source.reading, id_column=None)


def _measured(
    pattern: str, tokenizer: Tokenizer, counts: Mapping[tuple[str, Fraction], pa.Table], sample: _DrawnTexts, width: int
) -> Rung:
    assert tokenizer.model is not None
    alone = Tokenizer(replace(tokenizer.model, steps=()))  # outside its text, a pre-token might be split further
    n_bytes: dict[str, int] = defaultdict(int)
    n_tokens: dict[str, int] = defaultdict(int)
    is_used = np.zeros(tokenizer.id_max + 1, np.bool_)
    for (source, _weight), table in counts.items():
        for start in range(0, len(table), _SLICE_ROWS):
            part = table.slice(start, _SLICE_ROWS).combine_chunks()
            times = part["count"].to_numpy()
            lists = alone.encode_batch(part["pretoken"].combine_chunks())
            n_tokens[source] += int((np.diff(lists.offsets.to_numpy()).astype(np.uint64) * times).sum())
            n_bytes[source] += int((pc.binary_length(part["pretoken"]).to_numpy().astype(np.uint64) * times).sum())
            is_used[lists.values.to_numpy()] = True
    all_tokens = sum(n_tokens.values())
    return Rung(
        pattern=pattern,
        vocab_size=tokenizer.vocab_size,
        bytes_per_token=round(sum(n_bytes.values()) / max(all_tokens, 1), 4),
        by_source={source: round(n_bytes[source] / max(n_tokens[source], 1), 4) for source in n_tokens},
        n_tokens=all_tokens,
        n_unused=sum(not is_used[id] for id in tokenizer.model.tokens),
        n_embedding=tokenizer.vocab_size * width,
        bits_per_byte=sample.bits_per_byte(tokenizer),
    )


def _knee(rungs: Sequence[Rung]) -> int | None:
    """The rung farthest above the line from the first to the last, over the logarithm of the size; None for fewer than three.

    Source: Satopää et al., Finding a "Kneedle" in a Haystack (2011), for a curve of few points."""
    if len(rungs) < 3 or rungs[-1].vocab_size == rungs[0].vocab_size:
        return None
    sizes, gains = [log2(rung.vocab_size) for rung in rungs], [rung.bytes_per_token for rung in rungs]
    slope = (gains[-1] - gains[0]) / (sizes[-1] - sizes[0])
    above = [gain - gains[0] - slope * (at - sizes[0]) for at, gain in zip(sizes, gains, strict=True)]
    return int(np.argmax(above))


def lines_of(rungs: Sequence[Rung]) -> list[str]:
    """The table for people, and the lines for params.yaml of the rung at the knee, or with the most bytes per token."""
    sources = [name for name in rungs[0].by_source if name != "all"]
    names = ["pattern", "vocab_size", "bytes/token", *sources, "bits/byte", "tokens", "unused", "embedding", ""]
    rows = [names]
    for rung in rungs:
        of_sources = [f"{rung.by_source[name]:.4f}" for name in sources]
        bits = "–" if rung.bits_per_byte is None else f"{rung.bits_per_byte:.4f}"
        sums = [bits, f"{rung.n_tokens:,}", f"{rung.n_unused:,}", f"{rung.n_embedding:,}"]
        knee = "<- the knee" if rung.is_knee else ""
        rows.append([rung.pattern, f"{rung.vocab_size:,}", f"{rung.bytes_per_token:.4f}", *of_sources, *sums, knee])
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    best = max(rungs, key=lambda one: (one.is_knee, one.bytes_per_token))
    what = "the knee with the most bytes per token" if best.is_knee else "the most bytes per token"
    chosen = [f"  count.pattern: {best.pattern}", f"  train_vocab.vocab_size: {best.vocab_size}"]
    return [*(line.rstrip() for line in lines), "", f"For params.yaml, {what}:", *chosen]
