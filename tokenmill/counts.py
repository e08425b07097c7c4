"""Counts of pre-tokens: making them from documents, adding them up, keeping them in a file."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill import _core
from tokenmill.errors import CorpusError, CountsError
from tokenmill.files import naming, write_atomic
from tokenmill.patterns import steps_of
from tokenmill.runs import SCHEMA, Runs, Sum, damaged, open_parquet, sum_of_runs
from tokenmill.texts import Texts, text_chunks
from tokenmill.threads import threads_or_all
from tokenmill.weights import Weight, over_one_denominator, weight_of

__all__ = [
    "SCHEMA",
    "Counter",
    "check_schema",
    "merge",
    "most_frequent",
    "read_counts",
    "write_batches",
    "write_counts",
]

_SLICE_BYTES = 1 << 26  # text given to the core at a time
_SLICE_TEXTS = 1 << 16  # and texts of a list


class Counter:
    """Counts pre-tokens exactly, in 64 bits, with checked addition.

    `pattern`: a named pattern, a regex, or None: each document is one pre-token. `memory_mb_max`: what counting may hold, in
    MiB, beside the texts; what is more is sorted and spilled to files in a directory of the counter's own in
    `spill_directory` (None: the system's place for temporary files), which is removed when the counter is finished or gone.
    `threads`: None takes all cores. Neither changes a count.

    `approximate_error`: counts approximately, in the order of the texts, in one thread and without files (lossy counting,
    Manku and Motwani 2002). Of n pre-tokens counted, a count that is kept is too low by at most `approximate_error` × n
    (`missed_max` says how much it can be), and every pre-token that occurs more often than that is kept.

    Raises PatternError.

    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["the cat", "the dog"])
    >>> counter.finish().to_pydict()
    {'pretoken': [b' cat', b' dog', b'the'], 'count': [1, 1, 2]}
    """

    def __init__(
        self,
        pattern: str | None,
        memory_mb_max: int = 1024,
        threads: int | None = None,
        spill_directory: Path | str | None = None,
        approximate_error: float | None = None,
    ) -> None:
        if memory_mb_max < 1:
            raise ValueError(f"memory_mb_max: found {memory_mb_max}; expected 1 or more.")
        if approximate_error is not None and not 0 < approximate_error < 1:
            raise ValueError(f"approximate_error: found {approximate_error}; expected more than 0 and less than 1.")
        self._memory_bytes = memory_mb_max << 20
        self._runs = Runs(None if spill_directory is None else Path(spill_directory))
        self._counter = _core.Counter(
            steps_of(pattern),
            threads_or_all(threads),
            self._memory_bytes // 8 * 7,  # the rest is for the batches on their way to a file
            self._runs.write,
            None if approximate_error is None else math.ceil(1 / approximate_error),
        )

    def update(self, texts: Texts) -> None:
        """Counts documents: a list of str or bytes, or any Arrow string array or stream. A str keeps the UTF-8 that is made of it.

        Raises CorpusError for a text that is null or no UTF-8: the slice of the texts that it is in, as the message says, is
        not counted, and all before it is. Raises PatternError when the regex gives up on a text, CountsError for a pre-token
        that is longer than `memory_mb_max` allows, OSError when a run cannot be written: then the counter is of no more use.
        """
        n_texts = 0
        for piece in _slices(texts):
            try:
                self._counter.update(piece)
            except CorpusError as error:
                if not n_texts:
                    raise
                raise CorpusError(f"from text {n_texts} on: {error}") from None
            n_texts += len(piece)

    @property
    def missed_max(self) -> int:
        """By how much a count may be too low; 0 when counting is exact. To be asked before the counter is finished."""
        return self._counter.missed_max()

    @property
    def n_runs(self) -> int:
        """How many runs were spilled so far."""
        return len(self._runs.runs)

    def finish(self) -> pa.Table:
        """A table `pretoken: binary, count: uint64`, sorted by pretoken, in one or more chunks; the counter is empty then."""
        return pa.Table.from_batches(self.batches(), SCHEMA)

    def finish_to(self, path: Path | str) -> None:
        """Writes what `finish` gives as `write_counts` does, without having all of it in memory."""
        with write_atomic(Path(path)) as partial:
            write_batches(self.batches(), partial)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `finish`, batch for batch; the counter is empty after the last one."""
        try:
            if not self._runs.runs:
                yield from iter(self._counter.drain, None)
                return
            # What the tables still hold becomes one more run, so that nothing is held while runs are added up.
            for batch in iter(lambda: self._counter.drain(for_run=True), None):
                self._runs.write(-1, batch)
            self._runs.write(-1, None)
            yield from sum_of_runs(self._runs.runs, self._runs.directory, self._memory_bytes // 2)
        finally:
            self._runs.close()


def merge(tables: Sequence[pa.Table], weights: Sequence[Weight] | None = None) -> pa.Table:
    """The sum of tables of counts, as one such table, sorted.

    `weights`: one a table, exact: an int, a Fraction, or a text such as "3/2"; its counts are multiplied by it. The sum of a
    pre-token is rounded to the nearest whole number, halves up, once and at the end; one that comes to 0 is left out.
    Whole weights are never rounded: to have 3/2 to 1 exactly, give 3 and 2.

    Raises CountsError for a wrong table or a sum beyond 64 bits, ValueError for wrong weights.

    >>> one = pa.table({"pretoken": [b"a"], "count": [2]}, schema=SCHEMA)
    >>> merge([one, one], weights=[1, "3/2"]).to_pydict()
    {'pretoken': [b'a'], 'count': [5]}
    """
    for table in tables:
        check_schema(table, "counts")
    fractions = [weight_of(weight) for weight in ([1] * len(tables) if weights is None else weights)]
    if len(fractions) != len(tables):
        raise ValueError(f"weights: found {len(fractions)}; expected one for each of {len(tables)} tables.")
    over_one_denominator(fractions)
    return pa.Table.from_batches(Sum([iter(_sorted(table).to_batches()) for table in tables], fractions), SCHEMA)


def write_counts(table: pa.Table, path: Path | str) -> None:
    """Writes sorted counts as Parquet, in one step; equal counts give equal bytes, however they are chunked."""
    check_schema(table, "counts")
    with write_atomic(Path(path)) as partial:
        write_batches(Sum([iter(table.to_batches())]), partial)


def write_batches(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Writes the batches of `Counter.batches` or of a Sum as Parquet, holding one at a time.

    Each is a row group: where they end follows from the rows alone, and so do the file's bytes.
    """
    import pyarrow.parquet as pq

    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False, "write_statistics": False}
    with naming(path), pq.ParquetWriter(path, SCHEMA, **options) as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=batch.num_rows)


def read_counts(path: Path | str) -> pa.Table:
    """The counts in a file that `write_counts` made.

    Raises CountsError when it cannot be read, has other columns, or its pre-tokens are not sorted, each once.
    """
    try:
        table = open_parquet(Path(path)).read()
    except (OSError, pa.ArrowException) as error:
        raise damaged(Path(path), error) from None
    check_schema(table, str(path))
    table = table.cast(SCHEMA)
    _check_rows(table, str(path))
    return table


def most_frequent(path: Path | str, n: int) -> pa.Table:
    """The `n` rows of the largest counts, in any order, holding some more of them at a time. Raises CountsError."""
    import pyarrow.compute as pc

    kept = SCHEMA.empty_table()
    try:
        with open_parquet(Path(path)) as file:
            for batch in file.iter_batches():
                kept = pa.concat_tables([kept, pa.Table.from_batches([batch]).cast(SCHEMA)])
                if kept.num_rows > n:
                    kept = kept.take(pc.select_k_unstable(kept, n, [("count", "descending")]))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise damaged(Path(path), error) from None
    return kept


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
    import pyarrow.compute as pc

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


def _slices(texts: Texts) -> Iterator[Any]:
    """The texts, not so many at a time that what the core notes of each would be much; those of a list as they are."""
    if isinstance(texts, list | tuple):
        for start in range(0, len(texts), _SLICE_TEXTS):
            some = texts[start : start + _SLICE_TEXTS]
            yield some if isinstance(some, list) else list(some)
        return
    for chunk in text_chunks(texts):
        n_rows = max(1, len(chunk) * _SLICE_BYTES // max(chunk.nbytes, 1))
        for start in range(0, len(chunk), n_rows):
            yield chunk.slice(start, n_rows)


def _sorted(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    pretokens = table["pretoken"]
    is_after = pc.greater(pretokens.slice(0, max(len(pretokens) - 1, 0)), pretokens.slice(1))
    if not pc.any(is_after).as_py():
        return table
    wide = pa.schema([pa.field("pretoken", pa.large_binary(), nullable=False), SCHEMA.field("count")])
    return table.cast(wide).sort_by("pretoken")
