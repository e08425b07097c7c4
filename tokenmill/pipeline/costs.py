"""Estimates what a build will cost: bytes on the disk, memory, and seconds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.checks.row_checks import n_sampled
from tokenmill.config.params import Params
from tokenmill.corpus.limits import BATCH_BYTES
from tokenmill.corpus.shards import Shard
from tokenmill.formats.tokens import id_type
from tokenmill.layout import STAGES
from tokenmill.pipeline.estimate import (
    DistinctAll,
    EarlierTotals,
    Estimate,
    Finished,
    StageWork,
    around,
    estimate_dataset,
    estimate_distinct,
    exactly,
)
from tokenmill.pipeline.measuring import Distinct, Sample
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.rates import StageRate
from tokenmill.pipeline.set_estimate import Sets, estimate_sets, many_epochs, tokens_of_sources
from tokenmill.report.sample import N_IDS_MAX

_MEMORY = Estimate(0.75, 1.0, 1.25)
_SECONDS = Estimate(0.4, 1.0, 2.5)  # other programs use the machine, and caches fill
_START_S = 0.5  # of a stage, beside what grows with its documents; of validate twice as much, for the report

# What a stage holds, for one that has no record of a build. In bytes.
_LIBRARIES, _PREFECT = 205e6, 60e6
_BIGRAM_A_TOKEN = 42  # for each token that the report's bigram model reads
_A_TOKEN_OF_THE_VOCABULARY = 1_300
_ENCODING_A_TOKEN = 50  # of the batch in hand
_COUNTING_A_BYTE = 3  # of the batch in hand
_COUNTED_A_PRETOKEN = 48  # in a table of counts
_CACHED_A_PRETOKEN = 220  # in the encoder's cache
_LEARNING_A_BYTE = 22  # of the distinct pre-tokens
_PACKING = Estimate(0.0, 30e6, 100e6)  # of each worker
_PACKING_LABELS = Estimate(30e6, 90e6, 140e6)  # more, with labels

# Bytes of files that the sample does not have.
_GOLDEN_BYTES = 70_000  # golden vectors and the model card
_LEARNED_SHARE = 0.45  # of the tokenizer's files: what the unit store keeps of a learned vocabulary
_ID_BYTES = 16  # of an id in the tables of data/tables
_REPORT_BYTES = Estimate(0.0, 160_000, 230_000)  # the low is for one that replaces another
_SMALL_FILES = Estimate(1_600, 3_200, 5_200)  # a file of facts
_FILES_A_UNIT, _FILES_OF_A_BUILD = 5, 20
_SPILLED_A_BYTE, _SPILLED_A_PRETOKEN = 0.7, 6  # a run is compressed
_CHECKPOINT_A_BYTE, _CHECKPOINT_A_PRETOKEN = 2, 16
_SUMMED_AT_ONCE_MAX = 64  # files of counts; more are added up in groups, which are kept


@dataclass(frozen=True)
class Basis:
    """What estimates are based on. `sample`: None if nothing is left to encode or to count. `counted`: the distinct pre-tokens of
    the counts if these stay valid, else None. `copies`: how many times an output is stored besides the unit store; 0 if files are
    hard links. `earlier`: totals of files to encode that were read before. `built`: the tokens of each source in the present
    dataset. `rates`: what the stages took when a build last ran them. `id_max`: the largest id of the tokenizer."""

    params: Params
    memory: Memory
    stages: Mapping[str, StageWork]
    shards: Sequence[Shard]
    finished: Finished
    earlier: Mapping[Shard, EarlierTotals]
    counted: Distinct | None
    copies: int
    built: Mapping[str | None, int]
    rates: Mapping[str, StageRate]
    id_max: int
    sample: Sample | None

    @property
    def learns(self) -> bool:
        """Whether the build learns a vocabulary."""
        return self.params.tokenizer is None and self.stages["train-vocab"].would_run

    def share(self, stage: str) -> float:
        """The share of the documents' files that a stage would read."""
        return self.stages[stage].file_bytes / max(sum(shard.n_bytes for shard in self.shards), 1)


@dataclass(frozen=True)
class Costs:
    """The quantities by name, which ends in the unit: `seconds STAGE` for each stage that would run. `learned_bytes`: the most
    bytes of distinct pre-tokens to learn from; 0 if no vocabulary is learned. `spilled_bytes`, `buckets_bytes`: the most temporary
    bytes in run.spill_directory, and of shuffle buckets in the unit store. `refused`: a text for each budget of tokens that a build
    would refuse."""

    quantities: dict[str, Estimate]
    learned_bytes: float
    spilled_bytes: float
    buckets_bytes: float
    refused: list[str]


def estimate_costs(basis: Basis) -> Costs:
    """Estimates all quantities of a build."""
    params, sources = basis.params, basis.params.document_sources()
    encodes = basis.stages["encode"].would_run
    found = estimate_dataset(basis.sample if encodes else None, basis.finished, basis.earlier)
    text_bytes = found["text_bytes"].point
    n_units = max(basis.stages["count"].n_units_todo or 1, 1)
    distinct = estimate_distinct(basis.sample, basis.counted, text_bytes, text_bytes * basis.share("count") / n_units)
    tokens_of = tokens_of_sources(basis.sample, basis.shards, found["tokens"].point, basis.built)
    sets = estimate_sets(found, params.encode, sources, tokens_of, id_type(basis.id_max).bit_width // 8)
    if params.encode.set_formats(sources):
        found["sets_bytes"] = sets.n_bytes
    found["distinct"] = distinct.n
    # Parts of documents that stay are not written again.
    is_done = min(basis.finished.tokens / max(found["tokens"].point, 1), 1.0)
    new_bytes = Estimate(sets.n_bytes.low * (1 - is_done), sets.n_bytes.point, sets.n_bytes.high)
    sets = sets._replace(n_bytes=new_bytes) if encodes else Sets()
    outputs, store = _disk(basis, found, distinct)
    outputs += sets.n_bytes
    spilled = _spilled(basis, distinct)
    found["disk_bytes"] = outputs * (1 + basis.copies) + store + sets.beside
    found["dvc_cache_bytes"] = outputs * basis.copies
    found["spill_bytes"] = spilled.or_more(sets.buckets)
    found["peak_memory_bytes"] = _peak(basis, found, distinct)
    seconds = dict(_seconds(basis, found["text_bytes"], distinct, sets))
    found["seconds"] = sum(seconds.values(), exactly(0))  # what slows one stage slows the others
    return Costs(
        found | seconds,
        distinct.n_bytes.high if basis.learns else 0.0,
        spilled.high,
        sets.buckets.high,
        many_epochs(params.encode, sources, tokens_of),
    )


def _disk(basis: Basis, dataset: Mapping[str, Estimate], distinct: DistinctAll) -> tuple[Estimate, Estimate]:
    """Bytes of new outputs without file sets, and of what the unit store keeps besides them."""
    stages, sample = basis.stages, basis.sample
    outputs, store = dataset["output_bytes"].without(basis.finished.output_bytes), exactly(0)
    if stages["count"].would_run and sample:
        n_units = stages["count"].n_units_todo or 0
        outputs += distinct.n * distinct.file_byte
        store += distinct.n_unit * distinct.file_byte * n_units * (2 if n_units > _SUMMED_AT_ONCE_MAX else 1)
    if stages["train-vocab"].would_run and sample:
        sizes = (basis.params.train_vocab.vocab_size, *basis.params.train_vocab.vocab_sizes)
        n_bytes = sample.tokenizer_bytes * (sum(sizes) / sizes[0] if basis.learns else 1) + _GOLDEN_BYTES
        outputs += around(n_bytes, n_bytes * 0.15)
        store += exactly(n_bytes * _LEARNED_SHARE * basis.learns)
    if stages["encode"].would_run and sample:
        index_bytes = sample.index_bytes / max(sample.n_documents, 1)
        index = dataset["documents"].without(basis.finished.documents) * around(index_bytes, index_bytes * 0.1)
        tables = sample.id_counts_bytes * len(sample.strata) + _ID_BYTES * sample.id_max
        of_units = 2 * sample.id_counts_bytes * (stages["encode"].n_units_todo or 0)  # validate has them too
        outputs += index + around(tables, tables * 0.2)
        store += index + around(of_units, of_units * 0.3)
    if stages["validate"].would_run:
        outputs += _REPORT_BYTES
    if any(one.would_run for one in stages.values()):
        n_units = max(one.n_units_todo or 0 for one in stages.values())
        store += _SMALL_FILES * (_FILES_A_UNIT * n_units + _FILES_OF_A_BUILD)
    return outputs, store


def _spilled(basis: Basis, distinct: DistinctAll) -> Estimate:
    """Temporary bytes of counts that exceed the memory, or of checkpoints of the training."""
    spilled, every = exactly(0), basis.params.run.checkpoint_every
    if basis.stages["count"].would_run:
        tables = distinct.n_unit * _COUNTED_A_PRETOKEN
        of_one = distinct.n_bytes.point / max(distinct.n.point, 1) * _SPILLED_A_BYTE + _SPILLED_A_PRETOKEN
        spills = tables.each(lambda n: n > basis.memory.kept_mb * 10**6)
        spilled = distinct.n_unit * (of_one * 2 * basis.memory.workers) * spills
    if basis.learns and every and basis.params.train_vocab.vocab_size > every:
        spilled = spilled.or_more(distinct.n_bytes * _CHECKPOINT_A_BYTE + distinct.n * _CHECKPOINT_A_PRETOKEN)
    return spilled


def _peak(basis: Basis, dataset: Mapping[str, Estimate], distinct: DistinctAll) -> Estimate:
    """The largest resident set of the stages that would run: that of the last build, if it did as much, else what a stage holds."""
    peaks = [exactly(0)]
    for stage, _, last in _todo(basis, dataset["text_bytes"]):
        known = last is not None and last.peak_bytes
        peaks.append(exactly(known) if known else _held(basis, stage, dataset, distinct))
    return (max(peaks, key=lambda one: one.point) * _MEMORY).at_most(basis.memory.mb_max * 1e6)


def _held(basis: Basis, stage: str, dataset: Mapping[str, Estimate], distinct: DistinctAll) -> Estimate:
    """What a stage holds in memory."""
    work, sample, run = basis.stages[stage], basis.sample, basis.params.run
    base = exactly(_LIBRARIES + (_PREFECT if run.engine != "inline" else 0))
    workers = min(basis.memory.workers, work.n_units_todo or basis.memory.workers)
    unit_bytes = dataset["text_bytes"].point * basis.share(stage) / max(work.n_units_todo or 1, 1)
    in_hand = max(min(BATCH_BYTES, unit_bytes), sample.longest_bytes if sample else 0) * workers
    if stage == "count":
        table = (distinct.n_unit * _COUNTED_A_PRETOKEN).at_most(basis.memory.kept_mb * 10**6)
        return base + table * workers + exactly(_COUNTING_A_BYTE * in_hand)
    base += exactly(_A_TOKEN_OF_THE_VOCABULARY * (basis.id_max + 1))
    if stage == "train-vocab":
        return base + distinct.n_bytes * _LEARNING_A_BYTE
    tokens = dataset["tokens"].point
    base += (distinct.n * _CACHED_A_PRETOKEN).at_most(run.cache_mb_max * 1e6)
    base += exactly(_ENCODING_A_TOKEN * in_hand * tokens / max(dataset["text_bytes"].point, 1))
    if stage == "validate":
        base += exactly(_BIGRAM_A_TOKEN * min(tokens, N_IDS_MAX))
    pack = basis.params.encode.pack
    if pack is not None and pack.output == "rows":
        base += (_PACKING + _PACKING_LABELS if pack.labels else _PACKING) * basis.memory.workers
    return base


def _seconds(basis: Basis, text: Estimate, distinct: DistinctAll, sets: Sets) -> Iterator[tuple[str, Estimate]]:
    """The seconds of each stage that would run: as fast as in the last build, if it did as much, else as fast as the sample."""
    for stage, n_bytes, last in _todo(basis, text):
        seconds = exactly(_START_S * (2 if stage == "validate" else 1))
        if last is not None:
            seconds = exactly(last.seconds * n_bytes / last.n_bytes)
        elif basis.sample is not None:
            seconds += _tried(basis, basis.sample, stage, text, distinct)
            if stage in ("encode", "validate"):
                # A byte of a file set takes about as long as one of a document that is read.
                seconds += (sets.n_bytes + sets.buckets) * (basis.sample.rates.read / basis.memory.workers)
        yield f"seconds {stage}", seconds * _SECONDS


def _tried(basis: Basis, sample: Sample, stage: str, text: Estimate, distinct: DistinctAll) -> Estimate:
    """The seconds of a stage at the rates of the sample, without those to start it."""
    rates, n_units = sample.rates, basis.stages[stage].n_units_todo or 1
    workers = max(min(basis.memory.workers, n_units), 1)
    work = text.without(basis.finished.text_bytes) if stage == "encode" else text * basis.share(stage)
    match stage:
        case "count":
            return work * ((rates.read + rates.count) / workers) + distinct.n * rates.sum
        case "train-vocab":
            return distinct.n_bytes * rates.learn
        case "encode":
            return work * ((rates.read + rates.encode) / workers)
    n_compared = n_sampled(basis.params.validate_.sample_documents, round(work.point))
    a_document = sample.text_bytes / max(sample.n_documents, 1)
    compared = min(max(n_compared, n_units * min(n_compared, 1)) * a_document, work.point)
    return work * ((rates.read + rates.validate) / workers) + exactly(compared * rates.compare / workers)


def _todo(basis: Basis, text: Estimate) -> Iterator[tuple[str, float, StageRate | None]]:
    """The stages that would run, each with the bytes by which records count its work, and with the record of as much work."""
    for stage in STAGES:
        if basis.stages[stage].would_run:
            n_bytes = text.point if stage == "train-vocab" else basis.stages[stage].file_bytes
            last = basis.rates.get(stage)
            yield stage, n_bytes, last if last is not None and last.serves(n_bytes) else None
