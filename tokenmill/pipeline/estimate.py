"""Estimates from a sample what a build will cost: a point, a low and a high for each quantity."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from tokenmill.checks.row_checks import n_sampled
from tokenmill.config.params import Params
from tokenmill.corpus.limits import BATCH_BYTES
from tokenmill.corpus.shards import Shard
from tokenmill.layout import STAGES
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.sampling import Distinct, Sample, Stratum
from tokenmill.report.sample import N_IDS_MAX

CONFIDENCE = 0.95
_Z = 1.959964  # of a normal distribution, for CONFIDENCE

# The least half-widths, as shares of what is estimated: the beginning of a stream may differ from the rest.
_FLOOR_TEXT = 0.02
_FLOOR_TOKENS = 0.015
_FLOOR_LEARNED = 0.02  # more, if the tokenizer is not there yet
_FLOOR_OUTPUT = 0.01  # more, for how well the ids of longer texts compress
_ALONE = 0.15  # the standard error of a ratio that one piece alone shows, as a share
_SLOWER, _FASTER = 2.5, 0.4  # of the seconds: other programs use the machine, and caches fill
_MORE_MEMORY, _LESS_MEMORY = 1.25, 0.75
_HEAPS_DEFAULT, _HEAPS_MIN, _HEAPS_MAX = 0.6, 0.3, 1.0
_HEAPS_SPREAD = 0.06  # the exponent's error

# Measured on 16 builds of four corpora with 1 and 2 workers and vocabularies of 4,096 to 50,000, in MB: each peak is within 15 %.
_BASE_MB = {"count": 190.0, "train-vocab": 215.0, "encode": 205.0, "validate": 205.0}
_BIGRAM_A_TOKEN = 42  # bytes of memory for each token that the report's bigram model reads
_PREFECT_MB = {"count": 75.0, "train-vocab": 55.0, "encode": 55.0, "validate": 55.0}
_TOKEN_KB = 1.3  # of memory for a token of the vocabulary
_ENCODING_A_TOKEN = 50.0  # bytes for each token of the batch in hand
_TEXT_IN_HAND = 3.0  # bytes for each byte of the batch in hand, while counting
_ENTRY_BYTES = 48.0  # of a distinct pre-token in a table of counts
_CACHED_BYTES = 220.0  # of a distinct pre-token in the encoder's cache
_LEARNING_A_BYTE = 22.0  # bytes for each byte of the distinct pre-tokens

# Bytes of files, measured on the same builds.
_TOKENIZER_BYTES, _TOKEN_BYTES = 70_000, 88.0  # tokenizer.json, vocab.tiktoken and the files beside them
_ID_BYTES = 16.0  # of an id in the tables of data/tables
_REPORT_BYTES = (0.0, 160_000.0, 230_000.0)  # of data/report; the low is for one that replaces another
_BLOCK_BYTES = 4096
_FILES_A_UNIT = 5  # of three stages, each with a file of facts
_PIECE_BYTES = 400  # of a shard, in manifests
_SPILLED_A_BYTE, _SPILLED_A_PRETOKEN = 0.7, 6.0  # a run is compressed
_CHECKPOINT_A_BYTE, _CHECKPOINT_A_PRETOKEN = 2.0, 16.0
_SUMMED_AT_ONCE_MAX = 64  # files of counts; more are added up in groups, which are kept

# Seconds of a stage that do not depend on its documents.
_START_S = {"count": 0.3, "train-vocab": 0.5, "encode": 0.4, "validate": 1.0}
_HASH_S = 1 / 4e8  # for a byte of a file: its sha256, and DVC's md5
_SUM_S = 1e-6  # for a distinct pre-token
_REFERENCE_S = 1 / 3e6  # for a byte of a document that validate compares with tokenizers


class Range(NamedTuple):
    """An estimate: with a confidence of 95 %, what is found lies from `low` to `high`."""

    low: float
    point: float
    high: float

    def times(self, low: float, point: float, high: float) -> "Range":
        """The range of the product with another, if both err in the same direction."""
        return Range(self.low * low, self.point * point, self.high * high)

    def plus(self, other: "Range") -> "Range":
        """The range of the sum, if both err in the same direction."""
        return Range(self.low + other.low, self.point + other.point, self.high + other.high)

    def at_most(self, most: float) -> "Range":
        """The range with nothing above `most`."""
        return Range(min(self.low, most), min(self.point, most), min(self.high, most))


def exactly(n: float) -> Range:
    """A number that is known."""
    return Range(n, n, n)


def around(point: float, half: float) -> Range:
    """The range with this half-width, not below 0."""
    return Range(max(point - half, 0.0), point, point + half)


@dataclass(frozen=True)
class StageWork:
    """What one stage would do. `reasons`: texts, empty if it is up to date. `n_units`: None for a stage without units. `todo`: the
    file bytes that it would read of each shard, without finished units."""

    stage: str
    would_run: bool
    reasons: list[str]
    n_units: int | None = None
    n_units_todo: int | None = None
    todo: dict[Shard, int] = field(default_factory=dict)

    @property
    def file_bytes(self) -> int:
        """The size of the documents that it would read, in file bytes."""
        return sum(self.todo.values())


class Finished(NamedTuple):
    """Sums over the finished units of `encode` that stay valid, named like the dataset's quantities."""

    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    output_bytes: int = 0


class Read(NamedTuple):
    """Totals of document files that an earlier build read; a file has a share of its unit by bytes."""

    file_bytes: float = 0
    documents: float = 0
    text_bytes: float = 0

    def plus(self, other: "Read") -> "Read":
        """Adds another record field by field."""
        return Read(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Known:
    """What is known without the sample. `shard_bytes`: the size of all `n_shards` document files. `distinct`: pre-tokens of the
    counts if these stay valid, else None. `copies`: how many times an output is stored besides the unit store; 0 if files are hard
    links. `read`: earlier totals of files to encode."""

    stages: Mapping[str, StageWork]
    n_shards: int
    shard_bytes: int
    finished: Finished
    distinct: Distinct | None
    copies: int
    read: Mapping[Shard, Read] = field(default_factory=dict)


def estimate(sample: Sample | None, known: Known, params: Params, memory: Memory) -> dict[str, Range]:
    """The range of each quantity by its name, which ends in the unit; `seconds STAGE` for each stage that would run.

    `sample`: None if nothing is left to encode or to count.
    """
    found = _dataset(sample if known.stages["encode"].would_run else None, known)
    text_todo = Range(*(max(n - known.finished.text_bytes, 0) for n in found["text_bytes"]))
    distinct = _distinct(sample, known, found["text_bytes"])
    found |= {"distinct": distinct.n, "distinct_bytes": distinct.n_bytes}
    found |= _disk(sample, known, params, memory, found, distinct)
    found["peak_memory_bytes"] = _peak(sample, known, params, memory, found, distinct)
    found |= _seconds(sample, known, params, memory, text_todo, found["text_bytes"], distinct)
    return found


def _dataset(sample: Sample | None, known: Known) -> dict[str, Range]:
    """Estimates the documents, tokens, text bytes and file bytes of the whole dataset."""
    done = known.finished._asdict()
    if sample is None:
        return {name: exactly(n) for name, n in done.items()}
    before = [_sum_of(known.read.get(shard) for shard in one.shards) for one in sample.strata]
    texts = [_read_of(one, some) for one, some in zip(sample.strata, before, strict=True)]
    found = {
        "documents": _sum(
            [
                _scaled(one, "n_documents", n, some.file_bytes, some.documents)
                for one, (_, n), some in zip(sample.strata, texts, before, strict=True)
            ]
        ),
        "text_bytes": _sum([text for text, _ in texts]),
    }
    unsure = _FLOOR_TOKENS + sample.optimism / 2 + _FLOOR_LEARNED * sample.is_learned
    pairs: dict[str, list[list[tuple[float, float]]]] = {
        "tokens": [[(b.text_bytes, b.n_tokens) for b in one.encoded] for one in sample.strata],
        "output_bytes": [[*one.written] for one in sample.strata],
    }
    for name, floor in (("tokens", unsure), ("output_bytes", unsure + _FLOOR_OUTPUT)):
        parts = [
            _product(text, *_ratio(some, _unseen(one, text.point)))
            for one, (text, _), some in zip(sample.strata, texts, pairs[name], strict=True)
        ]
        whole = _sum(parts)
        share = max(
            (_unseen(one, text.point) for one, (text, _) in zip(sample.strata, texts, strict=True)), default=0.0
        )
        found[name] = around(whole.point, whole.point - whole.low + floor * whole.point * share)
    return {name: found[name].plus(exactly(n)) for name, n in done.items()}


def _sum_of(some: Iterable[Read | None]) -> Read:
    """The sum of the known records."""
    return reduce(Read.plus, (one for one in some if one is not None), Read())


def _read_of(stratum: Stratum, before: Read) -> tuple[Range, float]:
    """Estimates a stratum's text bytes; also gives the unread share of its file bytes. `before`: totals of an earlier build."""
    n_read = sum(piece.shard.n_bytes if piece.is_whole else piece.file_bytes for piece in stratum.pieces)
    unread = max(1 - n_read / max(stratum.file_bytes, 1), 0.0)
    return _scaled(stratum, "text_bytes", unread, before.file_bytes, before.text_bytes), unread


def _scaled(stratum: Stratum, field: str, unread: float, known_bytes: float, known: float) -> Range:
    """Scales a field of the pieces up to the whole stratum. `known`: its exact value for `known_bytes` that were read earlier."""
    rest_bytes = stratum.file_bytes - known_bytes
    if rest_bytes <= 0:
        return exactly(known)
    ratio, error = _ratio([(piece.file_bytes, getattr(piece, field)) for piece in stratum.pieces], unread)
    point = ratio * rest_bytes
    blur = (
        _Z * math.hypot(*(piece.blur_bytes for piece in stratum.pieces)) / math.sqrt(6)
    )  # standard deviation of a difference of two uniform errors
    blur /= max(sum(piece.file_bytes for piece in stratum.pieces), 1)
    half = error * rest_bytes + point * (blur + _FLOOR_TEXT * min(2 * unread, 1))
    return around(point, half).plus(exactly(known))


def _unseen(stratum: Stratum, text_bytes: float) -> float:
    """The share of a stratum's text that was not encoded."""
    return min(max(1 - sum(one.text_bytes for one in stratum.encoded) / max(text_bytes, 1), 0.0), 1.0)


def _ratio(pairs: Sequence[tuple[float, float]], unseen: float) -> tuple[float, float]:
    """The ratio of the sums of the second and the first, and the half-width of its range, from the spread between the pairs.

    `unseen`: the share of the whole that the pairs are not: without any, the ratio is exact. (Cochran, Sampling Techniques,
    6.3: the ratio estimate with the correction for a finite population.)

    >>> _ratio([(1, 2), (1, 2)], 1.0)
    (2.0, 0.0)
    """
    n, whole = len(pairs), sum(x for x, _ in pairs)
    if not whole:
        return 0.0, 0.0
    ratio = sum(y for _, y in pairs) / whole
    if n < 2:
        return ratio, _Z * _ALONE * ratio * math.sqrt(unseen)
    spread = sum((y - ratio * x) ** 2 for x, y in pairs) * n / (n - 1)
    return ratio, _quantile(n - 1) * math.sqrt(unseen * spread) / whole


def _quantile(freedom: int) -> float:
    """Student's t for CONFIDENCE, by its expansion in 1 / degrees of freedom (Abramowitz and Stegun, 26.7.5), and at most 5.

    >>> round(_quantile(10), 2)
    2.23
    """
    z = _Z
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return min(z + first / freedom + second / freedom**2, 5.0)


def _product(text: Range, ratio: float, error: float) -> Range:
    """Multiplies text by a ratio whose error is independent."""
    half = math.hypot((text.point - text.low) * ratio, text.point * error)
    return around(text.point * ratio, half)


def _sum(parts: Sequence[Range]) -> Range:
    """Adds ranges whose errors are independent."""
    point = sum(one.point for one in parts)
    return around(point, math.sqrt(sum((one.point - one.low) ** 2 for one in parts)))


def _grown(half: Distinct, all_: Distinct, field: str, text_bytes: float) -> Range:
    """Extrapolates a field of Distinct to `text` bytes by Heaps' law: n × (text / of)^exponent."""
    factor, exponent = text_bytes / max(all_.text_bytes, 1), _exponent(half, all_, field)
    spread = _HEAPS_SPREAD if factor > 1 else -_HEAPS_SPREAD
    low, point, high = (factor**one for one in (exponent - spread, exponent, min(exponent + spread, 1.0)))
    n = getattr(all_, field)
    return Range(n * low * 0.95, n * point, n * high * 1.05)


def _exponent(half: Distinct, all_: Distinct, field: str) -> float:
    few, many = getattr(half, field), getattr(all_, field)
    if half.text_bytes >= all_.text_bytes or not few:
        return _HEAPS_DEFAULT
    found = math.log(many / few) / math.log(all_.text_bytes / half.text_bytes)
    return min(max(found, _HEAPS_MIN), _HEAPS_MAX)


class _DistinctAll(NamedTuple):
    """Distinct pre-tokens of the whole corpus, their bytes, and those of one unit of `count`."""

    n: Range
    n_bytes: Range
    n_unit: Range
    file_byte: float  # bytes of a file of counts for a distinct pre-token


def _distinct(sample: Sample | None, known: Known, text: Range) -> _DistinctAll:
    half, all_ = (sample.half, sample.all) if sample else (None, None)
    if sample is None or half is None or all_ is None:
        at = known.distinct or Distinct(0, 0, 0)
        return _DistinctAll(exactly(at.n), exactly(at.n_bytes), exactly(0), 0.0)
    counting = known.stages["count"]
    share = counting.file_bytes / max(known.shard_bytes, 1)
    return _DistinctAll(
        _grown(half, all_, "n", text.point),
        _grown(half, all_, "n_bytes", text.point),
        _grown(half, all_, "n", text.point * share / max(counting.n_units_todo or 1, 1)),
        sample.counts_bytes / max(all_.n, 1),
    )


def _disk(
    sample: Sample | None,
    known: Known,
    params: Params,
    memory: Memory,
    dataset: Mapping[str, Range],
    distinct: _DistinctAll,
) -> dict[str, Range]:
    """Bytes that the build adds to the disk, those of them in DVC's cache, and temporary bytes while it runs."""
    asked = params.train_vocab
    outputs = Range(*(n - known.finished.output_bytes for n in dataset["output_bytes"]))
    store = exactly(0)
    counting = known.stages["count"]
    if counting.would_run and sample and sample.all:
        outputs = outputs.plus(distinct.n.times(*[distinct.file_byte] * 3))
        n_levels = 1 + (counting.n_units_todo or 0) // _SUMMED_AT_ONCE_MAX
        store = distinct.n_unit.times(*[distinct.file_byte * (counting.n_units_todo or 0) * min(n_levels, 2)] * 3)
    learning = known.stages["train-vocab"]
    if learning.would_run:
        taken = (sample.vocab_size if sample else 0,)
        sizes = (asked.vocab_size, *asked.vocab_sizes) if params.tokenizer is None else taken
        n_bytes = sum(_TOKENIZER_BYTES + _TOKEN_BYTES * n for n in sizes)
        outputs = outputs.plus(around(n_bytes, n_bytes * 0.15))
    encoding = known.stages["encode"]
    if encoding.would_run and sample:
        n_new = Range(*(max(n - known.finished.documents, 0) for n in dataset["documents"]))
        index = n_new.times(*[sample.index_bytes * factor for factor in (0.9, 1, 1.1)])
        outputs = outputs.plus(index)
        store = store.plus(index)
        id_tables = sample.id_counts_bytes * len(sample.strata) + _ID_BYTES * sample.vocab_size
        outputs = outputs.plus(around(id_tables, id_tables * 0.2))
        n_bytes = sample.id_counts_bytes * (encoding.n_units_todo or 0)
        store = store.plus(around(n_bytes, n_bytes * 0.3))
    if known.stages["validate"].would_run:
        outputs = outputs.plus(Range(*_REPORT_BYTES))
    n_units = max((one.n_units_todo or 0 for one in known.stages.values()), default=0)
    if any(one.would_run for one in known.stages.values()):
        small = (_FILES_A_UNIT * n_units + 20) * _BLOCK_BYTES + _PIECE_BYTES * known.n_shards
        store = store.plus(Range(small * 0.4, small * 0.8, small * 1.3))
    copies = outputs.times(known.copies, known.copies, known.copies)
    spill = exactly(0)
    kept = memory.kept_mb * 10**6
    if counting.would_run:
        tables = distinct.n_unit.times(*[_ENTRY_BYTES] * 3)
        if tables.high > kept:
            a_run = distinct.n_bytes.point / max(distinct.n.point, 1) * _SPILLED_A_BYTE + _SPILLED_A_PRETOKEN
            spilled = distinct.n_unit.times(*[a_run * 2 * memory.workers] * 3)
            spill = Range(
                spilled.low if tables.low > kept else 0.0, spilled.point * (tables.point > kept), spilled.high
            )
    learns = learning.would_run and params.tokenizer is None
    if learns and params.run.checkpoint_every and asked.vocab_size > params.run.checkpoint_every:
        kept_words = distinct.n_bytes.times(*[_CHECKPOINT_A_BYTE] * 3).plus(
            distinct.n.times(*[_CHECKPOINT_A_PRETOKEN] * 3)
        )
        spill = Range(*(max(one, other) for one, other in zip(spill, kept_words, strict=True)))
    return {"disk_bytes": outputs.plus(store).plus(copies), "dvc_cache_bytes": copies, "spill_bytes": spill}


def _peak(
    sample: Sample | None,
    known: Known,
    params: Params,
    memory: Memory,
    dataset: Mapping[str, Range],
    distinct: _DistinctAll,
) -> Range:
    """The largest resident set of the stages that would run."""
    prefect = _PREFECT_MB if params.run.engine != "inline" else dict.fromkeys(_PREFECT_MB, 0.0)
    per_byte = dataset["tokens"].point / max(dataset["text_bytes"].point, 1)
    vocab_size = sample.vocab_size if sample else params.train_vocab.vocab_size
    peaks = [exactly(0)]
    for stage, todo in known.stages.items():
        if not todo.would_run or stage not in STAGES:
            continue
        workers = min(memory.workers, todo.n_units_todo or memory.workers)
        unit_bytes = (
            dataset["text_bytes"].point * todo.file_bytes / max(known.shard_bytes, 1) / max(todo.n_units_todo or 1, 1)
        )
        in_hand = max(min(BATCH_BYTES, unit_bytes), sample.longest_bytes if sample else 0)
        base = exactly((_BASE_MB[stage] + prefect[stage]) * 1e6)
        if stage == "count":
            table = distinct.n_unit.times(*[_ENTRY_BYTES] * 3).at_most(memory.kept_mb * 10**6)
            peak = base.plus(table.times(*[workers] * 3)).plus(exactly(workers * _TEXT_IN_HAND * in_hand))
        elif stage == "train-vocab":
            learning = distinct.n_bytes.times(*[_LEARNING_A_BYTE] * 3)
            peak = base.plus(learning).plus(exactly(_TOKEN_KB * 1e3 * vocab_size))
        else:
            cached = distinct.n.times(*[_CACHED_BYTES] * 3).at_most(params.run.cache_mb_max * 1e6)
            peak = base.plus(cached).plus(exactly(_TOKEN_KB * 1e3 * vocab_size))
            peak = peak.plus(exactly(workers * _ENCODING_A_TOKEN * per_byte * in_hand))
            if stage == "validate":
                peak = peak.plus(exactly(_BIGRAM_A_TOKEN * min(dataset["tokens"].point, N_IDS_MAX)))
        peaks.append(peak)
    most = max(peaks, key=lambda one: one.point)
    return most.times(_LESS_MEMORY, 1, _MORE_MEMORY).at_most(memory.mb_max * 1e6)


def _seconds(
    sample: Sample | None,
    known: Known,
    params: Params,
    memory: Memory,
    text_todo: Range,
    text: Range,
    distinct: _DistinctAll,
) -> dict[str, Range]:
    """The seconds of each stage that would run, and their sum."""
    found: dict[str, Range] = {}
    for stage, todo in known.stages.items():
        if not todo.would_run or stage not in STAGES:
            continue
        seconds = exactly(_START_S[stage])
        if sample is not None and stage != "train-vocab":
            rates = sample.rates
            workers = max(min(memory.workers, todo.n_units_todo or 1), 1)
            share = todo.file_bytes / max(known.shard_bytes, 1)
            work = text_todo if stage == "encode" else text.times(share, share, share)
            a_byte = rates.read + getattr(rates, stage)
            seconds = seconds.plus(work.times(*[a_byte / workers] * 3))
            if stage == "count":
                seconds = seconds.plus(distinct.n.times(*[_SUM_S] * 3)).plus(exactly(todo.file_bytes * _HASH_S))
            if stage == "validate" and sample.text_bytes:
                document = sample.text_bytes / max(sum(b.n_documents for s in sample.strata for b in s.encoded), 1)
                n_compared = n_sampled(params.validate_.sample_documents, round(work.point))
                compared = max(n_compared, (todo.n_units_todo or 0) * min(n_compared, 1)) * document
                seconds = seconds.plus(exactly(min(compared, work.point) * _REFERENCE_S / workers))
        elif sample is not None:
            seconds = seconds.plus(distinct.n_bytes.times(*[sample.rates.train] * 3))
        found[f"seconds {stage}"] = seconds.times(_FASTER, 1, _SLOWER)
    # The stages err in the same direction: what slows one slows the others.
    whole = exactly(0)
    for one in found.values():
        whole = whole.plus(one)
    return {"seconds": whole} | found
