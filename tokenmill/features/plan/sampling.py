"""Draws a seeded sample of the documents, and reads it."""

import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from tokenmill.config.source_params import Source
from tokenmill.corpus.filter import Filters, left_out
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.other_kinds import head_of, may_be_text
from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.units import source_name
from tokenmill.errors import CorpusError, DamagedError
from tokenmill.special_tokens import SpecialTokensInText

BATCH_BYTES = 1 << 18
_EXCERPT_BYTES_MIN = 4_000_000
_SHARDS_MAX = 12
_STRATA_MAX = 8
_COMPRESSED_READ_BYTES = 1 << 16  # pyarrow reads such a file in blocks of this size
_AFTER_BOM = 2  # a line from which on no byte order mark can stand


class SampleSize(NamedTuple):
    """The size of a sample. `seed`: decides which documents are drawn. `read_bytes`: text to read, which gives text and documents
    per file byte. `work_bytes`: text of it to count, encode and check."""

    seed: int = 0
    read_bytes: int = 48_000_000
    work_bytes: int = 12_000_000


class SampleReader(NamedTuple):
    """How documents are read, and which ones are left out."""

    source: Source
    limits: Limits
    filters: Filters

    def batches(self, shard: Shard, part: ShardRange | None) -> Iterator[Batch]:
        """The documents of a shard, or of a part of it, as a build reads them. Raises CorpusError and DamagedError."""

        def leave_out(batch: Batch) -> list[int]:
            return [*left_out(self.filters, shard.name, batch)]

        assert shard.source is not None
        on_bad = (lambda _: None) if self.source.on_bad_document == "quarantine" else None
        limits = replace(self.limits, batch_bytes=BATCH_BYTES)
        return read_batches(shard, shard.source.reading_for_index(None), part, on_bad, limits, leave_out)


@dataclass(frozen=True, eq=False)  # a key of dictionaries, by identity
class Excerpt:
    """What was read of one shard. `part`: where reading began; None for the shard's beginning. `is_whole`: whether it is all of the
    shard. `file_bytes`, `text_bytes`, `n_documents`: totals of it. `blur_bytes`: the largest error of `file_bytes`."""

    shard: Shard
    part: ShardRange | None
    batches: list[Batch]
    is_whole: bool
    file_bytes: int
    text_bytes: int
    n_documents: int
    blur_bytes: int

    def place(self, batch: Batch, index: int) -> str:
        """Names the file and row of a document in one of the batches."""
        first_row = 0 if self.part is None else _placed(self.shard, self.part).first_row
        return f"{self.shard.name}, row {first_row + batch.rows()[index].as_py()}"


class Observed(NamedTuple):
    """An observation of how many there are of something (tokens, bytes) in so many bytes, `of`."""

    of: int
    n: int


@dataclass(frozen=True)
class Stratum:
    """The shards of one format of one source. `file_bytes`: the bytes to encode. `special`: how they treat the texts of special
    tokens. `tokens`: those of each batch that was encoded. `files`: the bytes of each file, of several batches."""

    name: str
    shards: list[Shard]
    file_bytes: int
    special: SpecialTokensInText
    excerpts: list[Excerpt] = field(default_factory=list)
    tokens: list[Observed] = field(default_factory=list)
    files: list[Observed] = field(default_factory=list)

    def total(self, measure: Callable[[Excerpt], int]) -> int:
        """The sum of a measure over the excerpts."""
        return sum(map(measure, self.excerpts))

    @property
    def is_untouched(self) -> bool:
        """Whether all bytes of its shards have to be encoded."""
        return self.file_bytes == sum(shard.n_bytes for shard in self.shards)

    @property
    def text_bytes(self) -> float:
        """An estimate of the bytes of text of all its shards."""
        return self.file_bytes * self.total(lambda one: one.text_bytes) / max(self.total(lambda one: one.file_bytes), 1)


def read_sample(
    shards: Mapping[Shard, int], reader: SampleReader, size: SampleSize, known: Collection[Shard] = ()
) -> list[Stratum]:
    """Draws shards, larger ones more often, and reads batches of them. Half of the draws are of shards that are not `known`, as far
    as there are some. `shards`: the file bytes to be encoded of each.

    Raises what a build would raise for these documents.
    """
    rng = random.Random(size.seed)
    strata = _strata(shards)
    n_drawn = allot([len(one.shards) for one in strata], [one.file_bytes for one in strata], _SHARDS_MAX)
    text_bytes = max(min(size.read_bytes, _EXCERPT_BYTES_MIN), size.read_bytes // max(sum(n_drawn), 1))
    for stratum, n in zip(strata, n_drawn, strict=True):
        keys = {shard: rng.expovariate(max(shard.n_bytes, 1)) for shard in stratum.shards}
        drawn = sorted(keys, key=lambda shard: (keys[shard], shard.name))
        new = [shard for shard in drawn if shard not in known][: (n + 1) // 2]
        for shard in [*new, *(shard for shard in drawn if shard not in new)][:n]:
            if (excerpt := _read(shard, reader, text_bytes, rng)) is not None:
                stratum.excerpts.append(excerpt)
    return strata


def allot(there: Sequence[int], weights: Sequence[float], n: int) -> list[int]:
    """Divides `n` among groups in proportion to their weights: at least two each, but never more than a group has."""
    whole = sum(weights) or 1
    return [min(n_there, max(2, round(n * weight / whole))) for n_there, weight in zip(there, weights, strict=True)]


def _strata(shards: Mapping[Shard, int]) -> list[Stratum]:
    """Groups the shards by format and source. Beyond a limit, the smaller groups are merged, one per policy of special tokens."""
    groups: dict[tuple[str, SpecialTokensInText], list[Shard]] = {}
    for shard in (shard for shard, n_bytes in shards.items() if n_bytes):
        assert shard.source is not None
        name = f"{source_name(shard) or '.'} {shard.kind.suffix}"
        groups.setdefault((name, shard.source.special_tokens_in_text), []).append(shard)
    ordered = sorted(groups, key=lambda key: (-sum(shards[shard] for shard in groups[key]), key))
    for name, special in ordered[_STRATA_MAX - 1 :]:
        groups.setdefault((f"the rest, {special}", special), []).extend(groups.pop((name, special)))
    return [
        Stratum(name, of_group, sum(shards[shard] for shard in of_group), special)
        for (name, special), of_group in groups.items()
    ]


def _read(shard: Shard, reader: SampleReader, text_bytes_max: int, rng: random.Random) -> Excerpt | None:
    """Reads batches of a shard, from a random place if its format allows that, else from the beginning.

    Gives None for a damaged shard that the build would leave out."""
    part = _part(shard, text_bytes_max, rng)
    whole_bytes = (part or shard).n_bytes
    batches: list[Batch] = []
    n_read = n_file = 0
    is_at_end = True
    try:
        for batch in reader.batches(shard, part):
            # A nearly finished file is read to its end, because the end may differ from the beginning.
            if n_read >= text_bytes_max and (whole_bytes - n_file) * n_read > text_bytes_max * n_file:
                is_at_end = False
                break
            batches.append(batch)
            n_read += batch.text_bytes
            n_file += batch.file_bytes
    except CorpusError as error:
        if isinstance(error, DamagedError) and reader.source.on_bad_shard == "quarantine":
            return None
        if part is not None:
            deque(reader.batches(shard, _placed(shard, part)), maxlen=0)  # raises the same error with the true row
        raise
    read_batches = batches if is_at_end else _between_blocks(batches)
    return Excerpt(
        shard,
        part,
        batches,
        is_whole=is_at_end and part is None,
        file_bytes=whole_bytes if is_at_end else sum(batch.file_bytes for batch in read_batches),
        text_bytes=sum(batch.text_bytes for batch in read_batches),
        n_documents=sum(len(batch.texts) for batch in read_batches),
        blur_bytes=0 if is_at_end or not shard.kind.compression else _COMPRESSED_READ_BYTES,
    )


def _between_blocks(batches: list[Batch]) -> list[Batch]:
    """The batches of completely read blocks, whose file bytes are known.

    A reader reads a block and yields batches of it; the block's file bytes count for its first batch. The reader's buffers run
    ahead by the same amount at the start of each block, so this cancels out between block starts.
    """
    starts = [i for i, batch in enumerate(batches) if batch.file_bytes]
    return batches if len(starts) < 3 else batches[starts[1] : starts[-1]]


def _part(shard: Shard, text_bytes_max: int, rng: random.Random) -> ShardRange | None:
    """A range that begins at a random place; None for a shard to be read from its beginning, such as a .csv, in which a random
    place may be inside quotes."""
    if shard.kind == ("jsonl", "") and shard.n_bytes > 2 * text_bytes_max:
        with open_shard(shard) as file:
            if not may_be_text(head_of(file)):
                return None  # reading from the beginning will report the error
            file.seek(rng.randrange(shard.n_bytes - 2 * text_bytes_max))
            file.readline()
            start = file.tell()
        return ShardRange(start, shard.n_bytes, shard.n_bytes - start, 0, _AFTER_BOM)
    if shard.kind.format != "parquet":
        return None
    try:
        metadata = read_metadata(shard)
    except pa.ArrowException:
        return None  # reading the documents will report the error
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = [group.total_byte_size for group in groups]
    if sum(sizes) <= 2 * text_bytes_max:
        return None
    start = rng.randrange(len(groups))
    stop = start + 1
    while sum(sizes[start:stop]) < text_bytes_max:
        start, stop = (start, stop + 1) if stop < len(groups) else (start - 1, stop)
    columns = [group.column(i) for group in groups[start:stop] for i in range(group.num_columns)]
    return ShardRange(start, stop, sum(column.total_compressed_size for column in columns), 0, 1)


def _placed(shard: Shard, part: ShardRange) -> ShardRange:
    """The range with its true first row and line. Needed only for messages, because counting them reads the file up to there."""
    if shard.kind.format == "parquet":
        metadata = read_metadata(shard)
        return replace(part, first_row=sum(metadata.row_group(i).num_rows for i in range(part.start)), first_line=1)
    n_lines = first_row = 0
    with open_shard(shard) as file:
        while file.tell() < part.start:
            n_lines, first_row = n_lines + 1, first_row + bool(file.readline().strip())
    return replace(part, first_row=first_row, first_line=n_lines + 1)
