"""Loss masks of conversations in the file formats: kept beside their ids, shifted where the format's tool shifts, or refused."""

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.format_files import GIB, batch_of, compare, document, id_types, read, shape_of, write
from tests.builders.format_readers import READERS
from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill_reader.formats.items import Shape

Item = dict[str, Any]

HOLD_MASKS = ["parquet", "arrow", "mds", "datatrove", "megatron_sft", "megatron_sft_parquet"]
DOCUMENTS = [*HOLD_MASKS[:4], "olmo_sft"]
SFT = ["megatron_sft", "megatron_sft_parquet"]

of_sequences = pytest.mark.parametrize("format", [SET_FORMATS[name] for name in HOLD_MASKS], ids=HOLD_MASKS)
of_documents = pytest.mark.parametrize("format", [SET_FORMATS[name] for name in DOCUMENTS], ids=DOCUMENTS)
sft = pytest.mark.parametrize("format", [SET_FORMATS[name] for name in SFT], ids=SFT)


def chat_shape(ids: str = "u2", packed: bool = True, **changes: Any) -> Shape:
    return shape_of(ids, packed, has_mask=True, **changes)


def shifted(item: Item) -> list[int]:
    """The mask as Megatron-Bridge makes it of each sample before it packs: `mask[1:] + [0]`."""
    found: list[int] = []
    for start, stop in pairwise([*item["starts"], len(item["input_ids"])]):
        found += [*item["loss_mask"][start:stop][1:], 0]
    return found


def check(format: Format, folder: Path, items: list[Item], shape: Shape) -> None:
    ids = shape.ids.str[1:]
    packed = shape.length is not None
    found = READERS[format.name](folder, "a", ids, packed)
    if format.name in SFT:
        assert [row.pop("shifted") for row in found] == [shifted(item) for item in items]
        compare(found, items, ["input_ids", "starts"])
    else:
        compare(found, items, ["input_ids", "loss_mask"])
    compare(read(format, folder, shape), items, ["input_ids", "loss_mask", *["starts"] * packed])
    for flat in format.flat(folder, "a", shape) if format.flat else []:
        assert flat.loss_mask is not None
        assert flat.loss_mask.tolist() == [one for item in items for one in item["loss_mask"]]


@st.composite
def sequence(draw: st.DrawFn) -> Item:
    ids = draw(st.lists(st.integers(0, 300), min_size=1, max_size=8))
    starts = sorted({0, *draw(st.lists(st.integers(0, len(ids) - 1)))})
    mask = [0 if i in starts else draw(st.integers(0, 1)) for i in range(len(ids))]
    return {"input_ids": ids, "starts": starts, "loss_mask": mask}


@pytest.mark.slow
@of_sequences
@given(data=st.data(), items=st.lists(sequence(), max_size=12), ids=st.sampled_from(["u2", "u4"]))
def test_masked_sequences_come_back_and_other_batches_are_the_same_bytes(
    format: Format, data: st.DataObject, items: list[Item], ids: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = chat_shape(ids)
    borders = data.draw(st.lists(st.integers(0, len(items))))
    whole, cut = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("cut")
    write(format, whole, items, shape)
    check(format, whole, items, shape)
    write(format, cut, items, shape, borders)
    for path in whole.iterdir():
        assert path.read_bytes() == (cut / path.name).read_bytes()


@of_sequences
@id_types
def test_masks_come_back_beside_labels_and_the_largest_id(format: Format, ids: str, tmp_path: Path) -> None:
    shape = chat_shape(ids, has_labels=format.name != "datatrove")
    largest = shape.id_max
    items = [
        {
            "input_ids": [5, 6, largest, 7, 8],
            "starts": [0, 3],
            "loss_mask": [0, 0, 1, 0, 1],
            "labels": [-100, -100, largest, -100, 8],
            "position_ids": [0, 1, 2, 0, 1],
            "seq_lengths": [3, 2],
        },
        {
            "input_ids": [9],
            "starts": [0],
            "loss_mask": [0],
            "labels": [-100],
            "position_ids": [0],
            "seq_lengths": [1],
        },
    ]
    assert format.refusal(shape, GIB) is None
    files = write(format, tmp_path, items, shape, borders=[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    check(format, tmp_path, items, shape)
    if format.name not in [*SFT, "datatrove"]:
        compare(read(format, tmp_path, shape), items, ["labels", "position_ids", "seq_lengths"])


@of_documents
@pytest.mark.parametrize("has_names", [True, False])
def test_masked_documents_come_back(format: Format, has_names: bool, tmp_path: Path) -> None:
    shape = chat_shape(packed=False, has_names=has_names)
    items = [
        document([i + 3, 2, 1], f"name {i}" if has_names else i, i) | {"loss_mask": [1, i % 2, 1]} for i in range(5)
    ]
    files = write(format, tmp_path, items, shape, borders=[2])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    if not has_names and format.name == "olmo_sft":
        compare(read(format, tmp_path, shape), items, ["input_ids", "loss_mask", "id"])
    else:
        check(format, tmp_path, items, shape)


def test_formats_without_a_place_for_a_mask_refuse_it() -> None:
    for name, format in SET_FORMATS.items():
        if name == "olmo_sft":
            assert "encode.pack" in (format.refusal(chat_shape(), GIB) or "")
            assert "encode.chat" in (format.refusal(shape_of("u2", False), GIB) or "")
            assert format.refusal(chat_shape(packed=False), GIB) is None
        elif name == "trl_dpo":
            assert "source.pair" in (format.refusal(chat_shape(), GIB) or "")
        elif name in HOLD_MASKS:
            assert format.refusal(chat_shape(), GIB) is None
            assert (format.refusal(chat_shape(packed=False), GIB) is None) == (name not in SFT)
        else:
            assert "no place for the loss mask" in (format.refusal(chat_shape(), GIB) or "")
            assert "megatron_sft" in (format.refusal(chat_shape(), GIB) or "")
            assert "megatron_sft" not in (format.refusal(chat_shape(packed=False), GIB) or "")
            assert "olmo_sft" not in (format.refusal(chat_shape(), GIB) or "")
            assert "datatrove, mds or olmo_sft" in (format.refusal(chat_shape(packed=False), GIB) or "")


@sft
def test_packed_conversations_alone_are_held_by_the_formats_of_megatron_bridge(format: Format) -> None:
    assert "encode.chat" in (format.refusal(shape_of("u2", True), GIB) or "")
    assert "encode.chat" in (format.refusal(shape_of("u2", False), GIB) or "")
    assert "encode.pack" in (format.refusal(chat_shape(packed=False), GIB) or "")
    assert "2,147,483,647" in (format.refusal(chat_shape("u4", id_max=2**31), GIB) or "")
    assert format.refusal(chat_shape("u4", has_labels=True), GIB) is None


@sft
def test_rows_of_more_than_one_group_come_back(format: Format, tmp_path: Path) -> None:
    shape = chat_shape(length=9)
    items = [
        {"input_ids": [i, 1, 2, i], "starts": [0, 2] if i % 2 else [0], "loss_mask": [0, int(i % 3 == 0), 0, 1]}
        for i in range(1100)
    ]
    write(format, tmp_path, items, shape, borders=[3, 700])
    check(format, tmp_path, items, shape)
    if format.name == "megatron_sft_parquet":
        metadata = pq.ParquetFile(tmp_path / "a.idx.parquet").metadata
        assert [metadata.row_group(i).num_rows for i in range(3)] == [500, 500, 100]


@of_sequences
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss_mask": [0, 2]}, "item 2: loss_mask: expected 0 or 1; found 2"),
        ({"loss_mask": [0, -1]}, "item 2: loss_mask: expected 0 or 1; found -1"),
        ({"loss_mask": [0]}, "item 2: expected 2 values of loss_mask, one for each id; found 1"),
        ({"loss_mask": [1, 0]}, "item 2: loss_mask: expected 0 at each start"),
        ({"starts": [0, 1]}, "item 2: loss_mask: expected 0 at each start"),
    ],
)
def test_a_mask_that_does_not_fit_its_sequence_is_an_error(
    format: Format, changes: Item, words: str, tmp_path: Path
) -> None:
    good = {"input_ids": [4, 1], "starts": [0], "loss_mask": [0, 1]}
    with pytest.raises(ValidationError, match=words):
        write(format, tmp_path, [good, good, good | changes, good], chat_shape(), borders=[1])


@of_sequences
@given(data=st.data())
def test_a_changed_byte_is_an_error_or_another_value(
    format: Format, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, shape = tmp_path_factory.mktemp("damaged"), chat_shape()
    items = [
        {"input_ids": [5, 6, 1, 7], "starts": [0, 3], "loss_mask": [0, 1, 1, 0]},
        {"input_ids": [8, 1], "starts": [0], "loss_mask": [0, 1]},
    ]
    write(format, folder, items, shape)
    path = data.draw(st.sampled_from([folder / name for name in format.files("a", shape)]))
    there = bytearray(path.read_bytes())
    there[data.draw(st.integers(0, len(there) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(there)
    try:
        for batch in format.read(folder, "a", shape):
            batch.validate(full=True)
            assert set(batch["loss_mask"].flatten().to_pylist()) <= {0, 1}
    except ValidationError as error:
        assert str(folder) in str(error)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([4, 5], "found it 0 times, and 5 at the end"),
        ([4, 1, 1], "found it 2 times, and 1 at the end"),
        ([1, 5], "found it 1 times, and 5 at the end"),
    ],
)
def test_conversations_that_olmo_core_would_cut_elsewhere_are_an_error(
    ids: list[int], words: str, tmp_path: Path
) -> None:
    format, shape = SET_FORMATS["olmo_sft"], chat_shape(packed=False)
    some = ([4, 1], [7, 8, 1], ids, [4, 1])
    items = [document(one, row=i) | {"loss_mask": [0] * len(one)} for i, one in enumerate(some)]
    words = rf"raw/a\.jsonl, row 2: expected the id 1, .* nowhere else, .*{words}\. For olmo_sft, take a chat template"
    with pytest.raises(ValidationError, match=words):
        write(format, tmp_path / "one", items, shape, borders=[1])
    with (
        pytest.raises(ValidationError, match="row 2"),
        format.write(tmp_path, "two", shape) as add,
    ):
        add(batch_of(items, shape))


def test_parts_of_olmo_sft_that_end_conversations_differently_are_an_error(tmp_path: Path) -> None:
    format, shape = SET_FORMATS["olmo_sft"], chat_shape(packed=False)
    for stem, end in (("a", 1), ("b", 2), ("c", 1)):
        write(format, tmp_path, [document([4, end]) | {"loss_mask": [0, 1]}], shape, stem=stem)
    assert format.finish
    format.finish(tmp_path, ["a", "c"], shape)
    with pytest.raises(ValidationError, match=r"end with one id; found 1 in token_ids_c\.npy, 2 in token_ids_b\.npy"):
        format.finish(tmp_path, ["a", "b", "c"], shape)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (b"\0\1\1", "expected 4 bytes, one for each id of a.ds; found 3"),
        (b"\0\1\1\2", "byte 3: loss_mask: expected 0 or 1; found 2"),
        (None, "is missing"),
    ],
)
def test_a_mask_of_datatrove_that_does_not_fit_is_found(mask: bytes | None, words: str, tmp_path: Path) -> None:
    format, shape = SET_FORMATS["datatrove"], chat_shape(packed=False)
    items = [document([4, 1]) | {"loss_mask": [0, 1]}, document([5, 1]) | {"loss_mask": [1, 1]}]
    write(format, tmp_path, items, shape)
    path = tmp_path / "a.ds.loss"
    assert path.read_bytes() == b"\0\1\1\1"
    path.unlink()
    if mask is not None:
        path.write_bytes(mask)
    with pytest.raises(ValidationError, match=rf"a\.ds\.loss: {words}"):
        read(format, tmp_path, shape)


def words_of(folder: Path) -> Any:
    return np.fromfile(folder / "a.sft.bin", "<u4")


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 7, "item 0: expected the magic number 0x53465442"),
        (7 + 1, 2, "item 1: expected version 1"),
        (7 + 2, 0, "item 1: expected a start and an id"),
        (7 + 2, 4, "item 1: expected a start and an id"),
        (3, 1, "item 0: expected starts that begin with 0"),
        (6, 1 << 31 | 6, "item 0: expected a mask of 0 at its last id"),
        (7 + 6, 1 << 31, "item 1: expected a mask of 0 at its last id"),
        (4 + 7, 70_000, "item 1: expected ids of 0 to 65535"),
    ],
)
def test_words_of_megatron_sft_that_do_not_fit_are_found(at: int, value: int, reason: str, tmp_path: Path) -> None:
    format, shape = SET_FORMATS["megatron_sft"], chat_shape()
    item = {"input_ids": [4, 5, 6], "starts": [0], "loss_mask": [0, 1, 1]}
    write(format, tmp_path, [item, item], shape)
    words = words_of(tmp_path)
    assert words.tolist()[:7] == [0x53465442, 1, 1, 0, 4 | 1 << 31, 5 | 1 << 31, 6]  # made by hand
    words[at] = value
    words.tofile(tmp_path / "a.sft.bin")
    with pytest.raises(ValidationError, match=rf"a\.sft\.bin: {reason}"):
        read(format, tmp_path, shape)


def test_an_item_that_is_too_short_is_found(tmp_path: Path) -> None:
    format, shape = SET_FORMATS["megatron_sft"], chat_shape()
    write(SET_FORMATS["megatron"], tmp_path, [document([1, 2, 3, 4])], shape_of("u4", False), stem="a.sft")
    with pytest.raises(ValidationError, match="item 0: expected a head of 3 words, a start and an id"):
        read(format, tmp_path, shape)


def test_a_batch_with_wider_ids_never_wraps(tmp_path: Path) -> None:
    shape = chat_shape()
    item = {"input_ids": [4, 70_000], "starts": [0], "loss_mask": [0, 1]}
    for name in SFT:
        with (
            pytest.raises(ValidationError, match="70000"),
            SET_FORMATS[name].write(tmp_path, name, shape) as add,
        ):
            add(batch_of([item], chat_shape("u4")))
