"""Divides a sorted file of counts into partitions by a hash of the pre-token, so that each partition can be added up apart."""

import zlib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.counts.spill import Run
from tokenmill.counts.table import parquet_writer
from tokenmill_reader.regular_files import naming

_WRITERS_MAX = 64  # each is an open file
_HELD_BYTES_MAX = 16 << 20


def partitions_of(pretokens: pa.BinaryArray, n: int) -> npt.NDArray[np.int64]:
    """The partition of each pre-token, from 0 to n - 1, the same on every machine: crc32 × n >> 32. `n`: from 1 to 2³².

    >>> partitions_of(pa.array([b"a", b"b", b" the", b"cat"]), 4).tolist()
    [3, 1, 1, 2]
    """
    sums = np.fromiter(map(zlib.crc32, pretokens.to_pylist()), np.uint64, len(pretokens))
    return (sums * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def write_partitions(run: Run, folder: Path, n: int) -> None:
    """Writes the rows of a run into `n` files in `folder`, sorted as they were (see `partition_name`).

    It holds some 16 MiB of rows, and reads the run once for each 64 partitions. Raises CountsError.
    """
    for first in range(0, n, _WRITERS_MAX):
        _write_some(run, folder, n, range(first, min(first + _WRITERS_MAX, n)))


def _write_some(run: Run, folder: Path, n: int, chosen: range) -> None:
    held: list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(parquet_writer(folder / partition_name(i))) for i in chosen]

        def write_held() -> None:
            for i, writer in enumerate(writers):
                rows = [batch.slice(ends[i], ends[i + 1] - ends[i]) for batch, ends in held if ends[i] < ends[i + 1]]
                if rows:
                    with naming(folder / partition_name(chosen[i])):
                        writer.write_batch(pa.concat_batches(rows))
            held.clear()

        for batch in run.batches():
            partitions = partitions_of(batch["pretoken"], n)
            order = np.argsort(partitions, kind="stable")
            ends = np.searchsorted(partitions[order], np.arange(chosen.start, chosen.stop + 1))
            held.append((batch.take(pa.array(order[ends[0] : ends[-1]])), ends - ends[0]))
            if sum(one.nbytes for one, _ in held) > _HELD_BYTES_MAX:
                write_held()
        write_held()


def partition_name(partition: int) -> str:
    """The name of the file of one partition."""
    return f"partition.{partition}.parquet"
