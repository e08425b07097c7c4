"""The source of each document in a set that mixes sources: in the rows of tables, or in the file beside a part."""

from pathlib import Path
from typing import Any

import pytest

from tests.builders.format_files import GIB, Item, document, shape_of, write
from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill.formats.sidecar import with_source_ids
from tokenmill_reader.formats.items import Shape

_STARTS = {"starts": [0, 2], "source_ids": [1, 0]}
PACKED = [{"input_ids": [5, 6, 1], **_STARTS}, {"input_ids": [7], "starts": [0], "source_ids": [2]}] * 3
DOCUMENTS = [{**document([5, 6, 1], str(i), i), "source_ids": [i % 3]} for i in range(6)]
PAIRS = [{"input_ids": [1, 2, 1, 3], "starts": [0, 2], "source_ids": [i, i]} for i in range(3)]


def shapes() -> list[Any]:
    """Each format with each kind of items that it can hold."""
    found = []
    for name, format in SET_FORMATS.items():
        for packed in (False, True):
            for more in ({}, {"has_mask": True}, {"has_mask": True, "is_pair": True}):
                shape = shape_of("u2", packed, has_sources=True, **more)
                if format.refusal(shape, GIB) is None and bool(shape.is_pair) == (name == "trl_dpo"):
                    found.append(pytest.param(format, shape, id=f"{name}-{packed}-{len(more)}"))
    return found


def items_of(shape: Shape) -> list[Item]:
    items: list[Item] = PAIRS if shape.is_pair else DOCUMENTS if shape.length is None else PACKED
    if not shape.has_mask:
        return items
    masks: list[Item] = []
    for one in items:
        of_pair = [0, 1, 0, 1]
        starts = one.get("starts", [])
        plain = [int(i not in starts and i != len(one["input_ids"]) - 1) for i in range(len(one["input_ids"]))]
        masks.append({**one, "loss_mask": of_pair if shape.is_pair else plain})
    return masks


def read(format: Format, folder: Path, shape: Shape) -> list[Item]:
    found = with_source_ids(format, folder, "a", shape, format.read(folder, "a", shape))
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize(("format", "shape"), shapes())
def test_every_format_keeps_the_source_of_each_start(format: Format, shape: Shape, tmp_path: Path) -> None:
    items = items_of(shape)
    paths = write(format, tmp_path, items, shape, [1])
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    found = read(format, tmp_path, shape)
    assert [row["source_ids"] for row in found] == [item["source_ids"] for item in items]
    assert [row["input_ids"] for row in found] == [item["input_ids"] for item in items]
    if format.is_table:
        assert not (tmp_path / "a.starts.arrow").exists()


@pytest.mark.parametrize("name", ["arrow", "parquet", "mds"])
def test_a_number_of_sources_that_is_not_one_for_each_start_is_refused(name: str, tmp_path: Path) -> None:
    wrong = [{**PACKED[0], "source_ids": [1]}]
    with pytest.raises(ValidationError, match="item 0: expected 2 numbers of sources, one for each start; found 1"):
        write(SET_FORMATS[name], tmp_path, wrong, shape_of("u2", True, has_sources=True))


def test_the_sources_of_other_items_are_refused(tmp_path: Path) -> None:
    shape = shape_of("u2", True, has_sources=True)
    format = SET_FORMATS["olmo"]
    write(format, tmp_path / "a", PACKED, shape)
    write(format, tmp_path / "b", PACKED[:4], shape)
    (tmp_path / "b/a.starts.arrow").replace(tmp_path / "a/a.starts.arrow")
    with pytest.raises(ValidationError, match="expected the sources of each item; found those of 4"):
        read(format, tmp_path / "a", shape)
