"""Measures on a sample what a build would make of the documents, and how fast this machine makes it."""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden import tokenizers_engine
from tokenmill.checks.chat_checks import samples_in
from tokenmill.checks.row_checks import Judge, check_span
from tokenmill.checks.spans import aligned
from tokenmill.config.params import Params
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import UNREAD, Piece, Unit
from tokenmill.counts.counter import Counter
from tokenmill.counts.table import merge, write_batches
from tokenmill.dataset.kept_columns import kept_of
from tokenmill.dataset.tables import UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.unit_output import TOKENS_FILE
from tokenmill.errors import ChatError, CorpusError, SpecialTokenError
from tokenmill.features.plan.measuring_sets import NO_SETS, SetRates, measure_sets
from tokenmill.features.plan.sampling import (
    BATCH_BYTES,
    Excerpt,
    Observed,
    SampleReader,
    SampleSize,
    Stratum,
    allot,
    read_sample,
)
from tokenmill.features.plan.work import Distinct, Work
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.formats.parquet import read_tokens
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.run_task import advance_nothing
from tokenmill.stages.count import preparation_of
from tokenmill.stages.encode_chat import chat_entry
from tokenmill.stages.encode_units import UnitFiles
from tokenmill.stages.encoder import Encoder, encoder_of
from tokenmill.stages.train_vocab_learn import goal_of
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import learn
from tokenmill.versioning.import_tokenizer import import_asked

_IMPORTED = "tokenizer"  # the folder of an imported tokenizer, in the scratch folder
_FILE_BATCHES = 5  # of a file of the trial: short columns compress less
_COMPARED_BYTES = 100_000  # of text that the other engine encodes, to see how fast it is


@dataclass
class Sample:
    """What was measured on the sample.

    `read_bytes`: text that was read. `text_bytes`: text of it that was encoded, with `n_documents`, of which the longest has
    `longest_bytes`. `is_other`: whether the build will learn another tokenizer than this one, which has ids up to `id_max` and
    whose files have `tokenizer_bytes`. `seconds`: how long one thread takes for a byte of text, under the machine's present load,
    by what it does: "read", "count", "encode", "validate", or "compare", which encodes with the other engine; "sum": for a distinct
    pre-token whose counts are added up; "learn": for a byte of distinct pre-tokens. `half`, `all`: distinct pre-tokens of half of
    the text, and of all; None if nothing is counted. `counts_bytes`, `index_bytes`: sizes of the file with all counts and of the
    document index. `id_counts_bytes`: size of a file with the count of each id. `written_bytes`: the text that
    was encoded, which a template writes of conversations. `n_rows`: the rows of the dataset that were made of the `n_documents`.
    `sets`: what tokens become in file sets.
    """

    strata: list[Stratum]
    read_bytes: int
    text_bytes: int
    n_documents: int
    longest_bytes: int
    is_other: bool
    seconds: dict[str, float]
    half: Distinct | None = None
    all: Distinct | None = None
    counts_bytes: int = 0
    id_max: int = 0
    tokenizer_bytes: int = 0
    index_bytes: int = 0
    id_counts_bytes: int = 0
    written_bytes: int = 0
    n_rows: int = 0
    sets: SetRates = NO_SETS


class _Drawn(NamedTuple):
    """A batch to work on, and where it is from."""

    stratum: Stratum
    excerpt: Excerpt
    batch: Batch


def take_sample(work: Work, scratch: Path, size: SampleSize) -> Sample | None:
    """Reads a sample of the documents of the first stage that has some to read, and counts, encodes and checks some of it. If all
    are encoded already, and file sets have to be written, the sample is of all documents. None if nothing has to be read.
    `scratch`: an empty folder.

    Raises what a build would raise for these documents.
    """
    stages, project = work.stages, work.project
    shards = next((stages[name].todo for name in ("encode", "count", "validate") if stages[name].todo), None)
    if shards is None and stages["encode"].would_run and project.params.encode.set_formats(project.sources.values()):
        shards = {shard: shard.n_bytes for shard in work.shards}
    if shards is None:
        return None
    tokenizer = _tokenizer(work, scratch)
    start_s = time.perf_counter()
    reader = SampleReader(project.params.source, project.memory.limits, project.read_filters())
    strata = read_sample(shards, reader, size, work.earlier)
    n_read = sum(batch.text_bytes for stratum in strata for excerpt in stratum.excerpts for batch in excerpt.batches)
    seconds = defaultdict(float, read=_rate(start_s, n_read))
    halves = _halves(strata, size)
    chosen = [drawn for half in halves for drawn in half]
    sample = Sample(
        strata,
        n_read,
        _text_bytes(chosen),
        sum(len(drawn.batch.texts) for drawn in chosen),
        max((pc.max(pc.binary_length(drawn.batch.texts)).as_py() or 0 for drawn in chosen), default=0),
        work.learns,
        seconds,
    )
    if work.counts or work.learns:
        first, whole = _count(sample, halves, project, scratch)
        if work.learns:
            # Learned on one half, a tokenizer makes too few tokens of it, and too many of the other; together that is about right.
            is_most = sample.text_bytes * 2 > sum(stratum.text_bytes for stratum in strata)
            learned = _learn(sample, whole if is_most else first, project.params)
            tokenizer = tokenizer or learned
    assert tokenizer is not None
    sample.id_max = tokenizer.id_max
    chat, imported = project.params.encode.chat, scratch / _IMPORTED
    entry = None if chat is None else chat_entry(project.root, chat, imported if imported.exists() else None)
    encoder = encoder_of(tokenizer, project.params.encode, entry)
    units = _encode(sample, chosen, encoder, project, scratch)
    sample.sets = measure_sets(units, encoder, project, scratch)
    _compare(sample, chosen, encoder, project.params.validate_.sample_documents, scratch)
    return sample


def _tokenizer(work: Work, scratch: Path) -> Tokenizer | None:
    """The tokenizer that encodes the sample; None if it has to be learned."""
    root, params = work.project.root, work.project.params
    if work.tokenizer is not None:
        return work.tokenizer
    if params.tokenizer is not None:
        return import_asked(root, params.tokenizer, scratch / _IMPORTED)
    if params.train_vocab.base is not None:
        return Tokenizer.load(root / params.train_vocab.base[1])
    return None


def _halves(strata: Sequence[Stratum], size: SampleSize) -> tuple[list[_Drawn], list[_Drawn]]:
    """Draws two halves of the batches to work on, each with all strata in proportion to their text."""
    rng = random.Random(size.seed)
    halves: tuple[list[_Drawn], list[_Drawn]] = ([], [])
    there = [
        [_Drawn(stratum, excerpt, batch) for excerpt in stratum.excerpts for batch in excerpt.batches]
        for stratum in strata
    ]
    numbers = allot(list(map(len, there)), [stratum.text_bytes for stratum in strata], size.work_bytes // BATCH_BYTES)
    for some, n in zip(there, numbers, strict=True):
        chosen = rng.sample(some, n)
        halves[0].extend(chosen[::2])
        halves[1].extend(chosen[1::2])
    return halves


def _text_bytes(some: Sequence[_Drawn]) -> int:
    return sum(one.batch.text_bytes for one in some)


def _count(
    sample: Sample, halves: Sequence[Sequence[_Drawn]], project: Project, scratch: Path
) -> tuple[pa.Table, pa.Table]:
    """Counts each half, and gives the counts of the first one and of both. `sample.half` is the mean of both halves."""
    preparation = preparation_of(project)
    start_s = time.perf_counter()
    tables = []
    for some in halves:
        counter = Counter(project.params.count.pattern, threads=1)
        for one in some:
            counter.update(preparation.texts_to_split(one.batch.texts))
        tables.append(counter.finish())
    sample.seconds["count"] = _rate(start_s, sample.text_bytes)
    start_s = time.perf_counter()
    whole, path = merge(tables), scratch / "counts.parquet"
    write_batches(whole.to_batches(), path)
    sample.seconds["sum"] = _rate(start_s, whole.num_rows)
    sample.counts_bytes = path.stat().st_size
    n = sum(map(bool, halves)) or 1
    n_bytes = sum(map(_pretoken_bytes, tables)) // n
    sample.half = Distinct(sample.text_bytes // n, sum(table.num_rows for table in tables) // n, n_bytes)
    sample.all = Distinct(sample.text_bytes, whole.num_rows, _pretoken_bytes(whole))
    return tables[0], whole


def _pretoken_bytes(counts: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(counts["pretoken"])).as_py() or 0)


def _learn(sample: Sample, counts: pa.Table, params: Params) -> Tokenizer:
    asked = params.train_vocab
    goal = goal_of(asked)
    start_s = time.perf_counter()
    learned = learn(counts, [asked.vocab_size], params.count.pattern, asked.special_tokens, goal)
    sample.seconds["learn"] = _rate(start_s, _pretoken_bytes(counts))
    return learned.tokenizers[0]


def _encode(
    sample: Sample, chosen: Sequence[_Drawn], encoder: Encoder, project: Project, scratch: Path
) -> list[EncodedUnit]:
    """Encodes the batches into files as a build does it for units, checks them, and adds the sizes to their strata. Gives the
    units."""
    units: list[EncodedUnit] = []
    tokenizer = encoder.tokenizer
    counts, counts_path = TokenCounts(tokenizer.id_max), scratch / UNIT_COUNTS_FILE
    for special in {drawn.stratum.special for drawn in chosen}:
        tokenizer.encode_batch(["a"], threads=1, special=special)  # makes the encoder before timing
    encode_s = validate_s = 0.0
    for stratum, of_stratum in _files(chosen):
        folder = Path(mkdtemp(dir=scratch))
        shard = of_stratum[0].excerpt.shard
        unit = Unit(stratum.name, stratum.name, (Piece(shard, None, UNREAD),))
        files = UnitFiles(unit, encoder, folder, project.memory.limits)
        start_s = time.perf_counter()
        with ExitStack() as stack:
            files.open(stack, None, kept_of(unit))
            for drawn in of_stratum:
                n_tokens = sum(_added(files, drawn))
                stratum.tokens.append(Observed(drawn.batch.text_bytes, n_tokens))
        none_left_out = GoodDocuments(unit, project.params.source, project.memory.limits, advance_nothing, {})
        facts = files.finish(none_left_out, [sum(len(drawn.batch.texts) for drawn in of_stratum)])
        sample.written_bytes += facts.text_bytes
        sample.n_rows += sum(facts.piece_rows)
        encode_s += time.perf_counter() - start_s
        start_s = time.perf_counter()
        ends = encoder.begin_id, encoder.end_id
        judge = Judge(tokenizer, *ends, stratum.special == "allow", True, {}, encoder.chat)
        tokens = _counted(read_tokens(folder / TOKENS_FILE), counts)
        documents = (drawn.batch for drawn in of_stratum)
        expected = documents if encoder.chat is None else samples_in(documents, [stratum.name], encoder.chat)
        for span in aligned(expected, [stratum.name], tokens):
            check_span(span, judge)
        validate_s += time.perf_counter() - start_s
        stratum.files.append(Observed(_text_bytes(of_stratum), (folder / TOKENS_FILE).stat().st_size))
        sample.index_bytes += (folder / UNIT_INDEX_FILE).stat().st_size
        name = folder.name
        paths = folder / TOKENS_FILE, folder / UNIT_INDEX_FILE
        units.append(EncodedUnit(name, *paths, starts_of(unit), [name], unit.source.name or ""))
    counts.write(counts_path)
    sample.id_counts_bytes = counts_path.stat().st_size
    sample.seconds["encode"], sample.seconds["validate"] = (
        s / max(sample.text_bytes, 1) for s in (encode_s, validate_s)
    )
    return units


def _added(files: UnitFiles, drawn: _Drawn) -> Iterator[int]:
    """Adds a batch, as a build does it, and gives the numbers of its tokens."""
    with _naming(drawn):
        samples = iter([drawn.batch]) if files.encoder.chat is None else files.encoder.chat.samples(drawn.batch)
    for part in samples:
        with _naming(drawn._replace(batch=part)):
            yield files.add(part)


def _files(chosen: Sequence[_Drawn]) -> Iterator[tuple[Stratum, list[_Drawn]]]:
    """Groups each stratum's batches of one source into files of several."""
    groups: dict[tuple[str, str], list[_Drawn]] = {}
    for one in chosen:
        groups.setdefault((one.stratum.name, one.excerpt.shard.section), []).append(one)
    for some in groups.values():
        n_files = max(len(some) // _FILE_BATCHES, 1)
        yield from ((some[0].stratum, some[i::n_files]) for i in range(n_files))


def _counted(batches: Iterable[pa.RecordBatch], counts: TokenCounts) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and counts their tokens."""
    for batch in batches:
        counts.add(batch["input_ids"].flatten())
        yield batch


@contextmanager
def _naming(drawn: _Drawn) -> Iterator[None]:
    """Makes errors of the block, which encodes a batch, name the document's file and row."""
    try:
        yield
    except ChatError as error:
        raise CorpusError(*error.inside(drawn.excerpt.place(drawn.batch, error.index)), code=error.code) from None
    except SpecialTokenError as error:
        place = drawn.excerpt.place(drawn.batch, error.index)
        raise SpecialTokenError(error.index, error.byte_offset, error.token, place) from None


def _compare(sample: Sample, chosen: Sequence[_Drawn], encoder: Encoder, sample_documents: int, scratch: Path) -> None:
    """Writes the tokenizer's files, and encodes some text with the other engine, with which validate compares some documents."""
    folder = scratch / "saved"
    folder.mkdir()
    encoder.tokenizer.save(folder)
    sample.tokenizer_bytes = sum(path.stat().st_size for path in folder.iterdir())
    if encoder.chat is not None or not sample_documents:
        return
    encode = tokenizers_engine(folder)
    start_s, n_bytes = time.perf_counter(), 0
    for text in (text for one in chosen for text in one.batch.texts.slice(0, 8).to_pylist()):
        if n_bytes + len(text) <= _COMPARED_BYTES:
            encode(text)
            n_bytes += len(text.encode())
    sample.seconds["compare"] = _rate(start_s, n_bytes)


def _rate(start_s: float, n: int) -> float:
    return (time.perf_counter() - start_s) / max(n, 1)
