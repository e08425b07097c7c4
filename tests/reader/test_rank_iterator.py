"""Ranks share a dataset's items, stop, and go on in other numbers: no item twice, none lost, the order undisturbed."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tests.builders.document_sets import documents_dataset, shape_of, write_dataset, write_set
from tests.conftest import REPOSITORY
from tests.times import PATIENCE_S
from tokenmill.errors import ParamsError
from tokenmill_reader.rank_iterator import RankIterator
from tokenmill_reader.token_dataset import TokenDataset

State = dict[str, Any]


@cache
def folder_of(n_items: int) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory()
    half = n_items // 2
    parts = [[[i] for i in range(half)], [[i] for i in range(half, n_items)]]
    documents_dataset(Path(folder.name), parts, ["arrow", "megatron"])
    return folder


def dataset_of(n_items: int, format: str = "arrow") -> TokenDataset:
    """The documents [0], [1], and so on."""
    return tokenmill.open(folder_of(n_items).name, format=format)


def in_turn(ranks: Sequence[RankIterator], n_rounds: int | None = None) -> list[int]:
    """What the ranks read in so many rounds, or up to the end, in the order of the items."""
    found = []
    for rounds in range(1 << 30):
        if rounds == n_rounds:
            break
        of_round = [one.item(0) for rank in ranks for one in islice(rank, 1)]
        if not of_round:
            break
        found += of_round
    return found


def ranks_of(dataset: TokenDataset, world: int, state: State | None = None) -> list[RankIterator]:
    ranks = [dataset.shard(rank, world) for rank in range(world)]
    for rank in ranks:
        if state is not None:
            rank.load_state_dict(json.loads(json.dumps(state)))
    return ranks


def state_of(ranks: Sequence[RankIterator]) -> State:
    """The state that all ranks have."""
    states = [rank.state_dict() for rank in ranks]
    assert all(state == states[0] for state in states)
    return states[0]


def test_a_rank_reads_every_item_whose_number_is_its_own_plus_a_multiple_of_the_world() -> None:
    dataset = dataset_of(7)
    assert [[one.item(0) for one in dataset.shard(rank, 3)] for rank in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [[one.item(0) for one in dataset.shard(rank, 3, drop_last=True)] for rank in range(3)] == [
        [0, 3],
        [1, 4],
        [2, 5],
    ]
    assert list(dataset_of(2).shard(2, 3)) == []


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=6), st.booleans())
def test_ranks_that_go_on_in_other_numbers_read_the_undisturbed_order(
    n_items: int, runs: list[tuple[int, int]], is_shuffled: bool
) -> None:
    dataset = dataset_of(n_items)
    dataset = dataset.shuffle(3, 2) if is_shuffled else dataset
    found: list[int] = []
    state = None
    for world, n_rounds in runs:
        ranks = ranks_of(dataset, world, state)
        found += in_turn(ranks, n_rounds)
        state = state_of(ranks)
        assert state["position"] == len(found)
    found += in_turn(ranks_of(dataset, 1, state))
    assert found == [one.item(0) for one in dataset]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 8))
def test_with_drop_last_all_ranks_read_equally_many(n_items: int, world: int, n_rounds: int) -> None:
    dataset = dataset_of(n_items)
    ranks = [dataset.shard(rank, world, drop_last=True) for rank in range(world)]
    found = in_turn(ranks, n_rounds)
    found += in_turn(ranks)
    assert found == list(range(n_items // world * world))
    assert state_of(ranks)["position"] == n_items


def test_a_shared_state_goes_on_in_another_format_and_another_process_count() -> None:
    two = ranks_of(dataset_of(20).shuffle(1), 2)
    found = in_turn(two, 3)
    three = ranks_of(dataset_of(20, "megatron").shuffle(1), 3, state_of(two))
    found += in_turn(three, 2)
    found += in_turn(ranks_of(dataset_of(20, "parquet").shuffle(1), 1, state_of(three)))
    assert found == [one.item(0) for one in dataset_of(20).shuffle(1)]


def test_an_epoch_begins_anew_and_is_part_of_the_state() -> None:
    dataset = dataset_of(10).shuffle(1)
    ranks = ranks_of(dataset, 2)
    first = in_turn(ranks)
    assert in_turn(ranks) == []
    for rank in ranks:
        rank.set_epoch(1)
    second = in_turn(ranks, 2)
    assert second == [one.item(0) for one in dataset.at_epoch(1)[:4]]
    assert second != first[:4]
    [alone] = ranks_of(dataset, 1, state_of(ranks))
    assert alone.epoch == 1
    assert second + in_turn([alone]) == [one.item(0) for one in dataset.at_epoch(1)]


def test_a_state_of_other_data_or_another_order_is_refused(tmp_path: Path) -> None:
    dataset = dataset_of(20)
    state = dataset.sequences(2).shuffle(1).shard(0, 1).state_dict()
    for other, name, expected, found in (
        (dataset_of(21).sequences(2).shuffle(1), "data", ".*", ".*"),
        (dataset.sequences(1).shuffle(1), "length", 1, 2),
        (dataset.shuffle(1), "items", "'documents'", "'windows'"),
        (dataset.sequences(2).shuffle(2), "seed", 2, 1),
        (dataset.sequences(2), "seed", None, 1),
    ):
        with pytest.raises(
            ParamsError, match=rf"load_state_dict: {name}: expected {expected}, .*; found {found} in the"
        ):
            other.shard(0, 1).load_state_dict(state)
    sets = [write_set(tmp_path, "arrow", [[[1], [2]]], shape_of(9), split, None) for split in ("train", "test")]
    write_dataset(tmp_path, [], sets, 9, {"train": 0.5, "test": 0.5})
    state = tokenmill.open(tmp_path, "train").shard(0, 1).state_dict()
    with pytest.raises(ParamsError, match=r"split: expected 'test', .*; found 'train'"):
        tokenmill.open(tmp_path, "test").shard(0, 1).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": 21}, "position: expected 0 to 20; found 21"),
        ({"position": -1}, "position: expected 0 to 20; found -1"),
        ({"position": "3"}, "position: expected 0 to 20; found '3'"),
        ({"epoch": True}, "epoch: expected 0 to .*; found True"),
        ({"rank": 1}, "expected the keys .*; found .*'rank'"),
    ],
)
def test_a_state_that_is_none_is_refused(change: State, message: str) -> None:
    one = dataset_of(20).shard(0, 1)
    with pytest.raises(ParamsError, match=message):
        one.load_state_dict({**one.state_dict(), **change})
    assert len(list(one)) == 20


def test_a_rank_that_is_not_in_the_world_is_refused() -> None:
    with pytest.raises(ParamsError, match="expected a rank from 0 to world - 1; found rank 2 of 2"):
        dataset_of(20).shard(2, 2)


READ = """
import json, os, sys, time
import tokenmill
folder, out, state, rank, world, stops = sys.argv[1:]
items = tokenmill.open(folder).sequences(3).shuffle(seed=5).shard(int(rank), int(world))
if state:
    items.load_state_dict(json.load(open(state)))
with open(f"{out}/items-{rank}", "w") as log:
    for n, ids in enumerate(items, 1):
        print(*ids, file=log, flush=True)
        if n % 5 == 0:
            with open(f"{out}/new-{rank}", "w") as file:
                json.dump(items.state_dict(), file)
            os.replace(f"{out}/new-{rank}", f"{out}/state-{rank}-{n}")
        if stops == "killed":
            time.sleep(0.005 * (1 + int(rank)))
"""


def run_ranks(
    folder: Path, out: Path, state: Path | None, world: int, is_killed: bool
) -> list[subprocess.Popen[bytes]]:
    out.mkdir()
    return [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                READ,
                folder,
                out,
                state or "",
                str(rank),
                str(world),
                "killed" if is_killed else "",
            ],
            cwd=REPOSITORY,
        )
        for rank in range(world)
    ]


def kill(ranks: Sequence[subprocess.Popen[bytes]], out: Path) -> None:
    """Kills all ranks at once, each at a step of its own, when each has saved several states."""
    deadline = time.monotonic() + PATIENCE_S
    while min(len(list(out.glob(f"state-{rank}-*"))) for rank in range(len(ranks))) < 3:
        assert time.monotonic() < deadline
        assert all(rank.poll() is None for rank in ranks)
        time.sleep(0.01)
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)
    assert [rank.wait() for rank in ranks] == [-signal.SIGKILL] * len(ranks)


def common_state(out: Path, world: int) -> tuple[Path, list[str]]:
    """The last state that all ranks saved, which is the same, and the items up to it in their order."""
    steps = [{int(path.name.split("-")[2]) for path in out.glob(f"state-{rank}-*")} for rank in range(world)]
    step = max(set.intersection(*steps))
    paths = [out / f"state-{rank}-{step}" for rank in range(world)]
    assert len({path.read_text() for path in paths}) == 1
    taken = [(out / f"items-{rank}").read_text().splitlines()[:step] for rank in range(world)]
    return paths[0], [item for of_round in zip(*taken, strict=True) for item in of_round]


@pytest.mark.slow
def test_two_killed_processes_are_followed_by_three_and_then_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    documents_dataset(folder, [[[i, 0] for i in range(1, 1000)], [[i] for i in range(1000, 4000)]], ["arrow"])
    two, three, one = (tmp_path / name for name in ("two", "three", "one"))
    kill(run_ranks(folder, two, None, 2, True), two)
    state, found = common_state(two, 2)
    kill(run_ranks(folder, three, state, 3, True), three)
    state, more = common_state(three, 3)
    found += more
    [last] = run_ranks(folder, one, state, 1, False)
    assert last.wait(60) == 0
    found += (one / "items-0").read_text().splitlines()
    undisturbed = [" ".join(map(str, ids.tolist())) for ids in tokenmill.open(folder).sequences(3).shuffle(seed=5)]
    assert found == undisturbed
    assert len(set(found)) == len(found) == 1666
