"""Makes the batches of one rank, by number: arrays of int64 with labels, as models of transformers take them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill_reader.boundaries import NO_LABEL, cu_seqlens, positions
from tokenmill_reader.errors import ParamsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokenmill_reader.array_types import Ids, Labels, Longs, Starts
    from tokenmill_reader.token_dataset import TokenDataset


class Batches:
    """The batches of one of `world` processes, each a dictionary of arrays. `batches[k]` needs no batch before it.

    It is a map-style dataset for PyTorch's DataLoader and torchdata's StatefulDataLoader, with `batch_size=None`, and a data source
    for Grain. The items are those of `dataset.shard(rank, world)`, in its order.

    A batch has `input_ids` and `labels`, int64, a row for each item. Shorter items are filled up with the id 0 and the label -100.
    Batches of documents have an `attention_mask`, and those of packed sequences and windows have `position_ids`, which begin at 0
    with each document. With `joined`, all items are in one row without padding, and `cu_seq_lens_q`, `cu_seq_lens_k` (int32),
    `max_length_q` and `max_length_k` say where documents are, for attention with variable lengths.

    `state`: where to go on, from `state_after` or from `RankIterator.state_dict`, of any number of ranks; None for the beginning.
    `drop_last`: leave out the batches at the end that are not full on every rank, so that all ranks have equally many.
    Raises ParamsError if the state is of other data, another order or another split.
    """

    def __init__(
        self,
        dataset: TokenDataset,
        batch_size: int,
        rank: int = 0,
        world: int = 1,
        *,
        state: dict[str, Any] | None = None,
        drop_last: bool = False,
        joined: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ParamsError("Batches: batch_size", f"expected 1 or more; found {batch_size}.")
        items = dataset.shard(rank, world)
        if state is not None:
            items.load_state_dict(state)
            dataset = dataset.at_epoch(state["epoch"])
        self._dataset, self._joined = dataset, joined
        self._batch_size, self._rank, self._world = batch_size, rank, world
        self._position: int = items.state_dict()["position"]  # of all ranks, where the first batches begin
        n_of_rank = len(range(self._position + rank, len(dataset), world))
        n_of_all = len(dataset) - self._position
        self._n_batches = n_of_all // (batch_size * world) if drop_last else -(-n_of_rank // batch_size)

    def __len__(self) -> int:
        return self._n_batches

    def __getitem__(self, index: int) -> dict[str, Any]:
        k = operator.index(index)
        if not 0 <= k < self._n_batches:
            raise IndexError(f"batch {k}: expected a number below {self._n_batches:,}, the number of batches.")
        first, end = self._position_after(k) + self._rank, self._position_after(k + 1)
        numbers = np.arange(first, end, self._world)
        return _joined(self._dataset, numbers) if self._joined else _in_rows(self._dataset, numbers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(self._n_batches))

    def state_after(self, n_batches: int) -> dict[str, Any]:
        """The state after the first `n_batches` of these on every rank: integers, strings and null, which JSON can hold."""
        return {**self._dataset.state(), "position": self._position_after(n_batches)}

    def __repr__(self) -> str:
        """Grain compares this with that of a checkpoint."""
        return (
            f"<Batches of {self._batch_size} for rank {self._rank} of {self._world} from item {self._position:,} of "
            f"{self._dataset!r}{', joined' if self._joined else ''}>"
        )

    def _position_after(self, n_batches: int) -> int:
        return min(self._position + n_batches * self._batch_size * self._world, len(self._dataset))


def _in_rows(dataset: TokenDataset, numbers: Longs) -> dict[str, Any]:
    """The items with these numbers as rows of one length."""
    items, labels, starts = _items(dataset, numbers)
    rows = {"input_ids": _rows(items, 0), "labels": _rows(labels, NO_LABEL)}
    if dataset.state()["items"] == "documents":
        return {**rows, "attention_mask": _rows([np.ones(len(ids), np.int64) for ids in items], 0)}
    length = rows["input_ids"].shape[1]
    return {**rows, "position_ids": _rows([positions(start, length) for start in starts], 0)}


def _items(dataset: TokenDataset, numbers: Longs) -> tuple[list[Ids], list[Labels], list[Starts]]:
    """The items with these numbers, their labels, and their starts. A block is read before the next one begins."""
    items, labels, starts = [], [], []
    for some in dataset.by_block(numbers):
        items += dataset.take(some)
        labels += [dataset.labels(i) for i in some.tolist()]
        starts += [dataset.starts(i) for i in some.tolist()]
    return items, labels, starts


def _rows(arrays: Sequence[npt.NDArray[Any]], fill: int) -> Longs:
    """Arrays as rows, with `fill` behind the shorter ones."""
    found = np.full((len(arrays), max(map(len, arrays), default=0)), fill, np.int64)
    for row, values in zip(found, arrays):
        row[: len(values)] = values
    return found


def _joined(dataset: TokenDataset, numbers: Longs) -> dict[str, Any]:
    """The items with these numbers in one row. The first id of each has no label."""
    items, labels_of, starts_of = _items(dataset, numbers)
    n_ids, starts = 0, [np.empty(0, np.int32)]
    for ids, one in zip(items, starts_of):
        starts.append(one + np.int32(n_ids))
        n_ids += len(ids)
    begins = np.concatenate(starts)
    labels = np.concatenate(labels_of).astype(np.int64)
    labels[begins] = NO_LABEL
    lengths = cu_seqlens(begins, n_ids)
    longest = int(np.diff(lengths).max(initial=0))
    return {
        "input_ids": np.concatenate(items).astype(np.int64)[None],
        "labels": labels[None],
        "position_ids": positions(begins, n_ids).astype(np.int64)[None],
        "cu_seq_lens_q": lengths,
        "cu_seq_lens_k": lengths,
        "max_length_q": longest,
        "max_length_k": longest,
    }
