"""Items shuffled in blocks of parts: each once, the same order on every machine, and resumed by any number of ranks."""

import json
import sys
import tracemalloc
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tests.builders.document_sets import documents_dataset
from tokenmill.errors import ParamsError
from tokenmill_reader.block_order import BlockOrder
from tokenmill_reader.order import Order, order_key
from tokenmill_reader.rank_iterator import RankIterator

SIZES = [5, 0, 7, 3, 1, 9, 4]
PARTS = [[[100 * part + k] for k in range(n)] for part, n in enumerate(SIZES)]


IN_ONE_BLOCK = [204, 203, 400, 505, 501, 502, 500, 302]  # its beginning, by the order of 0.2


def key_of(name: str) -> bytes:
    return order_key("d1", 0, 0, name)


def firsts_of(sizes: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents_dataset(tmp_path_factory.mktemp("dataset") / "tokens", PARTS, ["arrow", "megatron"])


def ids_of(items: object) -> list[int]:
    return [one.item(0) for one in items]  # type: ignore[attr-defined]


@given(st.lists(st.integers(0, 6), max_size=12), st.integers(1, 14), st.integers(1, 4))
def test_every_item_comes_once_and_a_block_has_the_items_of_its_parts(sizes: list[int], block: int, run: int) -> None:
    order = BlockOrder(firsts_of(sizes), block, key_of, run)
    items = order.item_at(np.arange(sum(sizes))).tolist()
    assert sorted(items) == list(range(sum(sizes)))
    assert sorted(part for parts in order.blocks for part in parts) == list(range(len(sizes)))
    part_of = np.repeat(np.arange(len(sizes)), sizes)
    at = 0
    for parts in order.blocks:
        n_items = sum(sizes[part] for part in parts)
        assert len(parts) <= block and {int(part_of[i]) for i in items[at : at + n_items]} <= set(parts)
        at += n_items


def test_the_order_is_what_its_definition_says() -> None:
    order = BlockOrder(firsts_of(SIZES), 3, key_of)
    parts = Order(len(SIZES), key_of("parts")).item_at(np.arange(len(SIZES))).tolist()
    expected = []
    for k in range(3):
        of_block = [sum(SIZES[:part]) + i for part in parts[3 * k : 3 * k + 3] for i in range(SIZES[part])]
        expected += [of_block[i] for i in Order(len(of_block), key_of(f"block {k}")).item_at(np.arange(len(of_block)))]
    assert order.item_at(np.arange(sum(SIZES))).tolist() == expected
    runs = Order(4, key_of("parts")).item_at(np.arange(4)).tolist()
    expected_parts = [part for run in runs for part in (2 * run, 2 * run + 1) if part < len(SIZES)]
    assert BlockOrder(firsts_of(SIZES), 3, key_of, run=2).parts.tolist() == expected_parts
    positions = np.array([7, 0, 28, 7])
    assert order.item_at(positions).tolist() == [expected[i] for i in positions]


def test_the_order_is_the_same_on_every_machine(folder: Path) -> None:
    shuffled = tokenmill.open(folder).shuffle(seed=3, epoch=1, block=3)
    assert ids_of(shuffled)[:12] == [508, 302, 600, 603, 503, 602, 507, 601, 301, 502, 504, 300]
    assert shuffled.state()["block"] == 3 and shuffled.state()["parts"] == "0a57b5722a058c55"
    assert ids_of(shuffled.at_epoch(2)) == ids_of(tokenmill.open(folder, format="parquet").shuffle(3, 2, block=3))
    assert ", shuffled with seed 3 for epoch 1 in blocks of 3 (parts 0a57b5722a058c55), " in repr(shuffled)


def test_items_by_number_are_those_of_the_iteration(folder: Path) -> None:
    shuffled = tokenmill.open(folder).shuffle(seed=3, block=2)
    items = ids_of(shuffled)
    assert [shuffled[i].item(0) for i in range(-1, len(items))] == [items[-1], *items]
    assert ids_of(shuffled.take([3, 20, 3])) == [items[3], items[20], items[3]]


def test_a_window_is_of_the_part_in_which_it_begins(folder: Path) -> None:
    windows = tokenmill.open(folder).sequences(4)
    shuffled = windows.shuffle(seed=1, block=2)
    assert sorted(one.tolist() for one in shuffled) == sorted(one.tolist() for one in windows)
    assert windows._view.first_items.tolist() == [0, 2, 2, 3, 4, 4, 7, 7]


def test_without_block_the_order_and_the_state_are_those_of_before(folder: Path) -> None:
    shuffled = tokenmill.open(folder).shuffle(seed=3)
    assert ids_of(shuffled)[:8] == IN_ONE_BLOCK
    assert "block" not in shuffled.state()


def test_the_memory_is_that_of_the_parts() -> None:
    order = BlockOrder(firsts_of([1_000_000_000_000] * 1000), 64, key_of)
    tracemalloc.start()
    found = order.item_at(np.arange(5) * 10**14)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(found.tolist())) == 5
    assert peak_bytes < 1 << 20 and sum(map(sys.getsizeof, order.blocks)) < 1 << 16


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=6), st.integers(1, 8))
def test_ranks_that_go_on_in_other_numbers_read_the_undisturbed_order(
    folder: Path, runs: list[tuple[int, int]], block: int
) -> None:
    dataset = tokenmill.open(folder).shuffle(3, 2, block=block)
    found: list[int] = []
    state = None
    for world, n_rounds in [*runs, (1, len(dataset))]:
        ranks: list[RankIterator] = [dataset.shard(rank, world) for rank in range(world)]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(json.loads(json.dumps(state)))
        for _ in range(n_rounds):
            found += [one.item(0) for rank in ranks for one in islice(rank, 1)]
        state = ranks[0].state_dict()
    assert found == ids_of(dataset)


def test_a_state_of_other_blocks_or_other_parts_is_refused(folder: Path, tmp_path: Path) -> None:
    state = tokenmill.open(folder).shuffle(3, block=3).shard(0, 1).state_dict()
    with pytest.raises(ParamsError, match="block: expected 2, as this dataset has it; found 3 in the state"):
        tokenmill.open(folder).shuffle(3, block=2).shard(0, 1).load_state_dict(state)
    with pytest.raises(ParamsError, match=r"expected the keys .* with the same split, sequences and shuffle"):
        tokenmill.open(folder).shuffle(3).shard(0, 1).load_state_dict(state)
    others = documents_dataset(tmp_path / "tokens", [PARTS[0], [*PARTS[2][:6]], [PARTS[2][6], *PARTS[3]]], ["arrow"])
    assert tokenmill.open(others).shuffle(3, block=3).state()["parts"] != state["parts"]
    with pytest.raises(ParamsError, match="block: expected 1 or more parts; found 0"):
        tokenmill.open(folder).shuffle(3, block=0)
