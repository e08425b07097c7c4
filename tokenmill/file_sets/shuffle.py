"""Puts the items of a set into the order of a keyed permutation, in two passes over the disk and bounded memory.

The first pass goes over the parts of the set and puts their items into buckets, each for a range of positions. The second one
reads a bucket from all parts, and sorts it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill_reader.order import Order
from tokenmill_reader.regular_files import naming

BUCKET_BYTES = 32 << 20  # of ids in one bucket, about; sorting it takes several times as much memory
_HELD_BYTES = 32 << 20  # of items that the first pass collects before it writes a batch to each bucket
_GIVEN_BYTES = 4 << 20


class Buckets(NamedTuple):
    """How the positions of a set are divided: `n_items` positions, `per_bucket` of them in each bucket but the last, and
    `per_file` of them, which are whole buckets, in each file but the last."""

    n_items: int
    per_bucket: int
    per_file: int

    @property
    def n_files(self) -> int:
        """The number of files; one without items."""
        return max(-(-self.n_items // self.per_file), 1)


def buckets_of(n_items: int, n_bytes: int, file_bytes: int, n_files_min: int = 1) -> Buckets:
    """Buckets and files of equal numbers of positions, for items with `n_bytes` of ids in all. `n_files_min`: there are at least
    as many files, or as many as items.

    >>> buckets_of(1000, 64 << 20, 64 << 20)
    Buckets(n_items=1000, per_bucket=500, per_file=1000)
    >>> buckets_of(1000, 64 << 20, 64 << 20, 3)
    Buckets(n_items=1000, per_bucket=334, per_file=334)
    """
    per_file = max(-(-n_items // max(-(-n_bytes // file_bytes), 1)), 1)
    per_bucket = max(-(-per_file // max(-(-min(n_bytes, file_bytes) // BUCKET_BYTES), 1)), 1)
    made = Buckets(n_items, per_bucket, -(-per_file // per_bucket) * per_bucket)
    n_files_min = min(n_files_min, n_items)
    if made.n_files >= n_files_min:
        return made
    even = -(-n_items // n_files_min)
    per_file = even if -(-n_items // even) >= n_files_min else n_items // n_files_min
    n_buckets = min(max(-(-n_bytes // n_files_min // BUCKET_BYTES), 1), per_file)
    return Buckets(n_items, per_file // n_buckets, per_file // n_buckets * n_buckets)


def scatter(items: Iterator[pa.RecordBatch], first: int, order: Order, buckets: Buckets, path: Path) -> int:
    """Writes the items of a part into a new file, by buckets, and gives their number. `first`: the number in the set of its
    first item; the item with number i gets the position that `order` gives it."""
    bucket_sizes: list[int] = []
    held: list[pa.RecordBatch] = []
    n_items = n_bytes = 0
    with naming(path), pa.OSFile(str(path), "wb") as file:
        writer = None
        for batch in items:
            writer = writer or pa.ipc.new_file(file, batch.schema.insert(0, pa.field("position", pa.int64())))
            held.append(batch)
            n_bytes += batch.nbytes
            if n_bytes >= _HELD_BYTES:
                bucket_sizes += _write(held, first + n_items, order, buckets, writer)
                n_items, n_bytes = n_items + sum(map(len, held)), 0
                held.clear()
        if writer is None:
            return 0
        bucket_sizes += _write(held, first + n_items, order, buckets, writer)
        writer.close()
    np.save(_buckets_file(path), np.array(bucket_sizes, np.int64), allow_pickle=False)
    return n_items + sum(map(len, held))


def _write(
    held: Sequence[pa.RecordBatch], first: int, order: Order, buckets: Buckets, writer: pa.ipc.RecordBatchFileWriter
) -> list[int]:
    """Writes these items in the order of their positions, a batch for each bucket, and gives the numbers of the buckets."""
    if not held:
        return []
    table = pa.Table.from_batches(held)
    positions = order.position_of(np.arange(first, first + len(table)))
    by_position = np.argsort(positions)
    table, positions = table.take(pa.array(by_position)), positions[by_position]
    whole = table.add_column(0, "position", pa.array(positions)).combine_chunks()
    of_item = positions // buckets.per_bucket
    numbers, starts = np.unique(of_item, return_index=True)
    batch = whole.to_batches()[0]
    for start, stop in pairwise([*starts.tolist(), len(of_item)]):
        writer.write_batch(batch.slice(start, stop - start))
    return [int(number) for number in numbers]


def gather(paths: Sequence[Path], file: int, buckets: Buckets) -> Iterator[pa.RecordBatch]:
    """Reads the items of one file of the set, in order, from the files that `scatter` wrote for all parts."""
    sources = [_open(path) for path in paths if path.stat().st_size]
    first = file * buckets.per_file // buckets.per_bucket
    for bucket in range(first, first + buckets.per_file // buckets.per_bucket):
        batches = [reader.get_batch(int(i)) for reader, numbers in sources for i in np.flatnonzero(numbers == bucket)]
        if not batches:
            continue
        table = pa.Table.from_batches(batches)
        order = np.argsort(table["position"].to_numpy())
        n_at_once = max(len(table) * _GIVEN_BYTES // max(table.nbytes, 1), 1)
        table = table.drop_columns(["position"])
        for start in range(0, len(order), n_at_once):
            yield from table.take(pa.array(order[start : start + n_at_once])).combine_chunks().to_batches()


def _open(path: Path) -> tuple[pa.ipc.RecordBatchFileReader, npt.NDArray[np.int64]]:
    return pa.ipc.open_file(pa.memory_map(str(path))), np.load(_buckets_file(path), allow_pickle=False)


def _buckets_file(path: Path) -> Path:
    return path.with_suffix(".npy")
