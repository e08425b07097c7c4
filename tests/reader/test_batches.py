"""Batches are arrays that a model takes, and any number of ranks goes on with them where others stopped."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tests.builders.document_sets import documents_dataset, shape_of, write_dataset, write_set
from tokenmill.config.encode_params import Pack
from tokenmill.errors import ParamsError
from tokenmill_reader.batches import Batches
from tokenmill_reader.token_dataset import TokenDataset

DOCUMENTS = [[[1, 2, 3], [4], [], [5, 6]]]


@cache
def folder_of(n_items: int) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory()
    documents_dataset(Path(folder.name), [[[i] for i in range(n_items)]], ["megatron"])
    return folder


def numbers(n_items: int) -> TokenDataset:
    """The documents [0], [1], and so on."""
    return tokenmill.open(folder_of(n_items).name, format="megatron")


def packed(folder: Path) -> TokenDataset:
    """Two sequences of two documents each, the second of them not filled up."""
    shape = shape_of(60_000, 5)
    made = [write_set(folder, "arrow", [[[1, 2, 3, 4, 5], [6, 7, 8]]], shape, starts=[[[0, 2], [0, 1]]])]
    write_dataset(folder, [], made, 60_000, pack=Pack(length=5, mode="best_fit"))
    return tokenmill.open(folder)


def lists(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def test_documents_are_filled_up_under_a_mask(tmp_path: Path) -> None:
    [batch] = Batches(tokenmill.open(documents_dataset(tmp_path, DOCUMENTS, ["arrow"])), 4)
    assert lists(batch) == {
        "input_ids": [[1, 2, 3], [4, 0, 0], [0, 0, 0], [5, 6, 0]],
        "labels": [[1, 2, 3], [4, -100, -100], [-100, -100, -100], [5, 6, -100]],
        "attention_mask": [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]],
    }
    assert {one.dtype for one in batch.values()} == {np.dtype(np.int64)}


def test_rows_of_packed_sequences_have_positions_and_no_mask(tmp_path: Path) -> None:
    [batch] = Batches(packed(tmp_path), 2)
    assert lists(batch) == {
        "input_ids": [[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]],
        "labels": [[1, 2, -100, 4, 5], [6, -100, 8, -100, -100]],
        "position_ids": [[0, 1, 0, 1, 2], [0, 0, 1, 2, 3]],
    }
    assert {one.dtype for one in batch.values()} == {np.dtype(np.int64)}


def test_a_joined_batch_says_where_its_documents_are(tmp_path: Path) -> None:
    [batch] = Batches(packed(tmp_path), 2, joined=True)
    lengths = [0, 2, 5, 6, 8]
    assert lists(batch) == {
        "input_ids": [[1, 2, 3, 4, 5, 6, 7, 8]],
        "labels": [[-100, 2, -100, 4, 5, -100, -100, 8]],
        "position_ids": [[0, 1, 0, 1, 2, 0, 0, 1]],
        "cu_seq_lens_q": lengths,
        "cu_seq_lens_k": lengths,
        "max_length_q": 3,
        "max_length_k": 3,
    }
    assert batch["cu_seq_lens_q"].dtype == np.int32
    assert {batch[name].dtype for name in ("input_ids", "labels", "position_ids")} == {np.dtype(np.int64)}


def test_joined_documents_leave_out_empty_ones(tmp_path: Path) -> None:
    documents = tokenmill.open(documents_dataset(tmp_path, DOCUMENTS, ["arrow"]))
    batch = lists(Batches(documents, 4, joined=True)[0])
    assert batch["cu_seq_lens_q"] == [0, 3, 4, 6] and batch["labels"] == [[-100, 2, 3, -100, -100, 6]]
    assert lists(Batches(documents, 1, joined=True)[2])["cu_seq_lens_k"] == [0]


def test_windows_have_the_starts_of_their_documents(tmp_path: Path) -> None:
    windows = tokenmill.open(documents_dataset(tmp_path, DOCUMENTS, ["arrow"])).sequences(4)
    assert lists(Batches(windows, 8)[0]) == {
        "input_ids": [[1, 2, 3, 4]],
        "labels": [[1, 2, 3, -100]],
        "position_ids": [[0, 1, 2, 0]],
    }


runs = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 4)), max_size=5)


@given(st.integers(0, 40), runs, st.booleans())
def test_ranks_that_go_on_in_other_numbers_read_the_undisturbed_order(
    n_items: int, runs: list[tuple[int, int, int]], is_shuffled: bool
) -> None:
    dataset = numbers(n_items)
    dataset = dataset.shuffle(3, 2) if is_shuffled else dataset
    found: list[int] = []
    state = None
    for world, batch_size, n_batches in [*runs, (1, 4, 11)]:
        ranks = [Batches(dataset, batch_size, rank, world, state=state) for rank in range(world)]
        for k in range(n_batches):
            of_ranks = [one[k]["input_ids"][:, 0].tolist() if k < len(one) else [] for one in ranks]
            found += [of[j] for j in range(batch_size) for of in of_ranks if j < len(of)]
        states = [json.dumps(one.state_after(n_batches)) for one in ranks]
        assert len(set(states)) == 1
        state = json.loads(states[0])
    assert found == [one.item(0) for one in dataset]


@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 5))
def test_with_drop_last_all_batches_are_full_on_every_rank(n_items: int, world: int, batch_size: int) -> None:
    ranks = [Batches(numbers(n_items), batch_size, rank, world, drop_last=True) for rank in range(world)]
    assert {len(one) for one in ranks} == {n_items // (world * batch_size)}
    assert all(len(batch["input_ids"]) == batch_size for one in ranks for batch in one)


def test_the_state_is_that_of_the_items_and_names_the_epoch() -> None:
    dataset = numbers(20).shuffle(1)
    items = dataset.shard(0, 2)
    items.set_epoch(3)
    for _ in range(4):
        next(items)
    batches = Batches(dataset, 2, rank=1, world=2, state=items.state_dict())
    assert batches.state_after(0) == items.state_dict()
    assert batches[0]["input_ids"][:, 0].tolist() == [int(dataset.at_epoch(3)[i][0]) for i in (9, 11)]


def test_mistakes_are_refused() -> None:
    with pytest.raises(ParamsError, match="batch_size: expected 1 or more; found 0"):
        Batches(numbers(3), 0)
    with pytest.raises(ParamsError, match="seed: expected 1"):
        Batches(numbers(3).shuffle(1), 2, state=Batches(numbers(3).shuffle(2), 2).state_after(1))
    with pytest.raises(IndexError, match="batch 2: expected a number below 2"):
        Batches(numbers(3), 2)[2]
    assert repr(Batches(numbers(3), 2)).startswith("<Batches of 2 for rank 0 of 1 from item 0 of <TokenDataset: 3 ")
