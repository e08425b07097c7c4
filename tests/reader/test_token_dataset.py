"""`tokenmill.open`: the items of a dataset in every format, whole, in windows, packed, and shuffled."""

import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tests.builders.document_sets import (
    documents_dataset,
    shape_of,
    write_dataset,
    write_documents,
    write_index,
    write_set,
)
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.errors import ParamsError, StorageError, ValidationError
from tokenmill_reader.boundaries import cu_seqlens, labels, positions
from tokenmill_reader.order import Order, order_key
from tokenmill_reader.token_dataset import TokenDataset

MAPPED = ["arrow", "megatron", "datatrove", "olmo"]
DOCUMENTS = [[[1, 2, 3], [4], [5, 6, 7, 8], [9, 10]], [[11, 12], [13]]]
ALL = [document for part in DOCUMENTS for document in part]


@pytest.fixture(params=[*MAPPED, "parquet"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> TokenDataset:
    """DOCUMENTS in each of the formats."""
    folder = documents_dataset(tmp_path / "tokens", DOCUMENTS, [request.param] if request.param != "parquet" else [])
    return tokenmill.open(folder, format=request.param)


def lists(items: Sequence[np.ndarray]) -> list[list[int]]:
    return [one.tolist() for one in items]


def test_items_are_the_documents_in_the_order_of_the_dataset(dataset: TokenDataset) -> None:
    assert len(dataset) == 6
    assert lists(list(dataset)) == lists([dataset[i] for i in range(6)]) == ALL
    assert lists(dataset[1:5:2]) == [[4], [9, 10]]
    assert lists(dataset.take([5, 0, 5, -2])) == [[13], [1, 2, 3], [13], [11, 12]]
    assert dataset[-6].tolist() == [1, 2, 3]
    assert dataset[np.int64(2)].tolist() == [5, 6, 7, 8]
    assert dataset.starts(2).tolist() == [0]


@pytest.mark.parametrize("i", [6, -7, 1 << 40])
def test_an_item_that_is_not_there_is_an_index_error(dataset: TokenDataset, i: int) -> None:
    with pytest.raises(IndexError, match=rf"item {i}: expected a number below 6"):
        dataset[i]
    with pytest.raises(IndexError, match=rf"item {i}"):
        dataset.take([0, i])


def test_items_cannot_be_written_to_and_are_views_of_mapped_files(dataset: TokenDataset) -> None:
    sequences = dataset.sequences(3)
    for one in (dataset[0], *dataset.take([1]), sequences[0], sequences[2], *sequences[:1]):
        assert not one.flags.writeable
        assert one.dtype == np.uint16
    if dataset.format != "parquet":
        assert not dataset[0].flags.owndata
        assert not sequences[0].flags.owndata


def test_windows_go_over_documents_and_parts_and_the_rest_is_left_out(dataset: TokenDataset) -> None:
    sequences = dataset.sequences(4)
    assert len(sequences) == 3
    assert lists(list(sequences)) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert [sequences.starts(i).tolist() for i in range(3)] == [[0, 3], [0], [0, 2]]
    assert sequences.labels(0).tolist() == [1, 2, 3, -100]
    assert lists(list(dataset.sequences(5))) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert dataset.sequences(5).starts(1).tolist() == [0, 3]  # in the middle of a document
    assert dataset.sequences(13)[0].tolist() == list(range(1, 14))
    assert len(dataset.sequences(14)) == 0


def test_windows_of_what_are_no_documents_in_order_are_refused_with_what_to_do(dataset: TokenDataset) -> None:
    with pytest.raises(ParamsError, match=r"shuffled with seed 1 .*Call shuffle after sequences\."):
        dataset.shuffle(1).sequences(3)
    with pytest.raises(ParamsError, match=r"windows of 3 ids.*Call sequences of the dataset that `open` gives"):
        dataset.sequences(3).sequences(2)


def test_large_ids_are_uint32_in_every_format(tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path / "tokens", [[[70_000, 1], [2**31 - 1]]], MAPPED, id_max=2**31 - 1)
    for format in (*MAPPED, "parquet"):
        found = tokenmill.open(folder, format=format)
        assert found[0].dtype == np.uint32
        assert lists(list(found)) == [[70_000, 1], [2**31 - 1]]


@pytest.mark.parametrize("format", ["nanogpt", "llmc"])
def test_a_format_without_ends_is_read(format: str, tmp_path: Path) -> None:
    folder = documents_dataset(tmp_path / "tokens", DOCUMENTS, [format])
    assert tokenmill.open(folder).format == format
    assert tokenmill.open(folder).sequences(13)[0].tolist() == list(range(1, 14))


def test_the_first_mapped_format_is_taken_before_parquet(tmp_path: Path) -> None:
    assert tokenmill.open(documents_dataset(tmp_path / "one", DOCUMENTS, ["megatron", "arrow"])).format == "arrow"
    assert tokenmill.open(documents_dataset(tmp_path / "two", DOCUMENTS, ["olmo", "megatron"])).format == "megatron"
    assert tokenmill.open(documents_dataset(tmp_path / "three", DOCUMENTS, [])).format == "parquet"


documents = st.lists(st.integers(1, 60_000), max_size=6)
parts = st.lists(st.lists(documents, max_size=8), max_size=4)


@pytest.mark.slow
@given(parts, st.integers(1, 12), st.sampled_from([*MAPPED, "parquet"]), st.data())
def test_items_and_windows_are_those_of_plain_lists(
    parts: list[list[list[int]]], length: int, format: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = documents_dataset(Path(folder), parts, [format] if format != "parquet" else [])
        dataset = tokenmill.open(path, format=format)
        all_documents = [one for part in parts for one in part]
        assert lists(list(dataset)) == all_documents
        indexes = data.draw(st.lists(st.integers(0, len(all_documents) - 1))) if all_documents else []
        assert lists(dataset.take(indexes)) == [all_documents[i] for i in indexes]
        ids = [one for document in all_documents for one in document]
        begins = {sum(map(len, all_documents[:i])) for i, one in enumerate(all_documents) if one}
        sequences = dataset.sequences(length)
        assert len(sequences) == len(ids) // length
        for i in data.draw(st.permutations(range(len(sequences)))):
            first = i * length
            assert sequences[i].tolist() == ids[first : first + length]
            starts = sorted({0} | {at - first for at in begins if first <= at < first + length})
            assert sequences.starts(i).tolist() == starts
            ends = cu_seqlens(sequences.starts(i), length).tolist()
            assert positions(sequences.starts(i), length).tolist() == [
                k for low, high in pairwise(ends) for k in range(high - low)
            ]
            wanted = [-100 if k and k in starts else ids[first + k] for k in range(length)]
            assert labels(sequences[i], sequences.starts(i)).tolist() == sequences.labels(i).tolist() == wanted


PACKED = [[[1, 2, 3, 0, 9], [4, 5, 0, 9, 9]], [[6, 0, 0, 9, 9], [7, 8, 7, 8, 7]]]
PACKED_STARTS = [[[0, 1], [0]], [[0, 2], [0]]]


@pytest.mark.parametrize("format", [*MAPPED, "parquet"])
def test_packed_sequences_have_the_starts_of_their_documents(tmp_path: Path, format: str) -> None:
    shape = shape_of(60_000, 5, end_id=0)
    one = write_set(tmp_path, format, PACKED, shape, starts=PACKED_STARTS)
    write_dataset(tmp_path, [], [one], 60_000, pack=Pack(length=5, mode="best_fit"), pad_id=9, end_id=0)
    dataset = tokenmill.open(tmp_path)
    assert lists(list(dataset)) == [sequence for part in PACKED for sequence in part]
    assert [dataset.starts(i).tolist() for i in range(4)] == [[0, 1], [0], [0, 2], [0]]
    assert [dataset.labels(i).tolist() for i in range(4)] == [
        [1, -100, 3, 0, -100],
        [4, 5, 0, -100, -100],
        [6, 0, -100, -100, -100],
        [7, 8, 7, 8, 7],
    ]
    with pytest.raises(
        ParamsError, match=r"sequences: expected documents in the order of the files; found <TokenDataset: 4 seq"
    ):
        dataset.sequences(3)
    with pytest.raises(ParamsError, match=r"which the build packed .* Its items are the sequences"):
        dataset.sequences(5)
    with pytest.raises(ParamsError, match="packed: expected documents"):
        dataset.packed()
    assert np.stack(dataset[:]).shape == (4, 5)  # they were filled up


def test_padding_with_the_id_that_ends_documents_leaves_the_end_of_the_last_document(tmp_path: Path) -> None:
    sequences = [[[1, 2, 0, 0, 0], [1, 2, 3, 4, 0], [1, 0, 0, 0, 0], [1, 2, 3, 4, 5]]]
    one = write_set(tmp_path, "arrow", sequences, shape_of(9, 5, end_id=0), starts=[[[0], [0], [0, 2], [0]]])
    write_dataset(tmp_path, [], [one], 9, pack=Pack(length=5, mode="none"), pad_id=0, end_id=0)
    dataset = tokenmill.open(tmp_path)
    assert [dataset.labels(i).tolist() for i in range(4)] == [
        [1, 2, 0, -100, -100],
        [1, 2, 3, 4, 0],
        [1, 0, -100, -100, -100],  # the second document is empty: its end is its first id
        [1, 2, 3, 4, 5],
    ]


def test_labels_of_the_files_are_given_as_they_are(tmp_path: Path) -> None:
    written = [[[-100, 2, -100, 0, -100], [4, 5, 0, -100, -100]], [[6, 0, 0, 9, 9], [7, 8, 7, 8, 7]]]
    shape = shape_of(60_000, 5, has_labels=True, end_id=0)
    one = write_set(tmp_path, "arrow", PACKED, shape, starts=PACKED_STARTS, labels=written)
    write_dataset(tmp_path, [], [one], 60_000, pack=Pack(length=5, mode="best_fit", labels=True), end_id=0)
    dataset = tokenmill.open(tmp_path)
    assert [dataset.labels(i).tolist() for i in range(4)] == [sequence for part in written for sequence in part]


def test_an_index_makes_packed_sequences_from_documents(tmp_path: Path) -> None:
    shape = shape_of(60_000)
    one = write_set(tmp_path, "arrow", DOCUMENTS, shape)
    index = write_index(
        tmp_path, [[[(0, 2, 0, 3), (0, 1, 0, 1)], [(0, 0, 0, 3)]], [[(1, 1, 0, 1), (0, 2, 3, 1)]]], shape
    )
    write_dataset(tmp_path, [], [one, index], 60_000, pack=Pack(length=4, mode="best_fit", output="index"))
    dataset = tokenmill.open(tmp_path)
    assert lists(list(dataset)) == ALL
    packed = dataset.packed()
    assert len(packed) == 3
    assert lists(list(packed)) == [[5, 6, 7, 4], [1, 2, 3], [13, 8]]
    assert [packed.starts(i).tolist() for i in range(3)] == [[0, 3], [0], [0, 1]]
    assert packed.labels(0).tolist() == [5, 6, 7, -100]
    assert not packed[0].flags.writeable


def test_an_index_of_documents_that_are_not_there_is_an_error(tmp_path: Path) -> None:
    shape = shape_of(60_000)
    index = write_index(tmp_path, [[[(1, 2, 0, 1)]]], shape)
    one = write_set(tmp_path, "arrow", DOCUMENTS, shape)
    write_dataset(tmp_path, [], [one, index], 60_000, pack=Pack(length=4, mode="best_fit", output="index"))
    packed = tokenmill.open(tmp_path).packed()
    with pytest.raises(ValidationError, match=r"part-00000.parquet: expected 1 sequences of documents that are there"):
        packed[0]


def test_shuffled_items_are_all_items_in_an_order_of_the_seed_and_the_epoch(dataset: TokenDataset) -> None:
    shuffled = dataset.shuffle(seed=1)
    digest = dataset.manifest.tokens_digest()
    order = Order(6, order_key(digest, 1, 0, "")).item_at(np.arange(6)).tolist()
    assert lists([shuffled[i] for i in range(6)]) == lists(list(shuffled)) == [ALL[i] for i in order]
    assert lists(shuffled[2:4]) == [ALL[i] for i in order[2:4]]
    assert [shuffled.starts(i).tolist() for i in range(6)] == [[0]] * 6
    others = [tuple(map(tuple, lists(list(dataset.shuffle(seed, epoch))))) for seed in range(3) for epoch in range(3)]
    assert len(set(others)) > 6
    assert all(sorted(other) == sorted(map(tuple, ALL)) for other in others)


def test_windows_of_another_length_have_another_order() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = tokenmill.open(documents_dataset(Path(folder), [[list(range(1, 101))]], ["arrow"]))
        found = [[dataset.sequences(n).shuffle(5)[i].item(0) // n for i in range(100 // n)] for n in (2, 1)]
        assert sorted(found[0]) == list(range(50))
        assert [i for i in found[1] if i < 50] != found[0]


def test_a_copy_in_another_process_opens_the_files_again(dataset: TokenDataset) -> None:
    shuffled = dataset.sequences(4).shuffle(1)
    here = lists(list(shuffled))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert lists(pool.submit(list, shuffled).result()) == here


def test_splits_and_epochs_are_chosen(tmp_path: Path) -> None:
    shape = shape_of(60_000)
    sets = [
        write_set(tmp_path, "arrow", [[[10 * i + epoch]]], shape, split, epoch)
        for i, split in enumerate(["train", "validation"])
        for epoch in range(2)
    ]
    write_dataset(tmp_path, [], sets, 60_000, {"train": 0.5, "validation": 0.5}, shuffle=Shuffle(seed=0, epochs=2))
    assert tokenmill.open(tmp_path, "validation", epoch=1)[0].tolist() == [11]
    assert " of validation/epoch-1, " in repr(tokenmill.open(tmp_path, "validation", epoch=1))
    assert tokenmill.open(tmp_path, "train")[0].tolist() == [0]
    for arguments, message in (
        (
            {},
            r"has the splits 'train', 'validation'; found no split\. Name one, as in tokenmill\.open\('.*', 'train'\)\.$",
        ),
        ({"split": "valid"}, r"found 'valid'\. Did you mean validation\?"),
        ({"split": "train", "epoch": 2}, r"epoch: expected one of 0, 1; found 2"),
        ({"split": "train", "format": "megatron"}, r"format: expected one of 'arrow'; found 'megatron'"),
        ({"split": "train", "format": "parquet"}, r"format: expected one of 'arrow'; found 'parquet'"),
    ):
        with pytest.raises(ParamsError, match=message):
            tokenmill.open(tmp_path, **arguments)


def test_sources_with_files_of_their_own_come_one_after_another_or_alone(tmp_path: Path) -> None:
    shape = shape_of(60_000)
    web = write_set(tmp_path, "arrow", [[[1, 2], [3]], [[4]]], shape, source="web")
    code = write_set(tmp_path, "arrow", [[[5]], [[6, 7]]], shape, source="code")
    indexes = [
        write_index(tmp_path, [[[(1, 0, 0, 1), (0, 0, 1, 1)]]], shape, "web"),
        write_index(tmp_path, [[[(1, 0, 0, 2), (0, 0, 0, 1)]]], shape, "code"),
    ]
    pack = Pack(length=4, mode="best_fit", output="index")
    write_dataset(tmp_path, [], [web, code, *indexes], 60_000, pack=pack, epochs={"web": "2", "code": "1/2"})
    assert lists(list(tokenmill.open(tmp_path))) == [[1, 2], [3], [4], [5], [6, 7]]
    assert lists(list(tokenmill.open(tmp_path).packed())) == [[4, 2], [6, 7, 5]]
    alone = tokenmill.open(tmp_path, source="code")
    assert lists(list(alone)) == [[5], [6, 7]]
    assert lists(list(alone.packed())) == [[6, 7, 5]]
    with pytest.raises(ParamsError, match="source: expected one of 'web', 'code'; found 'books'"):
        tokenmill.open(tmp_path, source="books")
    with pytest.raises(ParamsError, match="epoch: expected one of 0; found 1"):
        tokenmill.open(tmp_path, epoch=1)


def test_a_split_of_a_dataset_without_splits_is_an_error(tmp_path: Path) -> None:
    documents_dataset(tmp_path, DOCUMENTS, ["arrow"])
    with pytest.raises(ParamsError, match=r"split: expected none, since the dataset has none; found 'train'"):
        tokenmill.open(tmp_path, split="train")


def test_a_dataset_in_formats_that_are_not_read_is_an_error(tmp_path: Path) -> None:
    one = write_set(tmp_path, "mds", DOCUMENTS, shape_of(60_000))
    write_dataset(tmp_path, [], [one], 60_000, shuffle=Shuffle(seed=0))
    with pytest.raises(ParamsError, match=r"expected files in one of the formats arrow, .*; found mds\."):
        tokenmill.open(tmp_path)


def test_a_folder_without_a_manifest_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"manifest\.json: missing"):
        tokenmill.open(tmp_path)


@pytest.mark.parametrize("format", ["megatron", "parquet"])
def test_a_file_that_is_missing_or_of_another_size_is_an_error(tmp_path: Path, format: str) -> None:
    documents_dataset(tmp_path, DOCUMENTS, [format] if format != "parquet" else [])
    path = tmp_path / ("megatron/part-00001.bin" if format == "megatron" else "unit-1.parquet")
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    with pytest.raises(
        ValidationError, match=rf"{path.name}: expected {len(content)} bytes, .*; found {len(content) + 1}\."
    ):
        tokenmill.open(tmp_path)
    path.unlink()
    with pytest.raises(ValidationError, match=rf"{path.name}: missing, though the manifest names it"):
        tokenmill.open(tmp_path)


def test_a_part_with_other_numbers_than_the_manifest_says_is_an_error(tmp_path: Path) -> None:
    one = write_set(tmp_path, "arrow", DOCUMENTS, shape_of(60_000))
    shards = write_documents(tmp_path, DOCUMENTS, 60_000)
    parts = [part.model_copy(update={"n_items": part.n_items + 1}) for part in one.parts]
    wrong = [shard.model_copy(update={"n_tokens": shard.n_tokens + 1}) for shard in shards]
    write_dataset(tmp_path, wrong, [one.model_copy(update={"parts": parts})], 60_000)
    for format in ("arrow", "parquet"):
        with pytest.raises(ValidationError, match=r"expected .* as the manifest says; found"):
            tokenmill.open(tmp_path, format=format)[0]


def test_a_url_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^s3://\*\*\*@host/datasets/0123: the URL holds a user"):
        tokenmill.open("s3://user:word@host/datasets/0123")
    with pytest.raises(ValidationError, match=re.escape(f"{tmp_path}/manifest.json: missing")):
        tokenmill.open(f"file://{tmp_path}")


def test_a_folder_may_be_an_entry_of_a_listing(tmp_path: Path) -> None:
    documents_dataset(tmp_path / "tokens", DOCUMENTS, ["arrow"])
    [entry] = os.scandir(tmp_path)
    assert len(tokenmill.open(entry)) == len(ALL)


def test_the_text_of_a_dataset_names_its_data(tmp_path: Path) -> None:
    mine, other = ([[[1, 2], [3]]], [[[1, 2], [4]]])
    for name, parts in (("mine", mine), ("copy", mine), ("other", other)):
        documents_dataset(tmp_path / name, parts, ["arrow"])
    texts = [repr(tokenmill.open(tmp_path / name)) for name in ("mine", "copy", "other")]
    assert texts[0] == texts[1] != texts[2]
    assert re.fullmatch(r"<TokenDataset: 2 documents, arrow, data [0-9a-f]{16}>", texts[0])
