"""Measures on a sample what a build would make of the documents, and how fast this machine makes it."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden import tokenizers_engine
from tokenmill.chat.encoder import ChatEncoder
from tokenmill.checks.row_checks import Judge, check_span
from tokenmill.checks.spans import aligned
from tokenmill.config.params import Params
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.shards import Shard
from tokenmill.counts.counter import Counter
from tokenmill.counts.table import merge, write_batches
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.errors import ChatError, CorpusError, SpecialTokenError
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill.pipeline.sampling import BATCH_BYTES, Excerpt, Observed, Reader, SampleSize, Stratum, allot, read_sample
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, learn

_FILE_BATCHES = 5  # of a file of the trial: short columns compress less
_COMPARED_BYTES = 100_000  # of text that the other engine encodes, to see how fast it is


@dataclass(frozen=True)
class Trial:
    """What a build does, tried on a sample. `tokenizer`: the one to encode with; None to take the one that is learned from the
    sample. `counts`, `learns`: whether the build counts pre-tokens, and learns a vocabulary. `scratch`: an empty folder. `chat_of`:
    gives the encoder of conversations; None for documents that are texts."""

    params: Params
    tokenizer: Tokenizer | None
    counts: bool
    learns: bool
    scratch: Path
    chat_of: Callable[[Tokenizer], ChatEncoder] | None = None


class Distinct(NamedTuple):
    """The number of distinct pre-tokens in `text_bytes` of text, and their total bytes."""

    text_bytes: int
    n: int
    n_bytes: int


@dataclass
class Rates:
    """Seconds per byte of text in one thread, under the machine's present load. `sum`: per distinct pre-token whose counts are
    added up. `learn`: per byte of distinct pre-tokens. `compare`: per byte of text that the other engine encodes."""

    read: float = 0.0
    count: float = 0.0
    sum: float = 0.0
    learn: float = 0.0
    encode: float = 0.0
    validate: float = 0.0
    compare: float = 0.0


@dataclass
class Sample:
    """What was measured on the sample.

    `read_bytes`: text that was read. `text_bytes`: text of it that was encoded, with `n_documents`, of which the longest has
    `longest_bytes`. `is_other`: whether the build will learn another tokenizer than this one, whose files have `tokenizer_bytes`.
    `half`, `all`: distinct pre-tokens of half of the text, and of all; None if nothing is counted. `counts_bytes`, `index_bytes`:
    sizes of the file with all counts and of the document index. `id_counts_bytes`: size of a file with the count of each id.
    """

    strata: list[Stratum]
    read_bytes: int
    text_bytes: int
    n_documents: int
    longest_bytes: int
    is_other: bool
    rates: Rates = field(default_factory=Rates)
    half: Distinct | None = None
    all: Distinct | None = None
    counts_bytes: int = 0
    id_max: int = 0
    tokenizer_bytes: int = 0
    index_bytes: int = 0
    id_counts_bytes: int = 0


class _Drawn(NamedTuple):
    """A batch to work on, and where it is from."""

    stratum: Stratum
    excerpt: Excerpt
    batch: Batch


def take_sample(trial: Trial, shards: Mapping[Shard, int], reader: Reader, size: SampleSize) -> Sample:
    """Reads a sample of the documents, and counts, encodes and checks some of it. `shards`: the file bytes to be encoded of each.

    Raises what a build would raise for these documents.
    """
    start_s = time.perf_counter()
    strata = read_sample(shards, reader, size)
    read_s = time.perf_counter() - start_s
    n_read = sum(batch.text_bytes for one in strata for excerpt in one.excerpts for batch in excerpt.batches)
    halves = _halves(strata, size)
    chosen = [one for half in halves for one in half]
    sample = Sample(
        strata,
        n_read,
        _text_bytes(chosen),
        sum(len(one.batch.texts) for one in chosen),
        max((pc.max(pc.binary_length(one.batch.texts)).as_py() or 0 for one in chosen), default=0),
        trial.learns,
    )
    sample.rates.read = read_s / max(n_read, 1)
    tokenizer = trial.tokenizer
    if trial.counts or trial.learns:
        first, whole = _count(sample, halves, trial)
        if trial.learns:
            # Learned on one half, a tokenizer makes too few tokens of it, and too many of the other; together that is about right.
            is_most = sample.text_bytes * 2 > sum(one.text_bytes for one in strata)
            learned = _learn(sample, whole if is_most else first, trial.params)
            tokenizer = tokenizer or learned
    assert tokenizer is not None
    sample.id_max = tokenizer.id_max
    _encode(sample, chosen, tokenizer, trial)
    _compare(sample, chosen, tokenizer, trial)
    return sample


def _halves(strata: Sequence[Stratum], size: SampleSize) -> tuple[list[_Drawn], list[_Drawn]]:
    """Draws two halves of the batches to work on, each with all strata in proportion to their text."""
    rng = random.Random(size.seed)
    halves: tuple[list[_Drawn], list[_Drawn]] = ([], [])
    there = [[_Drawn(one, excerpt, batch) for excerpt in one.excerpts for batch in excerpt.batches] for one in strata]
    numbers = allot(list(map(len, there)), [one.text_bytes for one in strata], size.work_bytes // BATCH_BYTES)
    for some, n in zip(there, numbers, strict=True):
        chosen = rng.sample(some, n)
        halves[0].extend(chosen[::2])
        halves[1].extend(chosen[1::2])
    return halves


def _text_bytes(some: Sequence[_Drawn]) -> int:
    return sum(one.batch.text_bytes for one in some)


def _count(sample: Sample, halves: Sequence[Sequence[_Drawn]], trial: Trial) -> tuple[pa.Table, pa.Table]:
    """Counts each half, and gives the counts of the first one and of both. `sample.half` is the mean of both halves."""
    start_s = time.perf_counter()
    tables = []
    for some in halves:
        counter = Counter(trial.params.count.pattern, threads=1)
        for one in some:
            counter.update(one.batch.texts)
        tables.append(counter.finish())
    sample.rates.count = _rate(start_s, sample.text_bytes)
    start_s = time.perf_counter()
    whole, path = merge(tables), trial.scratch / "counts.parquet"
    write_batches(whole.to_batches(), path)
    sample.rates.sum = _rate(start_s, whole.num_rows)
    sample.counts_bytes = path.stat().st_size
    n = sum(map(bool, halves)) or 1
    n_bytes = sum(map(_pretoken_bytes, tables)) // n
    sample.half = Distinct(sample.text_bytes // n, sum(one.num_rows for one in tables) // n, n_bytes)
    sample.all = Distinct(sample.text_bytes, whole.num_rows, _pretoken_bytes(whole))
    return tables[0], whole


def _pretoken_bytes(counts: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(counts["pretoken"])).as_py() or 0)


def _learn(sample: Sample, counts: pa.Table, params: Params) -> Tokenizer:
    asked = params.train_vocab
    goal = Goal(asked.pair_count_min, asked.token_bytes_max, asked.score, asked.pad_vocab_to)
    start_s = time.perf_counter()
    learned = learn(counts, [asked.vocab_size], params.count.pattern, asked.special_tokens, goal)
    sample.rates.learn = _rate(start_s, _pretoken_bytes(counts))
    return learned.tokenizers[0]


def _encode(sample: Sample, chosen: Sequence[_Drawn], tokenizer: Tokenizer, trial: Trial) -> None:
    """Encodes the batches into files as a build would, checks them, and adds the sizes to their strata."""
    has_names, asked = trial.params.has_ids, trial.params.encode
    begin_id, end_id = (
        tokenizer.special_tokens.get(name or "") for name in (asked.begin_of_document, asked.end_of_document)
    )
    chat = trial.chat_of(tokenizer) if trial.chat_of else None
    shape = schema(id_type(tokenizer.id_max), has_names, chat is not None)
    counts = TokenCounts(tokenizer.id_max)
    path, index_path, counts_path = (trial.scratch / name for name in ("tokens.parquet", "index.arrow", "ids.parquet"))
    for special in {one.stratum.special for one in chosen}:
        tokenizer.encode_batch(["a"], threads=1, special=special)  # makes the encoder before timing
    encode_s = validate_s = 0.0
    for stratum, some in _files(chosen):
        judge = Judge(tokenizer, begin_id, end_id, stratum.special == "allow", True, {}, chat)
        start_s = time.perf_counter()
        with (
            write_tokens(path, shape) as write,
            unit_index(index_path, [0], has_names, None, chat is not None) as add_to_index,
        ):
            for one in some:
                encoded, made = _encoded(one, judge, shape)
                write(made)
                add_to_index(0, encoded, made)
                ids = made["input_ids"].values
                counts.add(ids)
                stratum.tokens.append(Observed(one.batch.text_bytes, len(ids)))
        encoded_s = time.perf_counter()
        for span in aligned(((0, one.batch) for one in some), [stratum.name], read_tokens(path)):
            check_span(span, judge)
        encode_s, validate_s = encode_s + encoded_s - start_s, validate_s + time.perf_counter() - encoded_s
        stratum.files.append(Observed(_text_bytes(some), path.stat().st_size))
        sample.index_bytes += index_path.stat().st_size
    counts.write(counts_path)
    sample.id_counts_bytes = counts_path.stat().st_size
    sample.rates.encode, sample.rates.validate = (s / max(sample.text_bytes, 1) for s in (encode_s, validate_s))


def _files(chosen: Sequence[_Drawn]) -> Iterator[tuple[Stratum, list[_Drawn]]]:
    """Groups each stratum's batches into files of several."""
    by_stratum: dict[str, list[_Drawn]] = {}
    for one in chosen:
        by_stratum.setdefault(one.stratum.name, []).append(one)
    for some in by_stratum.values():
        n_files = max(len(some) // _FILE_BATCHES, 1)
        yield from ((some[0].stratum, some[i::n_files]) for i in range(n_files))


def _encoded(one: _Drawn, judge: Judge, shape: pa.Schema) -> tuple[Batch, pa.RecordBatch]:
    """The documents as they were encoded, and their rows. Raises CorpusError and SpecialTokenError that name file and row."""
    batch = one.batch
    try:
        if judge.chat is not None and batch.messages is not None:
            found = judge.chat.encode_batch(batch.messages)
            batch = replace(batch, texts=found.texts)
            return batch, rows(batch, found.input_ids, shape, found.loss_mask)
        ids = judge.tokenizer.encode_batch(
            batch.texts, threads=1, begin_id=judge.begin_id, end_id=judge.end_id, special=one.stratum.special
        )
        return batch, rows(batch, ids, shape, None)
    except ChatError as error:
        raise CorpusError(*error.inside(one.excerpt.place(batch, error.index)), code=error.code) from None
    except SpecialTokenError as error:
        place = one.excerpt.place(batch, error.index)
        raise SpecialTokenError(error.index, error.byte_offset, error.token, place) from None


def _compare(sample: Sample, chosen: Sequence[_Drawn], tokenizer: Tokenizer, trial: Trial) -> None:
    """Writes the tokenizer's files, and encodes some text with the other engine, with which validate compares some documents."""
    folder = trial.scratch / "saved"
    folder.mkdir()
    tokenizer.save(folder)
    sample.tokenizer_bytes = sum(path.stat().st_size for path in folder.iterdir())
    if trial.chat_of is not None or not trial.params.validate_.sample_documents:
        return
    encode = tokenizers_engine(folder)
    start_s, n_bytes = time.perf_counter(), 0
    for text in (text for one in chosen for text in one.batch.texts.slice(0, 8).to_pylist()):
        if n_bytes + len(text) <= _COMPARED_BYTES:
            encode(text)
            n_bytes += len(text.encode())
    sample.rates.compare = _rate(start_s, n_bytes)


def _rate(start_s: float, n: int) -> float:
    return (time.perf_counter() - start_s) / max(n, 1)
