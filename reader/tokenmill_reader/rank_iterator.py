"""One rank's share of a dataset's items, with a state that any number of ranks can go on from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill_reader.errors import ParamsError

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Ids
    from tokenmill_reader.token_dataset import TokenDataset


class RankIterator:
    """Every `world`-th item of a dataset, from the item number `rank` on. TokenDataset.shard makes it.

    In each round, every rank takes the next item. The state is the number of items that all ranks have taken, so it is the same for
    ranks in step, and any number go on from it.

    In a worker of a PyTorch DataLoader, it gives the worker's share of the rank's items, as if the workers of all ranks were ranks.
    """

    def __init__(self, dataset: TokenDataset, rank: int, world: int, drop_last: bool) -> None:
        self._dataset, self._rank, self._world, self._drop_last = dataset, rank, world, drop_last
        self._position, self._step = 0, world
        self._items: Iterator[Ids] | None = None
        self._process = 0  # that `_items` is of: one that was forked begins at the same position, as another worker

    def __iter__(self) -> RankIterator:
        return self

    def __next__(self) -> Ids:
        if self._items is None or self._process != os.getpid():
            self._begin()
        assert self._items is not None
        n_items = len(self._dataset)
        ids = next(self._items, None)
        if ids is None:
            self._position = n_items
            raise StopIteration
        self._position = min(self._position + self._step, n_items)
        return ids

    def __repr__(self) -> str:
        return f"<RankIterator {self._rank} of {self._world} at {self._position:,} of {self._dataset!r}>"

    @property
    def epoch(self) -> int:
        """The number of the epoch that it gives."""
        return self._dataset.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begins the epoch with this number, from its first item. The order is another one if the dataset is shuffled."""
        self._dataset = self._dataset.at_epoch(epoch)
        self._position, self._items = 0, None

    def state_dict(self) -> dict[str, Any]:
        """Where the ranks are, and in which data and order: integers, strings and null. It is the same on all ranks that have taken
        the same number of items, as after a training step."""
        return {**self._dataset.state(), "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the ranks were that saved this state, in their epoch. The number of ranks may be another.

        Raises ParamsError if the state is of other data or another order.
        """
        expected = self._dataset.state()
        if state.keys() != {*expected, "position"}:
            raise ParamsError(
                "load_state_dict",
                f"expected the keys {[*expected, 'position']}; found {list(state)}.",
                "Open the dataset that the state was saved with, with the same split, sequences and shuffle.",
            )
        for name, value in expected.items():
            if name != "epoch" and state[name] != value:
                raise ParamsError(
                    f"load_state_dict: {name}",
                    f"expected {value!r}, as this dataset has it; found {state[name]!r} in the state.",
                    "Open the dataset that the state was saved with, with the same split, sequences and shuffle.",
                )
        for name, high in (("epoch", 2**63), ("position", len(self._dataset) + 1)):
            if type(state[name]) is not int or not 0 <= state[name] < high:
                raise ParamsError(f"load_state_dict: {name}", f"expected 0 to {high - 1}; found {state[name]!r}.")
        self.set_epoch(state["epoch"])
        self._position = state["position"]

    def _begin(self) -> None:
        rank, world = self._rank, self._world
        torch_data = sys.modules.get("torch.utils.data")  # a worker has imported it
        worker = None if torch_data is None else torch_data.get_worker_info()
        if worker is not None:
            rank, world = rank + worker.id * world, world * worker.num_workers  # each its turn of the rank's items
        n_dropped = (
            world - rank - 1 if self._drop_last else 0
        )  # so that the ranks behind this one have items of its last round
        end = max(len(self._dataset) - n_dropped, 0)
        self._items = self._dataset.items_at(range(self._position + rank, end, world))
        self._step, self._process = world, os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_items": None}
