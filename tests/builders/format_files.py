"""Items that a test writes in a format and reads back, and the formats that it runs through."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape

Item = dict[str, Any]
GIB = 1 << 30


def shape_of(ids: str, packed: bool, **changes: Any) -> Shape:
    """What a set has: its ids fit `ids` bytes, and packed rows have 8 tokens."""
    facts: dict[str, Any] = {
        "id_max": {"u2": 2**16 - 1, "u4": 2**31 - 1}[ids],
        "tokenizer_digest": "0123abcd",
        "begin_id": None,
        "end_id": 1,
        "has_names": True,
        "length": 8 if packed else None,
    }
    return Shape(**facts | changes)


def batch_of(items: Sequence[Item], shape: Shape) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(items), schema=schema_of(shape))


def write(
    format: Format, folder: Path, items: Sequence[Item], shape: Shape, borders: Sequence[int] = (), stem: str = "a"
) -> list[Path]:
    """Writes a part in batches that end at these borders, and what the set shares; returns the part's files."""
    folder.mkdir(parents=True, exist_ok=True)
    with format.write(folder, stem, shape) as add:
        ends = [0, *sorted(borders), len(items)]
        whole = batch_of(items, shape)
        for i, (start, end) in enumerate(pairwise(ends)):
            add(whole.slice(start, end - start) if i % 2 else batch_of(items[start:end], shape))
    if format.finish:
        format.finish(folder, [stem], shape)
    return [folder / name for name in [*format.files(stem, shape), *format.shared]]


def read(format: Format, folder: Path, shape: Shape, stem: str = "a") -> list[Item]:
    """The items of a part."""
    return [row for batch in format.read(folder, stem, shape) for row in batch.to_pylist()]


def ids_of(batch: pa.RecordBatch) -> Any:
    """The ids of all items of a batch, one after another."""
    return batch.column("input_ids").flatten().to_numpy()


def document(ids: Sequence[int], name: Any = "x", row: int = 0) -> Item:
    return {"id": name, "input_ids": list(ids), "n_bytes": 3 * len(ids), "shard": "raw/a.jsonl", "row": row}


def compare(found: Sequence[Item], expected: Sequence[Item], columns: Sequence[str] = ("input_ids",)) -> None:
    """Compares what was found with the items, in the columns that were found and at least in these."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert set(columns) <= set(one)
        assert one == {name: other[name] for name in one}


OF_TEXTS = {name: one for name, one in SET_FORMATS.items() if one.refusal(shape_of("u2", True), GIB) is None}
"""The formats that hold documents without a loss mask."""

formats = pytest.mark.parametrize("format", OF_TEXTS.values(), ids=OF_TEXTS)
id_types = pytest.mark.parametrize("ids", ["u2", "u4"])
kinds = pytest.mark.parametrize("packed", [False, True], ids=["documents", "packed"])


def labelled() -> list[Item]:
    """Two packed rows of conversations with labels, positions and lengths."""
    return [
        {
            "input_ids": [5, 6, 1, 7],
            "starts": [0, 3],
            "labels": [-100, 6, 1, -100],
            "position_ids": [0, 1, 2, 0],
            "seq_lengths": [3, 1],
        },
        {"input_ids": [8, 1], "starts": [0], "labels": [-100, 1], "position_ids": [0, 1], "seq_lengths": [2]},
    ]
