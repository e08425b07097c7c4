"""Divides a sorted file of counts into partitions by a hash of the pre-token, so that each partition can be added up apart."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.counts.spill import Run
from tokenmill.counts.table import parquet_writer
from tokenmill.storage.atomic import naming

_HASHED_BYTES_MAX = 64
_ROWS_AT_ONCE = 1 << 13  # bounds the arrays of a hash, which take some 40 bytes for each hashed byte
_BASE = np.uint64(0x9E3779B97F4A7C15)
_POWERS = np.multiply.accumulate(np.full(_HASHED_BYTES_MAX, _BASE))
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_WRITERS_MAX = 64  # each is an open file
_HELD_BYTES_MAX = 16 << 20


def partitions_of(pretokens: pa.BinaryArray, n: int) -> npt.NDArray[np.int64]:
    """The partition of each pre-token, from 0 to n - 1, the same on every machine. `n`: from 1 to 2³².

    With b the first 64 bytes of a pre-token and L its length in bytes, its hash is h = L + Σ (b[i] + 1) B^(i + 1), with
    B = 0x9E3779B97F4A7C15; then h ^= h >> 32, h *= 0xBF58476D1CE4E5B9, h >>= 32, all in 64 bits without sign. Its partition is
    h × n >> 32 (multiply-shift). Pre-tokens that differ only behind 64 bytes may share a partition.

    >>> partitions_of(pa.array([b"a", b"b", b" the", b"cat"]), 4).tolist()
    [2, 0, 3, 3]
    """
    parts = [_hashes(pretokens[i : i + _ROWS_AT_ONCE]) for i in range(0, len(pretokens), _ROWS_AT_ONCE)]
    hashes = np.concatenate([np.empty(0, np.uint64), *parts])
    hashes ^= hashes >> np.uint64(32)
    hashes *= _FACTOR
    return (((hashes >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def _hashes(pretokens: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """The sums h of some pre-tokens."""
    _, offsets, data = pretokens.buffers()
    places = np.frombuffer(offsets, np.int32)[pretokens.offset : pretokens.offset + len(pretokens) + 1].astype(np.int64)
    lengths = np.diff(places)
    hashed = np.minimum(lengths, _HASHED_BYTES_MAX)
    ends = np.cumsum(hashed)
    in_token = np.arange(int(ends[-1])) - np.repeat(ends - hashed, hashed)
    text = np.frombuffer(data if data is not None else b"", np.uint8)
    terms = text[np.repeat(places[:-1], hashed) + in_token].astype(np.uint64)
    terms += np.uint64(1)
    terms *= _POWERS[in_token]
    # A running sum, and not np.add.reduceat, which has no answer for an empty pre-token.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    hashes: npt.NDArray[np.uint64] = lengths.astype(np.uint64) + sums[ends] - sums[ends - hashed]
    return hashes


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
