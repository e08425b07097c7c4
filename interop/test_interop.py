"""What each file format is written as, read by the tool whose format it is: run by `make test-interop`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape

Item = dict[str, Any]
END = 1
LENGTH = 16

id_types = pytest.mark.parametrize("ids", ["uint16", "uint32"])
kinds = pytest.mark.parametrize("packed", [False, True], ids=["documents", "packed"])


def shape_of(ids: str, packed: bool) -> Shape:
    id_max = {"uint16": 2**16 - 1, "uint32": 200_000}[ids]
    length = LENGTH if packed else None
    return Shape(id_max, "0123abcd", None, END, has_names=True, length=length)


def items_of(shape: Shape) -> list[Item]:
    """Forty items whose ids reach the largest one; the names of documents have commas and line breaks in them."""
    random = np.random.default_rng(5)
    items: list[Item] = []
    for i in range(40):
        n_ids = int(random.integers(0, 70)) if shape.length is None else LENGTH
        ids = random.integers(2, shape.id_max + 1, n_ids).tolist()
        ids[: i % 2] = [shape.id_max] * (i % 2)
        if shape.length is None:
            name = f'document {i},\n"京都"'
            items.append({"id": name, "input_ids": [*ids, END], "n_bytes": i, "shard": "raw/a,b.jsonl", "row": i})
        else:
            starts = [0, *sorted({int(start) for start in random.integers(1, LENGTH, i % 4)})]
            items.append({"input_ids": ids, "starts": starts})
    return items


def written(name: str, folder: Path, ids: str, packed: bool) -> list[Item]:
    """Two parts of a set, in all these items."""
    shape = shape_of(ids, packed)
    items = items_of(shape)
    format = SET_FORMATS[name]
    assert format.refusal(shape, 1 << 30) is None
    for stem, part in (("part-00000", items[:25]), ("part-00001", items[25:])):
        with format.write(folder, stem, shape) as add:
            add(pa.RecordBatch.from_pylist(part, schema=schema_of(shape)))
    if format.finish:
        format.finish(folder, ["part-00000", "part-00001"], shape)
    return items


def conversations(name: str, folder: Path, ids: str) -> list[Item]:
    """Two parts of a set of conversations with loss masks, in all these items."""
    shape = replace(shape_of(ids, packed=False), end_id=None, has_mask=True)
    items = [item | {"loss_mask": [i % 2 for i in range(len(item["input_ids"]))]} for item in items_of(shape)]
    format = SET_FORMATS[name]
    for i, part in enumerate((items[:25], items[25:])):
        with format.write(folder, f"{format.part}{i:05}", shape) as add:
            add(pa.RecordBatch.from_pylist(part, schema=schema_of(shape)))
    return items


def kept(items: Sequence[Item], *names: str) -> list[Item]:
    return [{name: item[name] for name in names} for item in items]


def segments(items: Sequence[Item]) -> list[list[int]]:
    """The documents, or the segments of the sequences."""
    found = []
    for item in items:
        starts = item.get("starts", [0])
        found += [item["input_ids"][a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return found


def columns(packed: bool) -> tuple[str, ...]:
    return ("input_ids", "starts") if packed else ("id", "input_ids", "n_bytes")


@id_types
@kinds
def test_datasets_reads_parquet(ids: str, packed: bool, tmp_path: Path) -> None:
    from datasets import load_dataset

    items = written("parquet", tmp_path, ids, packed)
    files = [str(path) for path in sorted(tmp_path.glob("*.parquet"))]
    found = load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert found.to_list() == kept(items, *columns(packed))


@id_types
@kinds
def test_duckdb_reads_parquet_in_folders(ids: str, packed: bool, tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "documents/de").mkdir(parents=True)
    items = written("parquet", tmp_path / "documents/de", ids, packed)
    names = columns(packed)
    query = f"SELECT {', '.join(names)} FROM '{tmp_path}/documents/**/*.parquet'"
    rows = [dict(zip(names, row, strict=True)) for row in duckdb.sql(query).fetchall()]
    assert rows == kept(items, *names)


@id_types
@kinds
def test_datasets_maps_arrow(ids: str, packed: bool, tmp_path: Path) -> None:
    from datasets import Dataset, concatenate_datasets, load_dataset

    items = written("arrow", tmp_path, ids, packed)
    files = [str(path) for path in sorted(tmp_path.glob("*.arrow"))]
    found = concatenate_datasets([Dataset.from_file(path) for path in files])
    assert found.to_list() == kept(items, *columns(packed))
    assert [row["input_ids"].tolist() for row in found.with_format("numpy")] == [item["input_ids"] for item in items]
    found = load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert found.to_list() == kept(items, *columns(packed))


@id_types
@kinds
@pytest.mark.parametrize("mmap", [True, False])
def test_megatron_reads_its_indexed_dataset(ids: str, packed: bool, mmap: bool, tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    items = written("megatron", tmp_path, ids, packed)
    for stem, part in (("part-00000", items[:25]), ("part-00001", items[25:])):
        found = IndexedDataset(str(tmp_path / stem), mmap=mmap)
        assert len(found) == len(part)
        assert [found[i].tolist() for i in range(len(found))] == [item["input_ids"] for item in part]
        assert found.get(3, offset=0, length=1).tolist() == part[3]["input_ids"][:1]
        assert found.document_indices.tolist() == list(range(len(part) + 1))
        assert found.sequence_lengths.tolist() == [len(item["input_ids"]) for item in part]


@id_types
@kinds
def test_datatrove_reads_windows_with_positions(ids: str, packed: bool, tmp_path: Path) -> None:
    from datatrove.utils.dataset import DatatroveFolderDataset

    items = written("datatrove", tmp_path, ids, packed)
    width = 8
    found = DatatroveFolderDataset(
        str(tmp_path),
        seq_len=width - 1,
        filename_pattern="*.ds",
        token_size=np.dtype(ids).itemsize,
        return_positions=True,
    )
    expected: list[tuple[list[int], list[int]]] = []
    for part in (items[:25], items[25:]):
        of_part = segments(part)
        tokens = [id for segment in of_part for id in segment]
        places = [place for segment in of_part for place in range(len(segment))]
        for start in range(0, len(tokens) - width + 1, width):
            window = places[start : start + width]
            counted = [min(place, i) for i, place in enumerate(window)]  # a document that began before counts from 0
            expected.append((tokens[start : start + width], counted))
    windows = [found[i] for i in range(len(found))]
    assert [(one["input_ids"].tolist(), one["positions"].tolist()) for one in windows] == expected


def test_datatrove_merges_files_by_their_metadata(tmp_path: Path) -> None:
    from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger

    (tmp_path / "in").mkdir()
    items = written("datatrove", tmp_path / "in", "uint32", packed=False)
    merger = DocumentTokenizerMerger(
        input_folder=str(tmp_path / "in"), output_folder=str(tmp_path / "out"), save_filename="all", shuffle=False
    )
    merger.run(None, 0, 1)
    (data,) = (tmp_path / "out").glob("*.ds")
    assert np.fromfile(data, np.uint32).tolist() == [id for item in items for id in item["input_ids"]]


def test_datatrove_merges_the_loss_mask(tmp_path: Path) -> None:
    from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger

    (tmp_path / "in").mkdir()
    items = conversations("datatrove", tmp_path / "in", "uint16")
    folders = {"input_folder": str(tmp_path / "in"), "output_folder": str(tmp_path / "out")}
    DocumentTokenizerMerger(**folders, save_filename="all", shuffle=False, save_loss_metadata=True).run(None, 0, 1)
    (mask,) = (tmp_path / "out").glob("*.ds.loss")
    assert list(mask.read_bytes()) == [bit for item in items for bit in item["loss_mask"]]


@id_types
def test_olmo_core_packs_conversations_with_their_masks(ids: str, tmp_path: Path) -> None:
    from olmo_core.data import NumpyPackedFSLDataset

    items = conversations("olmo_sft", tmp_path, ids)
    length = 128
    dataset = NumpyPackedFSLDataset(
        *sorted(tmp_path.glob("token_ids_part_*.npy")),
        label_mask_paths=sorted(tmp_path.glob("labels_mask_part_*.npy")),
        sequence_length=length,
        pad_token_id=0,
        eos_token_id=END,
        vocab_size=200_001 if ids == "uint32" else 2**16,
        dtype=np.dtype(ids).type,
        generate_doc_lengths=True,
    )
    dataset.work_dir = tmp_path / "work"
    dataset.prepare()
    found = []
    for i in range(len(dataset)):
        row, at = dataset[i], 0
        for n in row["doc_lens"].tolist():
            one = [row[name][at : at + n].tolist() for name in ("input_ids", "label_mask")]
            found += [one] * (END in one[0])  # the last one of a row is what fills it up
            at += n
    assert sorted(found) == sorted([item["input_ids"], list(map(bool, item["loss_mask"]))] for item in items)


@id_types
@kinds
def test_olmo_core_finds_the_documents(ids: str, packed: bool, tmp_path: Path) -> None:
    from olmo_core.data.utils import iter_document_indices, load_array_slice

    items = written("olmo", tmp_path, ids, packed)
    type = np.dtype(ids).type
    for stem, part in (("part-00000", items[:25]), ("part-00001", items[25:])):
        path = tmp_path / f"{stem}.npy"
        spans = list(iter_document_indices(path, use_array_if_local=False, dtype=type))
        assert [load_array_slice(path, start, end, type).tolist() for start, end in spans] == segments(part)
        if not packed:
            assert spans == list(iter_document_indices(path, eos_token_id=END, dtype=type))


@id_types
@kinds
def test_streaming_reads_shards(ids: str, packed: bool, tmp_path: Path) -> None:
    from streaming import LocalDataset

    items = written("mds", tmp_path, ids, packed)
    found = LocalDataset(str(tmp_path))
    assert len(found) == len(items)
    names = ("tokens", "starts") if packed else ("id", "tokens", "n_bytes")
    rows = [{name: _plain(found[i][name]) for name in names} for i in range(len(found))]
    assert rows == [{name: item["input_ids" if name == "tokens" else name] for name in names} for item in items]


@id_types
@kinds
def test_shards_are_those_of_streamings_own_writer(ids: str, packed: bool, tmp_path: Path) -> None:
    from streaming import MDSWriter

    (tmp_path / "ours").mkdir()
    shape = shape_of(ids, packed)
    items = items_of(shape)
    format = SET_FORMATS["mds"]
    with format.write(tmp_path / "ours", "shard.00000", shape) as add:
        add(pa.RecordBatch.from_pylist(items, schema=schema_of(shape)))
    format.finish(tmp_path / "ours", ["shard.00000"], shape)
    type = {"uint16": "uint16", "uint32": "int32"}[ids]
    own = {"starts": "ndarray:int32"} if packed else {"id": "str", "n_bytes": "int"}
    with MDSWriter(
        columns={**own, "tokens": f"ndarray:{type}"}, out=str(tmp_path / "theirs"), hashes=[], size_limit=None
    ) as writer:
        for item in items:
            sample = {name: item[name] if name != "starts" else np.array(item[name], np.int32) for name in own}
            writer.write({**sample, "tokens": np.array(item["input_ids"], type)})
    for path in (tmp_path / "ours").iterdir():
        assert path.read_bytes() == (tmp_path / "theirs" / path.name).read_bytes()


@kinds
def test_nanogpt_maps_its_file(packed: bool, tmp_path: Path) -> None:
    items = written("nanogpt", tmp_path, "uint16", packed)
    found = np.memmap(tmp_path / "part-00000.bin", dtype=np.uint16, mode="r")  # as its train.py does
    assert found.tolist() == [id for item in items[:25] for id in item["input_ids"]]


@id_types
@kinds
def test_litdata_reads_blocks(ids: str, packed: bool, tmp_path: Path) -> None:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    items = written("litdata", tmp_path, ids, packed)
    expected = []
    for part in (items[:25], items[25:]):
        tokens = [id for item in part for id in item["input_ids"]]
        expected += [tokens[i : i + LENGTH] for i in range(0, len(tokens) - LENGTH + 1, LENGTH)]
    found = StreamingDataset(str(tmp_path), item_loader=TokensLoader(block_size=LENGTH), shuffle=False)
    assert [found[i].tolist() for i in range(len(found))] == expected
    loaded = [row for batch in StreamingDataLoader(found, batch_size=3, num_workers=0) for row in batch.long().tolist()]
    assert loaded == expected
    assert json.loads((tmp_path / "index.json").read_text())["config"]["item_loader"] == "TokensLoader"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
