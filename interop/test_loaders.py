"""The loaders of PyTorch, torchdata, Grain and `datasets` give the dataset's order, and go on in the middle of an epoch."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
import torch
from datasets import IterableDataset, load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import tokenmill
from tests.builders.document_sets import documents_dataset, shape_of, write_dataset, write_set
from tokenmill.config.encode_params import Pack
from tokenmill_reader.batches import Batches
from tokenmill_reader.token_dataset import TokenDataset

LENGTH = 4
N_SEQUENCES = 61
BATCH = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents of 7 ids in six parts. The first id of a window says which one it is."""
    ids = list(range(1, N_SEQUENCES * LENGTH + 1))
    documents = [ids[at : at + 7] for at in range(0, len(ids), 7)]
    return documents_dataset(tmp_path / "tokens", [documents[at : at + 6] for at in range(0, 36, 6)], ["arrow"])


@pytest.fixture
def sequences(folder: Path) -> TokenDataset:
    return tokenmill.open(folder, format="arrow").sequences(LENGTH).shuffle(seed=1)


def firsts(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


def in_turn(of_ranks: list[list[list[int]]]) -> list[int]:
    """The items of all ranks in the order in which they took them, an item of each rank in turn."""
    found = []
    for k in range(max(map(len, of_ranks))):
        batches = [of[k] for of in of_ranks if k < len(of)]
        found += [batch[j] for j in range(BATCH) for batch in batches if j < len(batch)]
    return found


def expected(sequences: TokenDataset) -> list[int]:
    return [one.item(0) for one in sequences]


def by_torch(batches: Batches, workers: int) -> Iterable[dict[str, Any]]:
    return DataLoader(batches, batch_size=None, num_workers=workers)


def by_torchdata(batches: Batches, workers: int) -> Iterable[dict[str, Any]]:
    return StatefulDataLoader(batches, batch_size=None, num_workers=workers)


def by_grain(batches: Batches, workers: int) -> Iterable[dict[str, Any]]:
    loaded = grain.MapDataset.source(batches).to_iter_dataset()
    return loaded.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else loaded


loaders = pytest.mark.parametrize("loader", [by_torch, by_torchdata, by_grain])
workers = pytest.mark.parametrize("workers", [0, 2])


@loaders
@workers
def test_ranks_stop_and_go_on_in_other_numbers_in_the_undisturbed_order(
    loader: Any, workers: int, sequences: TokenDataset
) -> None:
    found: list[int] = []
    state = None
    for world, n_batches in ((2, 3), (3, 2), (1, N_SEQUENCES)):
        ranks = [Batches(sequences, BATCH, rank, world, state=state) for rank in range(world)]
        found += in_turn([firsts(islice(loader(one, workers), n_batches)) for one in ranks])
        states = [json.dumps(one.state_after(n_batches)) for one in ranks]
        assert len(set(states)) == 1
        state = json.loads(states[0])
    assert found == expected(sequences)


@pytest.mark.parametrize("joined", [False, True])
@workers
def test_torch_makes_tensors_of_a_batch(joined: bool, workers: int, sequences: TokenDataset) -> None:
    batches = Batches(sequences, BATCH, joined=joined)
    for found, ours in zip(by_torch(batches, workers), batches, strict=True):
        assert list(found) == list(ours)
        for name, value in found.items():
            assert isinstance(value, int if name.startswith("max") else torch.Tensor)
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(ours[name]))


@workers
@pytest.mark.parametrize("n_batches", [0, 3, 21])
def test_the_state_of_a_stateful_data_loader_is_enough_for_the_same_ranks(
    workers: int, n_batches: int, sequences: TokenDataset
) -> None:
    first, second = (by_torchdata(Batches(sequences, BATCH), workers) for _ in range(2))
    found = firsts(islice(first, n_batches))
    second.load_state_dict(first.state_dict())
    assert in_turn([found + firsts(second)]) == expected(sequences)


@workers
def test_the_state_of_grain_is_enough_for_the_same_ranks(workers: int, sequences: TokenDataset) -> None:
    first, second = (iter(by_grain(Batches(sequences, BATCH), workers)) for _ in range(2))
    found = firsts(islice(first, 3))
    second.set_state(first.get_state())
    assert in_turn([found + firsts(second)]) == expected(sequences)


def test_a_data_loader_of_grain_refuses_the_state_of_other_data(sequences: TokenDataset, tmp_path: Path) -> None:
    def loader(source: Any) -> Iterator[Any]:
        sampler = grain.samplers.SequentialSampler(len(source))
        return iter(grain.DataLoader(data_source=source, sampler=sampler, worker_count=0))

    first = loader(sequences)
    found = [next(first).item(0) for _ in range(5)]
    again = loader(sequences)
    again.set_state(first.get_state())
    assert found + [one.item(0) for one in again] == expected(sequences)
    ids = np.arange(2, N_SEQUENCES * LENGTH + 2).tolist()
    other = tokenmill.open(documents_dataset(tmp_path / "other", [[ids]], ["arrow"])).sequences(LENGTH).shuffle(seed=1)
    with pytest.raises(ValueError, match="DataSource in checkpoint does not match"):
        loader(other).set_state(first.get_state())


def test_rows_and_joined_batches_give_the_loss_of_their_documents(tmp_path: Path) -> None:
    shape, documents = shape_of(60, 8), [[1, 2, 3], [4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14]]
    items = [documents[0] + documents[1], documents[2] + documents[3]]
    made = [write_set(tmp_path, "arrow", [items], shape, starts=[[[0, 3], [0, 2]]])]
    write_dataset(tmp_path, [], made, 60, pack=Pack(length=8, mode="best_fit"))
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=61, **size))

    def loss(**batch: Any) -> float:
        return float(model(**batch, use_cache=False).loss)

    alone = [(loss(input_ids=torch.tensor([one]), labels=torch.tensor([one])), len(one) - 1) for one in documents]
    mean = sum(one * n for one, n in alone) / sum(n for _, n in alone)
    for joined in (False, True):
        [batch] = by_torch(Batches(tokenmill.open(tmp_path), 2, joined=joined), 0)
        assert loss(**batch) == pytest.approx(mean, rel=1e-5)


def test_nodes_share_the_files_of_a_stream_and_go_on_in_mid_epoch(folder: Path) -> None:
    """`datasets` deals files to nodes if their number is a multiple of that of the nodes."""
    every = [one.tolist() for one in tokenmill.open(folder, format="arrow")]
    stream: IterableDataset = load_dataset(str(folder), split="train", streaming=True)
    assert stream.num_shards == 6
    assert [row["input_ids"] for row in stream] == every
    for world in (2, 3):
        found = []
        for rank in range(world):
            make = partial(split_dataset_by_node, stream, rank, world)
            assert make().num_shards == 6 // world
            loaders = [StatefulDataLoader(make(), batch_size=2, collate_fn=list, num_workers=2) for _ in range(2)]
            rows = list(islice(loaders[0], 2))
            loaders[1].load_state_dict(loaders[0].state_dict())
            found += [row["input_ids"] for batch in [*rows, *loaders[1]] for row in batch]
        assert sorted(found) == sorted(every)
