"""Sorted runs of counts on disk, and their sum as a stream of batches in bounded memory."""

import tempfile
import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill import _core
from tokenmill.counts.weights import over_one_denominator
from tokenmill.errors import CountsError
from tokenmill.storage.atomic import naming

SCHEMA = pa.schema([pa.field("pretoken", pa.binary(), nullable=False), pa.field("count", pa.uint64(), nullable=False)])

_MERGED_AT_ONCE_MAX = 64  # each is an open file
_READING_COSTS = 3  # times a batch's bytes: compressed, decompressed, and its share of what is made
_ONE = Fraction(1)


@dataclass(frozen=True)
class Run:
    """A file of counts sorted by pre-token: .arrow (a run of this module) or .parquet (see tokenmill.counts.table).

    `batch_bytes`: the largest of its batches, in memory. `weight`: what its counts are multiplied by.
    """

    path: Path
    batch_bytes: int
    weight: Fraction = _ONE

    @staticmethod
    def of_parquet(path: Path, weight: Fraction = _ONE) -> "Run":
        """A run that is a file of counts. Raises CountsError when it cannot be read."""
        metadata = open_parquet(path).metadata
        groups = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        return Run(path, max(groups, default=0), weight)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows, a batch at a time."""
        if self.path.suffix == ".parquet":
            with open_parquet(self.path) as file:
                for i in range(file.num_row_groups):
                    yield from _read_group(file, i, self.path).to_batches()
        else:
            with naming(self.path), pa.OSFile(str(self.path), "rb") as source, pa.ipc.open_stream(source) as reader:
                yield from reader


@dataclass(frozen=True)
class Totals:
    """Distinct pre-tokens, occurrences of them, and their bytes of text."""

    n_distinct: int = 0
    n_pretokens: int = 0
    n_bytes: int = 0


@dataclass
class Sum:
    """The sum of sorted runs, as an iterable of batches that can be gone through once.

    Each run's counts are multiplied by its weight; a sum is rounded once, halves up; then what counts less than `count_min`
    is dropped. `for_run`: smaller batches. `kept` and `dropped` are right after the last batch. Raises CountsError for rows
    that are not sorted and for a sum beyond 64 bits.
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
    """The runs of one counter, in a directory of its own that is made for the first run and removed by `close`."""

    def __init__(self, parent: Path | None) -> None:
        self.runs: list[Run] = []
        self._parent = parent
        self._lock = threading.Lock()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._writers: dict[int, _RunWriter] = {}

    @property
    def directory(self) -> Path:
        """Where the runs are."""
        with self._lock:
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="tokenmill-runs-", dir=self._parent)
            return Path(self._directory.name)

    def write(self, run: int, batch: pa.RecordBatch | None) -> None:
        """Adds a batch to the run of this number, in any thread; None ends the run."""
        if run not in self._writers:
            self._writers[run] = _RunWriter(self.directory / f"{run}.arrow")
        if batch is not None:
            self._writers[run].write(batch)
        else:
            self.runs.append(self._writers.pop(run).close())

    def close(self) -> None:
        """Removes all runs."""
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
    """The sum of runs, of which a batch each is held at a time.

    When all of them together would take more than `memory_bytes`, or too many files, some are added up first, into a run in
    `directory`. Runs of this module are removed once they are added up so.
    """
    left = list(runs)
    n_merged = 0
    while len(left) > (at_once := _at_once(left, memory_bytes)):
        # Of one weight, so that the sum is still rounded once; the smallest first, so that little is written again.
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
    """A file of counts. Raises CountsError when there is none, or it is damaged or has other columns."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise CountsError(
            f"{path.absolute()}: there is no such file. Run the count stage: `tokenmill build`."
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def _read_group(file: Any, i: int, path: Path) -> pa.Table:
    try:
        return file.read_row_group(i, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> CountsError:
    """What is said of a file that is no Parquet."""
    problem = str(error).splitlines()[0].rstrip(".")
    return CountsError(f"{path}: not readable as Parquet: {problem}. Delete the file and run `tokenmill build`.")
