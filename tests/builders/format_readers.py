"""A reader for each file format of token datasets, from the layouts that their tools define, without code of the library."""

import csv
import gzip
import io
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Item = dict[str, Any]


def parquet(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    rows: list[Item] = pq.read_table(folder / f"{stem}.parquet").to_pylist()
    return rows


def arrow(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    with pa.memory_map(str(folder / f"{stem}.arrow")) as source:
        rows: list[Item] = pa.ipc.open_stream(source).read_all().to_pylist()
    return rows


def trl_dpo(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    return arrow(folder, stem, ids, packed)


def megatron(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    index = (folder / f"{stem}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, n, n_documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, code) == (1, {"u2": 8, "u4": 4}[ids])
    lengths = np.frombuffer(index, "<i4", n, 34).tolist()
    places = np.frombuffer(index, "<i8", n, 34 + 4 * n).tolist()
    documents = np.frombuffer(index, "<i8", n_documents, 34 + 12 * n).tolist()
    assert documents == list(range(n + 1))
    assert len(index) == 34 + 20 * n + 8
    data = (folder / f"{stem}.bin").read_bytes()
    type = {"u2": "<u2", "u4": "<i4"}[ids]
    items = [np.frombuffer(data, type, length, place) for length, place in zip(lengths, places, strict=True)]
    assert sum(item.nbytes for item in items) == len(data)
    return _with_starts(folder, stem, packed, items)


def datatrove(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    data = np.fromfile(folder / f"{stem}.ds", f"<{ids}")
    ends = [0, *np.fromfile(folder / f"{stem}.ds.index", "<u8").tolist()]
    name, n_tokens, people = (folder / f"{stem}.ds.metadata").read_text().split("\n")
    tokenizer, id_bytes = name.split("|")
    assert (int(id_bytes), int(n_tokens)) == (data.itemsize, data.size)
    assert tokenizer
    assert people.endswith("T")
    segments = [data[start:end] for start, end in pairwise(ends)]
    assert sum(len(segment) for segment in segments) == data.size
    items, at = [{"input_ids": segment.tolist()} for segment in segments], 0
    if packed:
        items = []
        for row in sidecar(folder, stem):
            n = len(row["starts"])
            items.append(_joined(segments[at : at + n]))
            assert items[-1]["starts"] == row["starts"]
            at += n
        assert at == len(segments)
    if (folder / f"{stem}.ds.loss").exists():  # as TokenizedFile.copy reads it: a byte for each token
        masks = iter((folder / f"{stem}.ds.loss").read_bytes())
        items = [item | {"loss_mask": [next(masks) for _ in item["input_ids"]]} for item in items]
        assert next(masks, None) is None
    return items


def olmo(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    data = np.fromfile(folder / f"{stem}.npy", f"<{ids}")
    with gzip.open(folder / f"{stem}.csv.gz", "rb") as file:
        text = file.read().decode()
    # As in OLMo-core: each line is cut at commas, and the first two parts are taken.
    spans = [tuple(map(int, line.split(",")[:2])) for line in io.StringIO(text)]
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [(int(row[0]), int(row[1])) for row in rows] == spans
    assert all(len(row) == 5 for row in rows)
    assert len(text.splitlines()) == len(rows), "other readers break lines at more characters"
    assert [0, *(end for _, end in spans)] == [*(start for start, _ in spans), data.size]
    segments = [data[start:end] for start, end in spans]
    if not packed:
        return [
            {"input_ids": segment.tolist(), "id": _plain(row[2]), "shard": _plain(row[3]), "row": int(row[4]) - 1}
            for segment, row in zip(segments, rows, strict=True)
        ]
    sequences: dict[int, list[Any]] = {}
    for segment, row in zip(segments, rows, strict=True):
        of_one = sequences.setdefault(int(row[2]), [])
        of_one.append(segment)
        assert int(row[4]) == len(of_one)
    assert list(sequences) == list(range(len(sequences)))
    return [_joined(of_one) for of_one in sequences.values()]


def olmo_sft(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    """As NumpyPackedFSLDataset of OLMo-core, which scans local files for the id that ends conversations."""
    assert not packed
    data = np.fromfile(folder / f"token_ids_{stem}.npy", f"<{ids}")
    mask = np.fromfile(folder / f"labels_mask_{stem}.npy", np.bool_)
    assert mask.size == data.size
    ends = (np.flatnonzero(data == data[-1]) + 1).tolist() if data.size else []
    items = olmo(folder, f"token_ids_{stem}", ids, packed)
    spans = list(pairwise([0, *ends]))
    assert [item["input_ids"] for item in items] == [data[start:end].tolist() for start, end in spans]
    return [
        item | {"loss_mask": mask[start:end].astype(int).tolist()}
        for item, (start, end) in zip(items, spans, strict=True)
    ]


def nanogpt(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    assert ids == "u2"
    return _of_lengths(folder, stem, np.fromfile(folder / f"{stem}.bin", np.uint16).tolist(), packed)


def llmc(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    """As DataLoader in llmc/dataloader.h of llm.c and _load_data_shard of modded-nanogpt."""
    assert ids == "u2"
    path = folder / f"{stem}.bin"
    header = np.fromfile(path, np.int32, 256).tolist()
    assert header[:2] == [20240520, 1]
    assert not any(header[3:])
    assert path.stat().st_size == 256 * 4 + header[2] * 2
    return _of_lengths(folder, stem, np.fromfile(path, np.uint16, header[2], offset=256 * 4).tolist(), packed)


def litdata(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    data = (folder / f"{stem}.bin").read_bytes()
    (n,) = struct.unpack_from("<I", data)
    offsets = np.frombuffer(data, "<u4", n + 1, 4).tolist()
    assert offsets[0] == 4 * (n + 2)
    assert offsets[-1] == len(data)
    index = json.loads((folder / "index.json").read_bytes())
    (chunk,) = [one for one in index["chunks"] if one["filename"] == f"{stem}.bin"]
    items = [np.frombuffer(data[start:end], f"<{ids}") for start, end in pairwise(offsets)]
    n_ids = sum(item.size for item in items)
    assert (chunk["chunk_bytes"], chunk["chunk_size"], chunk["dim"]) == (len(data), n, n_ids)
    assert index["config"]["data_format"] == [f"no_header_tensor:{ {'u2': 20, 'u4': 16}[ids] }"]
    return _with_starts(folder, stem, packed, items)


def mds(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    data = (folder / f"{stem}.mds").read_bytes()
    index = json.loads((folder / "index.json").read_bytes())
    (shard,) = [one for one in index["shards"] if one["raw_data"]["basename"] == f"{stem}.mds"]
    (n,) = struct.unpack_from("<I", data)
    offsets = np.frombuffer(data, "<u4", n + 1, 4).tolist()
    config = json.loads(data[4 * (n + 2) : offsets[0]])
    assert config == {key: value for key, value in shard.items() if key not in ("raw_data", "samples", "zip_data")}
    assert (shard["samples"], shard["raw_data"]["bytes"], shard["zip_data"]) == (n, len(data), None)
    assert offsets[-1] == len(data)
    names, encodings = config["column_names"], config["column_encodings"]
    assert names == sorted(names)
    items = []
    for start, end in pairwise(offsets):
        item: Item = {}
        n_sizes = config["column_sizes"].count(None)
        sizes = iter(struct.unpack_from(f"<{n_sizes}I", data, start))
        at = start + 4 * n_sizes
        for name, encoding, size in zip(names, encodings, config["column_sizes"], strict=True):
            size = next(sizes) if size is None else size
            item[name] = _mds_value(data[at : at + size], encoding)
            at += size
        assert at == end
        item["input_ids"] = item.pop("tokens")
        items.append(item)
    return items


def megatron_sft(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    """As PackedSFTIndexedDataset of Megatron-Bridge, over an index of int32."""
    assert packed
    items = []
    for words in (np.array(item["input_ids"], np.int32) for item in megatron(folder, f"{stem}.sft", "u4", False)):
        magic, version, n_starts = words[:3].tolist()
        assert (magic.to_bytes(4, "big"), version) == (b"SFTB", 1)
        assert 0 < n_starts < words.size - 3
        tokens = words[3 + n_starts :].view(np.uint32)
        items.append(
            {
                "input_ids": (tokens & 0x7FFFFFFF).tolist(),
                "starts": words[3 : 3 + n_starts].tolist(),
                "shifted": (tokens >> 31).tolist(),
            }
        )
    return items


def megatron_sft_parquet(folder: Path, stem: str, ids: str, packed: bool) -> list[Item]:
    """As GPTSFTPackedParquetDataset of Megatron-Bridge: a row group for each row that is read."""
    assert packed
    file = pq.ParquetFile(folder / f"{stem}.idx.parquet")
    kinds = {field.name: (field.type.value_type, pa.types.is_list(field.type)) for field in file.schema_arrow}
    assert kinds == {
        "input_ids": (pa.int32(), True),
        "loss_mask": (pa.int8(), True),
        "seq_start_id": (pa.int32(), True),
    }
    n_rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert all(n == 500 for n in n_rows[:-1])
    items = []
    for group in range(file.num_row_groups):
        for row in file.read_row_group(group).to_pylist():
            items.append(
                {"input_ids": row["input_ids"], "starts": row["seq_start_id"], "shifted": row["loss_mask"]},
            )
    return items


def sidecar(folder: Path, stem: str) -> list[Item]:
    """The rows of the file beside a part."""
    with pa.memory_map(str(folder / f"{stem}.starts.arrow")) as source:
        rows: list[Item] = pa.ipc.open_stream(source).read_all().to_pylist()
    return rows


def _mds_value(data: bytes, encoding: str) -> Any:
    if encoding == "str":
        return data.decode()
    if encoding == "int":
        return int(np.frombuffer(data, np.int64)[0])
    kind, type = encoding.split(":")
    assert kind == "ndarray"
    assert data[0] >> 2 == 1
    shape_type = np.dtype(["<u1", "<u2", "<u4"][data[0] & 3])
    length = int(np.frombuffer(data, shape_type, 1, 1)[0])
    values = np.frombuffer(data, type, offset=1 + shape_type.itemsize)
    assert length == values.size > 0
    return values.tolist()


def _of_lengths(folder: Path, stem: str, data: list[int], packed: bool) -> list[Item]:
    items, at = [], 0
    for row in sidecar(folder, stem):
        items.append({"input_ids": data[at : at + row["n_tokens"]], **({"starts": row["starts"]} if packed else {})})
        at += row["n_tokens"]
    assert at == len(data)
    return items


def _with_starts(folder: Path, stem: str, packed: bool, items: list[Any]) -> list[Item]:
    rows = sidecar(folder, stem) if packed else [{} for _ in items]
    return [{"input_ids": item.tolist(), **row} for item, row in zip(items, rows, strict=True)]


def _joined(segments: list[Any]) -> Item:
    starts = [sum(len(segment) for segment in segments[:i]) for i in range(len(segments))]
    return {"input_ids": [id for segment in segments for id in segment.tolist()], "starts": starts}


def _plain(name: str) -> str:
    """A name of olmo's lines without its escapes."""
    return name.encode("latin-1", "backslashreplace").decode("unicode_escape")


READERS = {
    reader.__name__: reader
    for reader in (
        parquet,
        arrow,
        megatron,
        datatrove,
        olmo,
        mds,
        nanogpt,
        llmc,
        litdata,
        olmo_sft,
        megatron_sft,
        megatron_sft_parquet,
        trl_dpo,
    )
}
