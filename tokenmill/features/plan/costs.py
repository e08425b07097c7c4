"""Estimates what a build will cost: bytes on the disk, memory, and seconds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tokenmill.checks.row_checks import n_sampled
from tokenmill.corpus.limits import BATCH_BYTES
from tokenmill.features.plan.estimate import DistinctAll, Estimate, around, estimate_dataset, estimate_distinct, exactly
from tokenmill.features.plan.measuring import Sample
from tokenmill.features.plan.measuring_sets import NO_SETS
from tokenmill.features.plan.set_estimate import Sets, estimate_sets, many_epochs, tokens_of_sources
from tokenmill.features.plan.work import Distinct, Work
from tokenmill.formats.tokens import id_type
from tokenmill.layout import STAGES
from tokenmill.pipeline.rates import StageRate
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


class _Known(NamedTuple):
    """What costs are estimated from. `sample`: None if nothing is left to encode or to count. `id_max`: the largest id of the
    tokenizer. `dataset`: the quantities of the dataset. `sets`: its new file sets."""

    work: Work
    sample: Sample | None
    id_max: int
    dataset: Mapping[str, Estimate]
    distinct: DistinctAll
    sets: Sets


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


def estimate_costs(work: Work, sample: Sample | None, copies: int) -> Costs:
    """Estimates all quantities of a build. `sample`: None if nothing is left to encode or to count. `copies`: how many times an
    output is stored besides the unit store; 0 if files are hard links."""
    params, sources = work.project.params, work.project.params.document_sources()
    encodes, n_units = work.stages["encode"].would_run, max(work.stages["count"].n_units_todo or 1, 1)
    dataset = estimate_dataset(sample if work.stages["encode"].todo else None, work.finished, work.earlier)
    text_bytes = dataset["text_bytes"].point
    unit_bytes = text_bytes * work.share("count") / n_units
    distinct = estimate_distinct(sample, work.counted, list(_counted(work, sample)), text_bytes, unit_bytes)
    tokens_of = tokens_of_sources(sample, work.shards, dataset["tokens"].point, work.built)
    id_max = sample.id_max if sample else work.id_max
    rates = sample.sets if sample else NO_SETS
    sets = estimate_sets(dataset, params.encode, sources, tokens_of, rates, id_type(id_max).bit_width // 8)
    if params.encode.set_formats(sources):
        dataset["sets_bytes"] = sets.n_bytes if encodes else exactly(work.sets_bytes)
    dataset["distinct"] = distinct.n
    # Parts of documents that stay are not written again.
    is_done = min(work.finished.tokens / max(dataset["tokens"].point, 1), 1.0)
    new_bytes = Estimate(sets.n_bytes.low * (1 - is_done), sets.n_bytes.point, sets.n_bytes.high)
    known = _Known(work, sample, id_max, dataset, distinct, sets._replace(n_bytes=new_bytes) if encodes else Sets())
    outputs, store = _disk(known)
    spilled, buckets = _spilled(work, distinct), known.sets.buckets
    seconds = dict(_seconds(known))
    is_written = (
        sample.written_bytes / max(sample.text_bytes, 1) if sample else 1.0
    )  # of conversations, by the template
    rows_of_one = (
        sample.n_rows / sample.n_documents if sample and sample.n_documents else 1.0
    )  # of conversations, their samples
    done, done_bytes = work.finished.documents, work.finished.text_bytes
    costs = {
        "documents": dataset["documents"].without(done) * rows_of_one + exactly(done),
        "text_bytes": dataset["text_bytes"].without(done_bytes) * is_written + exactly(done_bytes),
        "disk_bytes": outputs * (1 + copies) + store,
        "dvc_cache_bytes": outputs * copies,
        "spill_bytes": spilled.or_more(buckets),
        "peak_memory_bytes": _peak(known),
        "seconds": sum(seconds.values(), exactly(0)),  # what slows one stage slows the others
    }
    learned_bytes = distinct.n_bytes.high if work.learns else 0.0
    refused = many_epochs(params.encode, sources, tokens_of)
    return Costs(dataset | costs | seconds, learned_bytes, spilled.high, buckets.high, refused)


def _counted(work: Work, sample: Sample | None) -> Iterator[Distinct]:
    """Yields the distinct pre-tokens of parts of the corpus that will be in its counts."""
    if work.counted_before is not None:
        yield work.counted_before
    params = work.project.params.count
    if sample is not None and sample.all is not None and params.count_min == 1 and not params.weights:
        yield sample.all


def _disk(known: _Known) -> tuple[Estimate, Estimate]:
    """Bytes of new outputs, and of what the unit store keeps besides them."""
    work, sample, _, dataset, distinct, sets = known
    stages, train_vocab = work.stages, work.project.params.train_vocab
    outputs = dataset["output_bytes"].without(work.finished.output_bytes) + sets.n_bytes
    store = sets.beside
    if stages["count"].would_run and sample:
        n_units = stages["count"].n_units_todo or 0
        outputs += distinct.n * distinct.file_byte
        store += distinct.n_unit * distinct.file_byte * n_units * (2 if n_units > _SUMMED_AT_ONCE_MAX else 1)
    if stages["train-vocab"].would_run and sample:
        sizes = (train_vocab.vocab_size, *train_vocab.vocab_sizes)
        n_bytes = sample.tokenizer_bytes * (sum(sizes) / sizes[0] if work.learns else 1) + _GOLDEN_BYTES
        outputs += around(n_bytes, n_bytes * 0.15)
        store += exactly(n_bytes * _LEARNED_SHARE * work.learns)
    if stages["encode"].would_run and sample:
        index_bytes = sample.index_bytes / max(sample.n_documents, 1)
        index = dataset["documents"].without(work.finished.documents) * around(index_bytes, index_bytes * 0.1)
        tables = sample.id_counts_bytes * len(sample.strata) + _ID_BYTES * sample.id_max
        of_units = sample.id_counts_bytes * (stages["encode"].n_units_todo or 0)
        outputs += index + around(tables, tables * 0.2)
        store += (index + around(of_units, of_units * 0.3)) * 2  # validate has units of its own with them
    if stages["validate"].would_run:
        outputs += _REPORT_BYTES
    if work.would_run:
        n_units = max(stage.n_units_todo or 0 for stage in stages.values())
        store += _SMALL_FILES * (_FILES_A_UNIT * n_units + _FILES_OF_A_BUILD)
    return outputs, store


def _spilled(work: Work, distinct: DistinctAll) -> Estimate:
    """Temporary bytes of counts that exceed the memory, or of checkpoints of the training."""
    spilled, params, memory = exactly(0), work.project.params, work.project.memory
    if work.stages["count"].would_run:
        tables = distinct.n_unit * _COUNTED_A_PRETOKEN
        of_one = distinct.n_bytes.point / max(distinct.n.point, 1) * _SPILLED_A_BYTE + _SPILLED_A_PRETOKEN
        spills = tables.each(lambda n: n > memory.kept_mb * 10**6)
        spilled = distinct.n_unit * (of_one * 2 * memory.workers) * spills
    every = params.run.checkpoint_every
    if work.learns and every and params.train_vocab.vocab_size > every:
        spilled = spilled.or_more(distinct.n_bytes * _CHECKPOINT_A_BYTE + distinct.n * _CHECKPOINT_A_PRETOKEN)
    return spilled


def _peak(known: _Known) -> Estimate:
    """The largest resident set of the stages that would run: that of the last build, if it did as much, else what a stage holds."""
    peaks = [exactly(0)]
    for stage, _, last in _todo(known):
        peaks.append(exactly(last.peak_bytes) if last is not None and last.peak_bytes else _held(known, stage))
    return (max(peaks, key=lambda one: one.point) * _MEMORY).at_most(known.work.project.memory.mb_max * 1e6)


def _held(known: _Known, stage: str) -> Estimate:
    """What a stage holds in memory."""
    work, sample, id_max, dataset, distinct, _ = known
    memory, params, n_units = work.project.memory, work.project.params, work.stages[stage].n_units_todo or 0
    base = exactly(_LIBRARIES + (_PREFECT if params.run.engine != "inline" else 0))
    workers = min(memory.workers, n_units or memory.workers)
    unit_bytes = dataset["text_bytes"].point * work.share(stage) / max(n_units, 1)
    in_hand = max(min(BATCH_BYTES, unit_bytes), sample.longest_bytes if sample else 0) * workers
    if stage == "count":
        table = (distinct.n_unit * _COUNTED_A_PRETOKEN).at_most(memory.kept_mb * 10**6)
        return base + table * workers + exactly(_COUNTING_A_BYTE * in_hand)
    base += exactly(_A_TOKEN_OF_THE_VOCABULARY * (id_max + 1))
    if stage == "train-vocab":
        return base + distinct.n_bytes * _LEARNING_A_BYTE
    tokens = dataset["tokens"].point
    base += (distinct.n * _CACHED_A_PRETOKEN).at_most(params.run.cache_mb_max * 1e6)
    base += exactly(_ENCODING_A_TOKEN * in_hand * tokens / max(dataset["text_bytes"].point, 1))
    if stage == "validate":
        base += exactly(_BIGRAM_A_TOKEN * min(tokens, N_IDS_MAX))
    pack = params.encode.pack
    if pack is not None and pack.output == "rows":
        base += (_PACKING + _PACKING_LABELS if pack.labels else _PACKING) * memory.workers
    return base


def _seconds(known: _Known) -> Iterator[tuple[str, Estimate]]:
    """The seconds of each stage that would run: as fast as in the last build, if it did as much, else as fast as the sample."""
    for stage, n_bytes, last in _todo(known):
        seconds = exactly(_START_S * (2 if stage == "validate" else 1))
        if last is not None:
            seconds = exactly(last.seconds * n_bytes / last.n_bytes)
        elif known.sample is not None:
            seconds += _tried(known, known.sample, stage)
        yield f"seconds {stage}", seconds * _SECONDS


def _tried(known: _Known, sample: Sample, stage: str) -> Estimate:
    """The seconds of a stage at the rates of the sample, without those to start it."""
    work, text, rates = known.work, known.dataset["text_bytes"], sample.seconds
    n_units = work.stages[stage].n_units_todo or 1
    workers = max(min(work.project.memory.workers, n_units), 1)
    todo = text.without(work.finished.text_bytes) if stage == "encode" else text * work.share(stage)
    # A byte of a file set takes about as long as one of a document that is read.
    sets = (known.sets.n_bytes + known.sets.buckets) * (rates["read"] / work.project.memory.workers)
    match stage:
        case "count":
            return todo * ((rates["read"] + rates["count"]) / workers) + known.distinct.n * rates["sum"]
        case "train-vocab":
            return known.distinct.n_bytes * rates["learn"]
        case "encode":
            return todo * ((rates["read"] + rates["encode"]) / workers) + sets
    n_compared = n_sampled(work.project.params.validate_.sample_documents, round(todo.point))
    a_document = sample.text_bytes / max(sample.n_documents, 1)
    compared = min(max(n_compared, n_units * min(n_compared, 1)) * a_document, todo.point)
    return (
        todo * ((rates["read"] + rates["validate"]) / workers) + exactly(compared * rates["compare"] / workers) + sets
    )


def _todo(known: _Known) -> Iterator[tuple[str, float, StageRate | None]]:
    """The stages that would run, each with the bytes by which records count its work, and with the record of as much work."""
    work = known.work
    for stage in STAGES:
        if work.stages[stage].would_run:
            text_bytes = known.dataset["text_bytes"].point
            n_bytes = text_bytes if stage == "train-vocab" else work.stages[stage].file_bytes
            last = work.rates.get(stage)
            yield stage, n_bytes, last if last is not None and last.serves(n_bytes) else None
