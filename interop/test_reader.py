"""What `tokenmill.open` gives works with PyTorch's DataLoader and torchdata's StatefulDataLoader, with workers and without."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tokenmill
from tests.builders.document_sets import documents_dataset
from tokenmill_reader.rank_iterator import RankIterator
from tokenmill_reader.token_dataset import TokenDataset

LENGTH = 4
N_SEQUENCES = 61


class Stream(IterableDataset[np.ndarray]):
    """One rank's items, as PyTorch wants to have them."""

    def __init__(self, items: RankIterator) -> None:
        self.items = items

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.items


@pytest.fixture(params=["arrow", "parquet"])
def sequences(request: pytest.FixtureRequest, tmp_path: Path) -> TokenDataset:
    """61 sequences of four ids, shuffled; the first id of a sequence says which one it is."""
    ids = list(range(1, N_SEQUENCES * LENGTH + 1))
    documents = [ids[at : at + 7] for at in range(0, len(ids), 7)]
    folder = documents_dataset(tmp_path, [documents[:20], documents[20:]], ["arrow"])
    return tokenmill.open(folder, format=request.param).sequences(LENGTH).shuffle(seed=1)


def batch_of(items: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(items).astype(np.int64))


def firsts(batches: Any) -> list[int]:
    return [one for batch in batches for one in batch[:, 0].tolist()]


def expected(sequences: TokenDataset, rank: int = 0, world: int = 1) -> list[int]:
    return [one.item(0) for one in sequences][rank::world]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_is_one_of_the_map_style(sequences: TokenDataset, workers: int) -> None:
    loader = DataLoader(sequences, batch_size=4, collate_fn=batch_of, num_workers=workers)
    assert firsts(loader) == expected(sequences)
    assert firsts(loader) == expected(sequences)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_each_kind_open_the_files(sequences: TokenDataset, context: str) -> None:
    sequences[0]  # the files are open in this process
    loader = DataLoader(sequences, batch_size=4, collate_fn=batch_of, num_workers=2, multiprocessing_context=context)
    assert firsts(loader) == expected(sequences)


def test_a_range_is_the_sampler_of_a_rank(sequences: TokenDataset) -> None:
    for rank in range(3):
        sampler = range(rank, len(sequences), 3)
        loader = DataLoader(sequences, batch_size=4, sampler=sampler, collate_fn=batch_of, num_workers=2)
        assert firsts(loader) == expected(sequences, rank, 3)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_share_the_items_of_a_rank(sequences: TokenDataset, workers: int) -> None:
    for epoch in range(2):
        found = []
        for rank in range(2):
            stream = Stream(sequences.shard(rank, 2))
            stream.items.set_epoch(epoch)
            loader = DataLoader(stream, batch_size=4, collate_fn=batch_of, num_workers=workers)
            of_rank = firsts(loader)
            assert sorted(of_rank) == sorted(expected(sequences.at_epoch(epoch), rank, 2))
            found += of_rank
        assert sorted(found) == sorted(expected(sequences))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("n_batches", [0, 1, 5])
def test_a_stateful_data_loader_goes_on_with_the_next_item(
    sequences: TokenDataset, workers: int, n_batches: int
) -> None:
    def loader() -> Any:
        stream = Stream(sequences.shard(0, 2))
        return StatefulDataLoader(stream, batch_size=4, collate_fn=batch_of, num_workers=workers)

    undisturbed = firsts(loader())
    assert sorted(undisturbed) == sorted(expected(sequences, 0, 2))
    first = loader()
    found = firsts(islice(first, n_batches))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert found + firsts(second) == undisturbed


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_of_the_map_style_goes_on_with_the_next_item(
    sequences: TokenDataset, workers: int
) -> None:
    def loader() -> Any:
        return StatefulDataLoader(
            sequences, batch_size=4, sampler=range(1, len(sequences), 2), collate_fn=batch_of, num_workers=workers
        )

    first = loader()
    found = firsts(islice(first, 3))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert found + firsts(second) == expected(sequences, 1, 2)


def test_ranks_without_workers_are_followed_by_another_number_of_ranks(sequences: TokenDataset) -> None:
    """The state of the items themselves, not that of the loaders, which is of one rank."""
    ranks = [sequences.shard(rank, 2) for rank in range(2)]
    loaders = [iter(DataLoader(Stream(rank), batch_size=4, collate_fn=batch_of)) for rank in ranks]
    of_ranks = [firsts(islice(loader, 3)) for loader in loaders]
    found = [one for of_round in zip(*of_ranks, strict=True) for one in of_round]
    states = [rank.state_dict() for rank in ranks]
    assert states[0] == states[1]
    alone = sequences.shard(0, 1)
    alone.load_state_dict(json.loads(json.dumps(states[0])))
    assert found + firsts(DataLoader(Stream(alone), batch_size=4, collate_fn=batch_of)) == expected(sequences)
