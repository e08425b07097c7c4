"""Sorted runs of counts on disk, and their sum as a stream of batches in bounded memory."""

import tempfile
import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill import _core
from tokenmill.counts.weights import over_one_denominator
from tokenmill.errors import CountsError
from tokenmill.storage.contents import HEAD_BYTES, content_of
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import naming, open_regular

SCHEMA = pa.schema([pa.field("pretoken", pa.binary(), nullable=False), pa.field("count", pa.uint64(), nullable=False)])

_MERGED_AT_ONCE_MAX = 64  # each run is an open file
_READING_COSTS = 3  # memory per batch byte: the compressed batch, the decompressed batch, and its share of the output
_ONE = Fraction(1)


@dataclass(frozen=True)
class Run:
    """A file of counts sorted by pre-token: .arrow (a run of this module) or .parquet (see tokenmill.counts.table).

    `batch_bytes`: the memory of its largest batch. `weight`: the factor for its counts.
    """

    path: Path
    batch_bytes: int
    weight: Fraction = _ONE

    @staticmethod
    def of_parquet(path: Path, weight: Fraction = _ONE) -> "Run":
        """A file of counts as a run. Raises CountsError if it cannot be read."""
        metadata = open_parquet(path).metadata
        groups = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        return Run(path, max(groups, default=0), weight)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches."""
        if self.path.suffix == ".parquet":
            with open_parquet(self.path) as file:
                for i in range(file.num_row_groups):
                    yield from _read_group(file, i, self.path).to_batches()
        else:
            with naming(self.path), pa.OSFile(str(self.path), "rb") as source, pa.ipc.open_stream(source) as reader:
                yield from reader


@dataclass(frozen=True)
class Totals:
    """The number of distinct pre-tokens, of their occurrences, and of the bytes of text in all occurrences."""

    n_distinct: int = 0
    n_pretokens: int = 0
    n_bytes: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.n_distinct + other.n_distinct, self.n_pretokens + other.n_pretokens, self.n_bytes + other.n_bytes
        )


@dataclass
class Sum:
    """The sum of sorted runs, as an iterable of batches that can be iterated once.

    Each run's counts are multiplied by its weight. A sum is rounded once, halves up; then sums below `count_min` are dropped.
    `for_run` makes smaller batches. `kept` and `dropped` are correct after the last batch. Raises CountsError for unsorted rows
    and for a sum beyond 64 bits.
    """

    runs: Sequence[Iterator[pa.RecordBatch]]
    weights: Sequence[Fraction] | None = None
    count_min: int = 1
    for_run: bool = False
    kept: Totals = field(default_factory=Totals, init=False)
    dropped: Totals = field(default_factory=Totals, init=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        whole, denominator = over_one_denominator(self.weights or [_ONE] * len(self.runs))
        merger = _core.Merger(whole, denominator, self.count_min, self.for_run)
        while True:
            batch, hungry = merger.step()
            if batch is not None:
                yield batch
            elif not hungry:
                break
            for run in hungry:
                merger.feed(run, next(self.runs[run], None))
        self.kept, self.dropped = (Totals(*totals) for totals in merger.totals())


class Runs:
    """The runs of one counter, in a directory of their own. The first run creates the directory and `close` removes it."""

    def __init__(self, parent: Path | None) -> None:
        self.runs: list[Run] = []
        self._parent = parent
        self._lock = threading.Lock()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._writers: dict[int, _RunWriter] = {}

    @property
    def directory(self) -> Path:
        """The directory of the runs."""
        with self._lock:
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="tokenmill-runs-", dir=self._parent)
            return Path(self._directory.name)

    def write(self, run: int, batch: pa.RecordBatch | None) -> None:
        """Adds a batch to the run with this number; None ends the run. Any thread may call this."""
        if run not in self._writers:
            self._writers[run] = _RunWriter(self.directory / f"{run}.arrow")
        if batch is not None:
            self._writers[run].write(batch)
        else:
            self.runs.append(self._writers.pop(run).close())

    def close(self) -> None:
        """Deletes all runs."""
        for writer in self._writers.values():
            writer.close()
        if self._directory is not None:
            self._directory.cleanup()
        self.runs, self._writers, self._directory = [], {}, None


class _RunWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._batch_bytes = 0
        self._sink = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, batch: pa.RecordBatch) -> None:
        self._batch_bytes = max(self._batch_bytes, batch.nbytes)
        with naming(self._path):
            self._stream.write_batch(batch)

    def close(self) -> Run:
        with naming(self._path):
            self._stream.close()
            self._sink.close()
        return Run(self._path, self._batch_bytes)


def sum_of_runs(runs: Sequence[Run], directory: Path, memory_bytes: int, count_min: int = 1) -> Sum:
    """The sum of the runs. It holds one batch of each run at a time.

    If the batches of all runs would take more than `memory_bytes`, or the runs are too many open files, some runs are first
    added up into a new run in `directory`. The .arrow runs that were added up this way are deleted.
    """
    left = list(runs)
    n_merged = 0
    while len(left) > (at_once := _at_once(left, memory_bytes)):
        # Runs of one weight, so that the sum is still rounded only once. The smallest first, so that little is rewritten.
        ((weight, n_alike),) = Tally(run.weight for run in left).most_common(1)
        if n_alike < 2:
            break
        alike = sorted((run for run in left if run.weight == weight), key=lambda run: run.path.stat().st_size)
        chosen = alike[: min(at_once, max(2, len(left) - at_once + 1))]
        writer = _RunWriter(directory / f"merged-{n_merged}.arrow")
        n_merged += 1
        for batch in Sum([run.batches() for run in chosen], for_run=True):
            writer.write(batch)
        merged = writer.close()
        gone = {id(run) for run in chosen}
        left = [run for run in left if id(run) not in gone] + [Run(merged.path, merged.batch_bytes, weight)]
        for run in chosen:
            if run.path.suffix == ".arrow":
                run.path.unlink()
    return Sum([run.batches() for run in left], [run.weight for run in left], count_min)


def _at_once(runs: Iterable[Run], memory_bytes: int) -> int:
    batch_bytes = max((run.batch_bytes for run in runs), default=0) * _READING_COSTS
    return max(2, min(_MERGED_AT_ONCE_MAX, memory_bytes // max(batch_bytes, 1)))


def open_parquet(path: Path) -> Any:
    """A file of counts, opened. Raises CountsError if it is missing, damaged, or has other columns."""

    try:
        return parquet_file(path)
    except FileNotFoundError:
        raise CountsError(
            path.absolute(), "there is no such file.", "Run the count stage: `tokenmill build`."
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def _read_group(file: Any, i: int, path: Path) -> pa.Table:
    try:
        return file.read_row_group(i, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> CountsError:
    """The error for a file that is not readable as Parquet, which says what it is if its first bytes tell."""
    with suppress(OSError), open(path, "rb", opener=open_regular) as file:
        content = content_of(file.read(HEAD_BYTES))
        if content is not None and content.is_pointer:
            return CountsError(path, f"is {content.what}.", content.fix, code="TM214")
        if content is not None and content.name != "parquet":
            return CountsError(
                path, f"is {content.what}; expected Parquet.", "Delete the file and run `tokenmill build`."
            )
    problem = str(error).splitlines()[0].rstrip(".")
    return CountsError(path, f"not readable as Parquet: {problem}.", "Delete the file and run `tokenmill build`.")
