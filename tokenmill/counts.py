"""Counts of pre-tokens: making them from documents, adding them up, keeping them in a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill import _core
from tokenmill.errors import CorpusError, CountsError
from tokenmill.files import write_atomic
from tokenmill.patterns import steps_of
from tokenmill.texts import Texts, text_chunks
from tokenmill.threads import threads_or_all

SCHEMA = pa.schema([pa.field("pretoken", pa.binary(), nullable=False), pa.field("count", pa.uint64(), nullable=False)])

_SLICE_BYTES = 1 << 26  # text counted between two looks at the memory held
_CHUNK_BYTES_MAX = (1 << 31) - 1  # a chunk of a binary column has 32-bit offsets
_ROW_GROUP_ROWS = 1 << 18  # fixed, so that the file's bytes follow from its rows alone


class Counter:
    """Counts pre-tokens exactly, in 64 bits, with checked addition.

    `pattern`: a named pattern, a regex, or None: each document is one pre-token. `memory_mb_max`: what the table of counts
    may hold. `threads`: None takes all cores; the counts are the same with any number. Raises PatternError.

    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["the cat", "the dog"])
    >>> counter.finish().to_pydict()
    {'pretoken': [b' cat', b' dog', b'the'], 'count': [1, 1, 2]}
    """

    def __init__(self, pattern: str | None, memory_mb_max: int = 1024, threads: int | None = None) -> None:
        if memory_mb_max < 1:
            raise ValueError(f"memory_mb_max: found {memory_mb_max}; expected 1 or more.")
        self._counter = _core.Counter(steps_of(pattern))
        self._memory_mb_max = memory_mb_max
        self._threads = threads_or_all(threads)

    def update(self, texts: Texts) -> None:
        """Counts documents: a list of str or bytes, or any Arrow string array or stream.

        What was counted before is never lost. Raises CountsError when the table of counts holds more than it may (the
        texts so far are counted then, as the message says), CorpusError for a text that is null or no UTF-8, PatternError
        when the regex gives up on a text.
        """
        n_texts = 0
        for piece in _slices(text_chunks(texts)):
            try:
                self._counter.update(piece, self._threads)
            except CorpusError as error:
                if not n_texts:
                    raise
                raise CorpusError(f"from text {n_texts} on: {error}") from None
            n_texts += len(piece)
            self._check_memory(n_texts)

    def finish(self) -> pa.Table:
        """A table `pretoken: binary, count: uint64`, sorted by pretoken, in one or more chunks; the counter is empty then."""
        return pa.table(self._counter.finish()).cast(SCHEMA)

    def _check_memory(self, n_texts: int) -> None:
        held = self._counter.memory_bytes()
        if held > self._memory_mb_max << 20:
            raise CountsError(
                f"the counts of pre-tokens hold {held / 2**20:,.0f} MiB; memory_mb_max allows {self._memory_mb_max:,} MiB. "
                f"The first {n_texts:,} texts of this call are counted, and finish() gives all counts so far. Raise the "
                "limit, split the input into smaller shards, or choose a pattern that splits finer."
            )


def merge(tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of tables of counts, as one such table, sorted. Raises CountsError for a wrong table or a sum beyond 64 bits.

    >>> one = pa.table({"pretoken": [b"a"], "count": [2]}, schema=SCHEMA)
    >>> merge([one, one]).to_pydict()
    {'pretoken': [b'a'], 'count': [4]}
    """
    import polars as pl

    for table in tables:
        check_schema(table, "counts")
    frames = [pl.DataFrame(table.cast(SCHEMA)) for table in tables if table.num_rows]
    if not frames:
        return SCHEMA.empty_table()
    # polars' sum wraps at 64 bits; the sums of the 32-bit halves cannot.
    halves = (
        pl.concat(frames)
        .group_by("pretoken")
        .agg(low=(pl.col("count") % 2**32).sum(), high=(pl.col("count") // 2**32).sum())
    )
    halves = halves.with_columns(high=pl.col("high") + pl.col("low") // 2**32, low=pl.col("low") % 2**32)
    if over := halves.filter(pl.col("high") >= 2**32)["pretoken"].to_list():
        raise CountsError(
            f"counts: the sum for {min(over)!r:.80} is beyond 64 bits. Check where these tables come from."
        )
    total = halves.select("pretoken", count=pl.col("high") * 2**32 + pl.col("low")).sort("pretoken")
    return pa.Table.from_batches(_binary_batches(total.to_arrow(compat_level=pl.CompatLevel.oldest())), SCHEMA)


def write_counts(table: pa.Table, path: Path | str) -> None:
    """Writes counts as Parquet, in one step; equal counts give equal bytes, however they are chunked."""
    import pyarrow.parquet as pq

    check_schema(table, "counts")
    shape = pa.schema([pa.field("pretoken", pa.large_binary(), nullable=False), SCHEMA.field("count")])
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False, "write_statistics": False}
    wide = table.cast(shape)
    with write_atomic(Path(path)) as partial, pq.ParquetWriter(partial, shape, **options) as writer:
        for start in range(0, wide.num_rows, _ROW_GROUP_ROWS):
            rows = wide.slice(start, _ROW_GROUP_ROWS).combine_chunks()
            writer.write_table(rows, row_group_size=_ROW_GROUP_ROWS)


def read_counts(path: Path | str) -> pa.Table:
    """The counts in a file that `write_counts` made.

    Raises CountsError when it cannot be read, has other columns, or its pre-tokens are not sorted, each once.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise CountsError(
            f"{Path(path).absolute()}: there is no such file. Run the count stage: `tokenmill build`."
        ) from None
    except (OSError, pa.ArrowException) as error:
        problem = str(error).splitlines()[0].rstrip(".")
        raise CountsError(
            f"{path}: not readable as Parquet: {problem}. Delete the file and run `tokenmill build`."
        ) from None
    check_schema(table, str(path))
    table = table.cast(SCHEMA)
    _check_rows(table, str(path))
    return table


def check_schema(table: pa.Table, place: str) -> None:
    """Raises CountsError unless the columns are pretoken (binary) and count (uint64), without nulls."""
    if not isinstance(table, pa.Table):
        raise TypeError(f"expected a pyarrow.Table of counts; found {type(table).__name__}.")
    names = table.schema.names
    if names != SCHEMA.names:
        raise CountsError(f"{place}: found the columns {names}, expected {SCHEMA.names}. Count again.")
    allowed = {"pretoken": (pa.binary(), pa.large_binary()), "count": (pa.uint64(),)}
    for name, kinds in allowed.items():
        if table.schema.field(name).type not in kinds:
            found = table.schema.field(name).type
            raise CountsError(f'{place}: column "{name}" is {found}, expected {kinds[0]}. Count again.')
        if table[name].null_count:
            raise CountsError(
                f'{place}: column "{name}" has {table[name].null_count} nulls, expected none. Count again.'
            )


def _check_rows(table: pa.Table, place: str) -> None:
    pretokens, n_rows = table["pretoken"], table.num_rows
    wrong = pc.index(pc.greater_equal(pretokens.slice(0, max(n_rows - 1, 0)), pretokens.slice(1)), True).as_py()
    if wrong >= 0:
        one, other = pretokens[wrong].as_py(), pretokens[wrong + 1].as_py()
        raise CountsError(
            f"{place}: row {wrong + 1}: pre-token {other!r:.80} stands after {one!r:.80}; expected them sorted, each once. "
            "Delete the file and run `tokenmill build`."
        )
    zero = pc.index(table["count"], pa.scalar(0, pa.uint64())).as_py()
    if zero >= 0:
        raise CountsError(
            f"{place}: row {zero}: count is 0, expected 1 or more. Delete the file and run `tokenmill build`."
        )


def _slices(chunks: Sequence[pa.Array]) -> Iterator[pa.Array]:
    for chunk in chunks:
        n_rows = max(1, len(chunk) * _SLICE_BYTES // max(chunk.nbytes, 1))
        for start in range(0, len(chunk), n_rows):
            yield chunk.slice(start, n_rows)


def _binary_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Batches whose pre-tokens fit 32-bit offsets."""
    n_bytes = pc.sum(pc.binary_length(table["pretoken"])).as_py() or 0
    if n_bytes <= _CHUNK_BYTES_MAX or table.num_rows == 1:
        yield from table.cast(SCHEMA).combine_chunks().to_batches()
        return
    half = table.num_rows // 2
    yield from _binary_batches(table.slice(0, half))
    yield from _binary_batches(table.slice(half))
