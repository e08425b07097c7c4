"""Reads a seeded sample of the documents, and measures on it what a build would make of them and how fast."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.chat.encoder import ChatEncoder
from tokenmill.checks.row_checks import Judge, check_span
from tokenmill.checks.spans import aligned
from tokenmill.config.params import Params, Source
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.drop import DropList
from tokenmill.corpus.dropped import without
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.units import source_name
from tokenmill.counts.counter import Counter
from tokenmill.counts.table import merge, write_batches
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.errors import ChatError, CorpusError, DamagedError, SpecialTokenError
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, learn

READ_BYTES = 48_000_000  # of text to read: gives text and documents per file byte
WORK_BYTES = 12_000_000  # of text to count, encode and check
_BATCH_BYTES = 1 << 18
_FILE_BATCHES = 5
_PIECE_BYTES_MIN = 4_000_000
_SHARDS_MAX = 12
_STRATA_MAX = 8
_COMPRESSED_READ_BYTES = 1 << 16  # pyarrow reads such a file in blocks of this size
_AFTER_BOM = 2  # a line from which on no byte order mark can stand


@dataclass(frozen=True)
class Piece:
    """The part of one shard that was read. `is_whole`: whether it is all of the shard. `file_bytes`, `text_bytes`, `n_documents`:
    totals of the part. `blur_bytes`: the largest error of `file_bytes`. `part`: where reading began; None for the shard's
    beginning."""

    shard: Shard
    batches: list[Batch]
    file_bytes: int
    text_bytes: int
    n_documents: int
    is_whole: bool
    blur_bytes: int
    part: ShardRange | None = None

    def place(self, batch: Batch, index: int) -> str:
        """Names the file and row of a document in one of the batches."""
        first_row = 0 if self.part is None else _placed(self.shard, self.part).first_row
        return f"{self.shard.name}, row {first_row + batch.rows()[index].as_py()}"


@dataclass(frozen=True)
class Encoded:
    """The size of one batch before and after encoding."""

    text_bytes: int
    n_documents: int
    n_tokens: int


class Written(NamedTuple):
    """The bytes of some text, and of the token file made from it."""

    text_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Stratum:
    """The shards of one format of one source. `file_bytes`: the bytes to encode. `special`: how they treat the texts of special
    tokens. `encoded`: the encoded batches. `written`: files of several batches each."""

    name: str
    shards: list[Shard]
    file_bytes: int
    special: SpecialTokensInText
    pieces: list[Piece] = field(default_factory=list)
    encoded: list[Encoded] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)


@dataclass(frozen=True)
class Distinct:
    """The number of distinct pre-tokens in `text_bytes` of text, and their total bytes."""

    text_bytes: int
    n: int
    n_bytes: int


@dataclass
class Rates:
    """Seconds per byte of text in one thread, under the machine's present load. `train`: per byte of distinct pre-tokens."""

    read: float = 0.0
    count: float = 0.0
    train: float = 0.0
    encode: float = 0.0
    validate: float = 0.0


@dataclass(frozen=True)
class Sample:
    """What was measured on the sample.

    `half`, `all`: distinct pre-tokens of half of its text, and of all; None if nothing is counted. `counts_bytes`: size of the file
    with all counts. `index_bytes`: size of the document index per document. `id_counts_bytes`: size of a file with the count of
    each id. `read_bytes`: text that was read, some of it encoded. `optimism`: excess tokens, as a share, on text that the tokenizer
    was not learned from. `is_learned`: whether the tokenizer was learned on the sample. `longest_bytes`: size of the longest
    document.
    """

    strata: list[Stratum]
    rates: Rates
    half: Distinct | None
    all: Distinct | None
    counts_bytes: int
    index_bytes: float
    id_counts_bytes: int
    read_bytes: int
    optimism: float
    is_learned: bool
    vocab_size: int
    longest_bytes: int

    @property
    def text_bytes(self) -> int:
        """The bytes of text that were encoded."""
        return sum(one.text_bytes for stratum in self.strata for one in stratum.encoded)


def take_sample(
    shards: Mapping[Shard, int],
    params: Params,
    tokenizer: Tokenizer | None,
    counts: bool,
    learns: bool,
    seed: int,
    limits: Limits,
    scratch: Path,
    drops: DropList,
    read_bytes: int = READ_BYTES,
    work_bytes: int = WORK_BYTES,
    chat_of: Callable[[Tokenizer], ChatEncoder] | None = None,
) -> Sample:
    """Draws shards, larger ones more often, reads batches of them, and counts, encodes and checks some.

    `shards`: the file bytes to be encoded of each. `tokenizer`: the one to encode with; None to take the one that is learned from
    the sample. `counts`, `learns`: whether the build counts pre-tokens, and learns a vocabulary. `scratch`: an empty folder.
    `chat_of`: gives the encoder of conversations; None for documents that are texts. `drops`: the documents to leave out.
    Raises what a build would raise for these documents.
    """
    rng = random.Random(seed)
    rates = Rates()
    strata = _strata(shards)
    n_drawn = _allot([len(one.shards) for one in strata], [one.file_bytes for one in strata], _SHARDS_MAX)
    drawn = [(stratum, shard) for stratum, n in zip(strata, n_drawn, strict=True) for shard in _draw(stratum, n, rng)]
    start_s = time.perf_counter()
    for stratum, shard in drawn:
        piece = _read(
            shard, params.source, max(min(read_bytes, _PIECE_BYTES_MIN), read_bytes // len(drawn)), limits, rng, drops
        )
        if piece is not None:
            stratum.pieces.append(piece)
    n_read = sum(batch.text_bytes for one in strata for piece in one.pieces for batch in piece.batches)
    rates.read = _rate(start_s, n_read)
    halves = _halves(strata, work_bytes, rng)
    chosen = [pair for half in halves for pair in half]
    tables, half, all_ = _count(halves, params, rates) if counts or learns else ([], None, None)
    # Learned on one half, a tokenizer makes too few tokens of it, and too many of the other; together that is about right.
    is_most = sum(batch.text_bytes for _, batch in chosen) * 2 > _text_of(strata)
    learned = None
    if learns and half and all_:
        learned = _learn(tables[is_most], params, rates, (half, all_)[is_most])
    used = tokenizer or learned
    assert used is not None
    index_bytes, id_counts_bytes = _encode(chosen, used, params, scratch, rates, chat_of and chat_of(used))
    return Sample(
        strata,
        rates,
        half,
        all_,
        _written(tables[1], scratch) if tables else 0,
        index_bytes,
        id_counts_bytes,
        n_read,
        _optimism(halves, used) if used is learned and not is_most else 0.0,
        used is learned,
        used.vocab_size,
        max((_longest(batch) for _, batch in chosen), default=0),
    )


Chosen = tuple[Stratum, Batch]


def _strata(shards: Mapping[Shard, int]) -> list[Stratum]:
    """Groups the shards by format and source. Beyond a limit, the smaller groups are merged, one per policy of special tokens."""
    by_kind: dict[tuple[str, str], list[Shard]] = {}
    for shard, n_bytes in shards.items():
        if n_bytes:
            by_kind.setdefault((source_name(shard), shard.kind.suffix), []).append(shard)
    found = [
        Stratum(f"{source or '.'} {suffix}", some, sum(shards[one] for one in some), _special_of(some[0]))
        for (source, suffix), some in by_kind.items()
    ]
    found.sort(key=lambda one: (-one.file_bytes, one.name))
    kept, rest = found[: _STRATA_MAX - 1], found[_STRATA_MAX - 1 :]
    for special in sorted({one.special for one in rest}):
        of = [one for one in rest if one.special == special]
        some = [shard for one in of for shard in one.shards]
        kept.append(Stratum(f"the rest, {special}", some, sum(one.file_bytes for one in of), special))
    return kept


def _special_of(shard: Shard) -> SpecialTokensInText:
    assert shard.source is not None
    return shard.source.special_tokens_in_text


def _allot(there: Sequence[int], weights: Sequence[float], n: int) -> list[int]:
    """Divides `n` among groups in proportion to their weights: at least two each, but never more than a group has."""
    whole = sum(weights) or 1
    return [min(n_there, max(2, round(n * weight / whole))) for n_there, weight in zip(there, weights, strict=True)]


def _draw(stratum: Stratum, n: int, rng: random.Random) -> list[Shard]:
    """Draws at most `n` shards, with chances in proportion to their sizes."""
    keys = {shard: rng.expovariate(max(shard.n_bytes, 1)) for shard in stratum.shards}
    return sorted(keys, key=lambda shard: (keys[shard], shard.name))[:n]


def _read(
    shard: Shard, source: Source, text_bytes_max: int, limits: Limits, rng: random.Random, drops: DropList
) -> Piece | None:
    """Reads batches of a shard, from a random place if its format allows that, else from the beginning.

    Gives None for a damaged shard that the build would leave out."""
    part = _part(shard, text_bytes_max, rng)
    n_bad = 0

    def on_bad(_: BadDocument) -> None:
        nonlocal n_bad
        n_bad += 1

    def without_dropped(row: int, texts: pa.LargeStringArray, ids: Any) -> pa.LargeStringArray:
        return without(texts, [one.row - row for one in drops.find(shard.name, row, texts, ids)])

    passes = on_bad if source.on_bad_document == "quarantine" else None
    assert shard.source is not None
    reading = shard.source.reading
    batches: list[Batch] = []
    n_read = n_file = 0
    is_at_end, is_nearly_read = True, False

    def read(some: ShardRange | None) -> Iterator[Batch]:
        return read_batches(shard, reading, some, passes, replace(limits, batch_bytes=_BATCH_BYTES), without_dropped)

    try:
        for batch in read(part):
            if n_read >= text_bytes_max and not is_nearly_read:
                # A nearly finished file is read to its end, because the end may differ from the beginning.
                left = ((part or shard).n_bytes - n_file) * n_read / max(n_file, 1)
                if left > text_bytes_max:
                    is_at_end = False
                    break
                is_nearly_read = True
            batches.append(batch)
            n_read += batch.text_bytes
            n_file += batch.file_bytes
    except CorpusError as error:
        if isinstance(error, DamagedError) and source.on_bad_shard == "quarantine":
            return None
        if part is not None:
            for _ in read(_placed(shard, part)):  # raises the same error with the true row
                pass
        raise
    some = batches if is_at_end else _between_blocks(batches)
    return Piece(
        shard,
        batches,
        (part or shard).n_bytes if is_at_end else sum(batch.file_bytes for batch in some),
        sum(batch.text_bytes for batch in some),
        sum(len(batch.texts) for batch in some),
        is_whole=is_at_end and part is None,
        blur_bytes=0 if is_at_end or not shard.kind.compression else _COMPRESSED_READ_BYTES,
        part=part,
    )


def _placed(shard: Shard, part: ShardRange) -> ShardRange:
    """The range with its true first row and line. Needed only for messages, because counting them reads the file up to there."""
    first_row, n_lines = 0, 0
    if shard.kind.format == "parquet":
        metadata = read_metadata(shard)
        first_row = sum(metadata.row_group(i).num_rows for i in range(part.start))
    else:
        with open_shard(shard) as file:
            while file.tell() < part.start:
                line = file.readline()
                n_lines, first_row = n_lines + 1, first_row + bool(line.strip())
    return replace(part, first_row=first_row, first_line=n_lines + 1)


def _between_blocks(batches: list[Batch]) -> list[Batch]:
    """The batches of completely read blocks, whose file bytes are known.

    A reader reads a block and yields batches of it; the block's file bytes count for its first batch. The reader's buffers run
    ahead by the same amount at the start of each block, so this cancels out between block starts.
    """
    starts = [i for i, batch in enumerate(batches) if batch.file_bytes]
    if len(starts) < 3:
        return batches
    return batches[starts[1] : starts[-1]]


def _part(shard: Shard, text_bytes_max: int, rng: random.Random) -> ShardRange | None:
    """A range that begins at a random place; None for a shard to be read from its beginning."""
    if shard.kind.is_cut_at_lines and shard.n_bytes > 2 * text_bytes_max:
        with open_shard(shard) as file:
            file.seek(rng.randrange(shard.n_bytes - 2 * text_bytes_max))
            file.readline()
            start = file.tell()
        return ShardRange(start, shard.n_bytes, shard.n_bytes - start, 0, _AFTER_BOM)
    if shard.kind.format == "parquet":
        try:
            metadata = read_metadata(shard)
        except pa.ArrowException:
            return None  # reading the documents will report the error
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) <= 2 * text_bytes_max:
            return None
        start = rng.randrange(len(groups))
        stop, n_bytes = start + 1, groups[start].total_byte_size
        while n_bytes < text_bytes_max:
            if stop < len(groups):
                stop += 1
                n_bytes += groups[stop - 1].total_byte_size
            else:
                start -= 1
                n_bytes += groups[start].total_byte_size
        read = groups[start:stop]
        compressed = sum(group.column(i).total_compressed_size for group in read for i in range(group.num_columns))
        return ShardRange(start, stop, compressed, 0, 1)
    return None


def _halves(strata: Sequence[Stratum], work_bytes: int, rng: random.Random) -> tuple[list[Chosen], list[Chosen]]:
    """Draws two halves of the batches to work on, each with all strata in proportion to their text."""
    halves: tuple[list[Chosen], list[Chosen]] = ([], [])
    batches = [[batch for piece in one.pieces for batch in piece.batches] for one in strata]
    text = [_text_of([one]) for one in strata]
    numbers = _allot([len(some) for some in batches], text, work_bytes // _BATCH_BYTES)
    for stratum, some, n in zip(strata, batches, numbers, strict=True):
        chosen = rng.sample(some, n)
        halves[0].extend((stratum, batch) for batch in chosen[::2])
        halves[1].extend((stratum, batch) for batch in chosen[1::2])
    return halves


def _text_of(strata: Sequence[Stratum]) -> float:
    """Estimates the text bytes of the strata."""
    return sum(
        one.file_bytes * sum(piece.text_bytes for piece in one.pieces) / max(sum(p.file_bytes for p in one.pieces), 1)
        for one in strata
    )


def _count(
    halves: tuple[list[Chosen], list[Chosen]], params: Params, rates: Rates
) -> tuple[list[pa.Table], Distinct, Distinct]:
    """Counts the first half and both halves; also gives the distinct pre-tokens of a half (the mean) and of both."""
    tables, texts = [], []
    for some in halves:
        counter = Counter(params.count.pattern, threads=1)
        start_s = time.perf_counter()
        for _, batch in some:
            counter.update(batch.texts)
        tables.append(counter.finish())
        texts.append(sum(batch.text_bytes for _, batch in some))
        if texts[-1]:
            rates.count = _rate(start_s, texts[-1])
    whole = merge(tables)
    n_halves = sum(map(bool, texts)) or 1
    half = Distinct(
        sum(texts) // n_halves,
        sum(table.num_rows for table in tables) // n_halves,
        sum(map(_bytes_of, tables)) // n_halves,
    )
    return [tables[0], whole], half, Distinct(sum(texts), whole.num_rows, _bytes_of(whole))


def _bytes_of(table: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(table["pretoken"])).as_py() or 0)


def _written(table: pa.Table, scratch: Path) -> int:
    path = scratch / "counts.parquet"
    write_batches(table.to_batches(), path)
    return path.stat().st_size


def _learn(table: pa.Table, params: Params, rates: Rates, of: Distinct) -> Tokenizer:
    asked = params.train_vocab
    goal = Goal(asked.pair_count_min, asked.token_bytes_max, asked.score, asked.pad_vocab_to)
    start_s = time.perf_counter()
    learned = learn(table, [asked.vocab_size], params.count.pattern, asked.special_tokens, goal)
    rates.train = _rate(start_s, of.n_bytes)
    return learned.tokenizers[0]


def _encode(
    chosen: Sequence[Chosen],
    tokenizer: Tokenizer,
    params: Params,
    scratch: Path,
    rates: Rates,
    chat: ChatEncoder | None,
) -> tuple[float, int]:
    """Encodes the batches into files as a build would, checks them, and adds the sizes to their strata.

    Gives the bytes of the document index per document, and the size of a file with the count of each id."""
    asked = params.encode
    begin_id = tokenizer.special_tokens.get(asked.begin_of_document or "")
    end_id = tokenizer.special_tokens.get(asked.end_of_document or "")
    for special in {stratum.special for stratum, _ in chosen}:
        tokenizer.encode_batch(["a"], threads=1, special=special)  # makes the encoder before timing
    has_names = params.has_ids
    has_mask = chat is not None
    shape = schema(id_type(tokenizer.id_max), has_names, has_mask)
    path, index_path, counts_path = (scratch / name for name in ("tokens.parquet", "index.arrow", "ids.parquet"))
    with write_tokens(path, shape):
        pass
    around_bytes = path.stat().st_size  # header and footer of a file
    counts = TokenCounts(tokenizer.id_max)
    n_bytes = n_documents = index_bytes = 0
    encode_s = validate_s = 0.0
    for stratum, batches in _in_files(chosen):
        special = stratum.special
        judge = Judge(tokenizer, begin_id, end_id, special == "allow", True, {}, chat)
        start_s = time.perf_counter()
        with write_tokens(path, shape) as write, unit_index(index_path, [0], has_names, None, has_mask) as add_to_index:
            for batch in batches:
                encoded, loss_mask = batch, None
                try:
                    if chat is not None and batch.messages is not None:
                        made_of = chat.encode_batch(batch.messages)
                        ids, loss_mask = made_of.input_ids, made_of.loss_mask
                        encoded = replace(batch, texts=made_of.texts)
                    else:
                        ids = tokenizer.encode_batch(
                            batch.texts, threads=1, begin_id=begin_id, end_id=end_id, special=special
                        )
                except ChatError as error:
                    raise CorpusError(f"{_place(stratum, batch, error.index)}: {error}", code=error.code) from None
                except SpecialTokenError as error:
                    place = _place(stratum, batch, error.index)
                    raise SpecialTokenError(error.index, error.byte_offset, error.token, place) from None
                counts.add(ids.values)
                made = rows(encoded, ids, shape, loss_mask)
                write(made)
                add_to_index(0, encoded, made)
                stratum.encoded.append(Encoded(batch.text_bytes, len(batch.texts), len(ids.values)))
        middle_s = time.perf_counter()
        for span in aligned(((0, batch) for batch in batches), [stratum.name], read_tokens(path)):
            check_span(span, judge)
        validate_s += time.perf_counter() - middle_s
        encode_s += middle_s - start_s
        text_bytes = sum(batch.text_bytes for batch in batches)
        stratum.written.append(Written(text_bytes, path.stat().st_size - around_bytes))
        n_bytes += text_bytes
        n_documents += sum(len(batch.texts) for batch in batches)
        index_bytes += index_path.stat().st_size
    rates.encode, rates.validate = encode_s / max(n_bytes, 1), validate_s / max(n_bytes, 1)
    counts.write(counts_path)
    return index_bytes / max(n_documents, 1), counts_path.stat().st_size


def _place(stratum: Stratum, batch: Batch, index: int) -> str:
    """Names the file and row of a document of a batch."""
    return next(piece.place(batch, index) for piece in stratum.pieces if any(one is batch for one in piece.batches))


def _in_files(chosen: Sequence[Chosen]) -> Iterator[tuple[Stratum, list[Batch]]]:
    """Groups each stratum's batches into files of several, because short columns compress less."""
    by_stratum: dict[str, tuple[Stratum, list[Batch]]] = {}
    for stratum, batch in chosen:
        by_stratum.setdefault(stratum.name, (stratum, []))[1].append(batch)
    for stratum, batches in by_stratum.values():
        n_files = max(len(batches) // _FILE_BATCHES, 1)
        yield from ((stratum, batches[i::n_files]) for i in range(n_files))


def _optimism(halves: tuple[list[Chosen], list[Chosen]], tokenizer: Tokenizer) -> float:
    """The excess of tokens per byte in the second half over the first, from which the tokenizer was learned; at least 0."""
    first, second = (
        sum(int(pc.sum(tokenizer.count_tokens(batch.texts)).as_py()) for _, batch in half)
        / max(sum(batch.text_bytes for _, batch in half), 1)
        for half in halves
    )
    return max(second / first - 1, 0.0) if first and halves[1] else 0.0


def _longest(batch: Batch) -> int:
    return int(pc.max(pc.binary_length(batch.texts)).as_py() or 0)


def _rate(start_s: float, n: int) -> float:
    return (time.perf_counter() - start_s) / max(n, 1)
