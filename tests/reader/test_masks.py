"""`tokenmill.open` gives the loss mask of each item of a dataset of conversations, whatever the items are made of."""

from pathlib import Path

import numpy as np
import pytest

import tokenmill
from tests.builders.conversation_sets import Conversation, arranged, files_of, manifest_of, write_sets, write_unit
from tests.builders.document_sets import documents_dataset
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.dataset.entries import Files
from tokenmill.dataset.manifest import write_manifest
from tokenmill.errors import ParamsError, ValidationError

ID_MAX = 60_000
UNITS = [
    [
        Conversation([1, 2, 3, 4], [0, 1, 1, 0]),
        Conversation([5], [1]),
        Conversation([6, 7, 8], [1, 0, 1]),
        Conversation([9, 10, 11, 12, 13], [0, 0, 1, 1, 1]),
    ],
    [Conversation([14, 15], [0, 1]), Conversation([16, 17, 18, 19, 20, 21], [0, 1, 0, 0, 1, 1])],
]
ALL = [one for some in UNITS for one in some]
MASK_OF = {id: bit for one in ALL for id, bit in zip(one.ids, one.mask, strict=True)}


def dataset(folder: Path, formats: list[str], files: Files) -> Path:
    tokens = folder / "tokens"
    units = [write_unit(tokens, f"u{i}", some, ID_MAX) for i, some in enumerate(UNITS)]
    arrangement, sets = arranged(folder / "work", units, files, formats, ID_MAX)
    entries = write_sets(tokens, arrangement, sets)
    for path in tokens.glob("*.arrow"):
        path.unlink()
    write_manifest(manifest_of(units, UNITS, ID_MAX, files if entries else None, entries), tokens)
    return tokens


@pytest.mark.parametrize("format", ["arrow", "datatrove", "parquet"])
def test_documents_have_the_masks_of_their_conversations(format: str, tmp_path: Path) -> None:
    folder = dataset(tmp_path, [format] if format != "parquet" else [], files_of())
    found = tokenmill.open(folder, format=format)
    assert [found[i].tolist() for i in range(6)] == [one.ids for one in ALL]
    assert [found.loss_mask(i).tolist() for i in range(-6, 0)] == [one.mask for one in ALL]
    assert found.loss_mask(0).dtype == np.int8 and not found[0].flags.writeable
    assert found.labels(2).tolist() == [-100, -100, 8]
    shuffled = found.shuffle(seed=3)
    for i in range(6):
        assert shuffled.loss_mask(i).tolist() == [MASK_OF[id] for id in shuffled[i].tolist()]
    with pytest.raises(IndexError, match="item 6"):
        found.loss_mask(6)


@pytest.mark.parametrize("format", ["arrow", "datatrove", "parquet"])
@pytest.mark.parametrize("length", [1, 3, 5, 20])
def test_windows_have_masks_that_begin_anew_with_each_document(format: str, length: int, tmp_path: Path) -> None:
    folder = dataset(tmp_path, [format] if format != "parquet" else [], files_of())
    windows = tokenmill.open(folder, format=format).sequences(length)
    assert len(windows) == 21 // length
    for i in range(len(windows)):
        ids, starts = windows[i].tolist(), windows.starts(i).tolist()
        expected = [0 if k in starts else MASK_OF[id] for k, id in enumerate(ids)]
        assert windows.loss_mask(i).tolist() == expected
        assert windows.labels(i).tolist() == [id if bit else -100 for id, bit in zip(ids, expected, strict=True)]


@pytest.mark.parametrize(
    ("format", "labels"),
    [("arrow", False), ("arrow", True), ("datatrove", False), ("parquet", False), ("parquet", True)],
)
def test_packed_sequences_have_the_masks_of_the_files(format: str, labels: bool, tmp_path: Path) -> None:
    pack = Pack(length=6, mode="best_fit", labels=labels)
    folder = dataset(tmp_path, [format], files_of(pack, shuffle=Shuffle(seed=1), pad_id=30))
    found = tokenmill.open(folder)
    for i in range(len(found)):
        ids, starts = found[i].tolist(), found.starts(i).tolist()
        expected = [0 if k in starts or id == 30 else MASK_OF[id] for k, id in enumerate(ids)]
        assert found.loss_mask(i).tolist() == expected
        assert found.labels(i).tolist() == [id if bit else -100 for id, bit in zip(ids, expected, strict=True)]


def test_an_index_makes_masks_of_sequences_from_those_of_documents(tmp_path: Path) -> None:
    pack = Pack(length=4, mode="best_fit", long="split", output="index")
    packed = tokenmill.open(dataset(tmp_path, ["arrow"], files_of(pack))).packed()
    assert sorted(id for ids in packed for id in ids.tolist()) == sorted(MASK_OF)
    for i in range(len(packed)):
        ids, starts = packed[i].tolist(), packed.starts(i).tolist()
        assert packed.loss_mask(i).tolist() == [0 if k in starts else MASK_OF[id] for k, id in enumerate(ids)]


def test_a_format_without_masks_has_conversations_whose_tokens_are_all_learned(tmp_path: Path) -> None:
    found = tokenmill.open(dataset(tmp_path, ["megatron"], files_of()))
    assert [ids.tolist() for ids in found] == [one.ids for one in ALL]
    assert found.labels(2).tolist() == ALL[2].ids
    with pytest.raises(ParamsError, match=r"loss_mask: .*found megatron without masks"):
        found.loss_mask(0)


def test_a_dataset_of_texts_has_no_masks(tmp_path: Path) -> None:
    found = tokenmill.open(documents_dataset(tmp_path / "tokens", [[[1, 2]]], []))
    with pytest.raises(ParamsError, match="loss_mask: expected a dataset of conversations"):
        found.loss_mask(0)


def test_a_file_of_documents_without_a_mask_is_an_error(tmp_path: Path) -> None:
    folder = dataset(tmp_path, [], files_of())
    texts = documents_dataset(tmp_path / "texts", [[one.ids for one in some] for some in UNITS], [], ID_MAX)
    found = tokenmill.open(folder)
    for i in range(2):
        (folder / f"u{i}.parquet").write_bytes((texts / f"unit-{i}.parquet").read_bytes())
    with pytest.raises(ValidationError, match=r"u0\.parquet: expected a column loss_mask"):
        found.loss_mask(0)
