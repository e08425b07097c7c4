"""A token dataset that a test makes by hand: ids as lists, written by the formats' own writers, with a manifest."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.dataset.entries import Files, FileSet, InputRows, OutputShard, ReadingEntry, SetPart, TableFile
from tokenmill.dataset.manifest import Manifest, write_manifest
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.index import INDEX_FORMAT, ITEMS
from tokenmill.formats.interface import Format
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import id_type, schema
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.items import Shape

Items = Sequence[Sequence[int]]
Parts = Sequence[Items]

MADE_BY_0_1 = Path(__file__).parents[1] / "dataset/made_by_0_1/data"
BATCH = 3  # items, so that a part has several record batches


def shape_of(id_max: int, length: int | None = None, has_labels: bool = False, end_id: int | None = None) -> Shape:
    return Shape(id_max, "7" * 64, None, end_id, True, length, has_labels)


def write_documents(folder: Path, parts: Parts, id_max: int) -> list[OutputShard]:
    """The documents' own Parquet files."""
    shards = []
    form = schema(id_type(id_max), True)
    for i, documents in enumerate(parts):
        path = folder / f"unit-{i}.parquet"
        digest = TokensDigest()
        with write_tokens(path, form) as add:
            for at in range(0, len(documents), BATCH):
                some = documents[at : at + BATCH]
                columns = [[f"{i}-{at + k}" for k in range(len(some))], some, [1] * len(some)]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, form, strict=True)]
                rows = pa.RecordBatch.from_arrays(arrays, schema=form)
                add(rows)
                digest.add(rows)
        file = described(folder, path)
        inputs = InputRows(name=f"{i}.jsonl", first_row=0, first_line=1, n_documents=len(documents), n_bad=0)
        shards.append(
            OutputShard(
                **file.model_dump(),
                unit="u",
                n_documents=len(documents),
                n_tokens=sum(map(len, documents)),
                text_bytes=0,
                rows=[inputs],
                tokens_sha256=digest.hex(),
            )
        )
    return shards


def described(folder: Path, path: Path) -> TableFile:
    content = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    return TableFile(name=name, n_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def write_set(
    folder: Path,
    format: str,
    parts: Parts,
    shape: Shape,
    split: str | None = None,
    epoch: int | None = None,
    source: str | None = None,
    starts: Sequence[Items] | None = None,
    labels: Sequence[Items] | None = None,
) -> FileSet:
    """One file set: a part for each list of items. `starts`, `labels`: of packed sequences, likewise."""
    below = [one for one in (split, source, None if epoch is None else f"epoch-{epoch}") if one]
    batches = []
    for i, items in enumerate(parts):
        columns: dict[str, Any] = {"input_ids": items}
        if shape.length is None:
            numbers = list(range(len(items)))
            columns |= {"id": list(map(str, numbers)), "n_bytes": numbers, "shard": ["s"] * len(items), "row": numbers}
        else:
            assert starts is not None
            columns |= {"starts": starts[i]}
            if labels is not None:
                ends = [[*some[1:], len(ids)] for some, ids in zip(starts[i], items, strict=True)]
                lengths = [[b - a for a, b in zip(*one, strict=True)] for one in zip(starts[i], ends, strict=True)]
                positions = [[k for n in some for k in range(n)] for some in lengths]
                columns |= {"labels": labels[i], "position_ids": positions, "seq_lengths": lengths}
        arrays = [pa.array(columns[field.name], field.type) for field in schema_of(shape)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema_of(shape)))
    return write_parts(folder, SET_FORMATS[format], batches, shape, below, split, epoch, source)


def write_index(
    folder: Path,
    sequences: Sequence[Sequence[Sequence[tuple[int, int, int, int]]]],
    shape: Shape,
    source: str | None = None,
) -> FileSet:
    """The index of packed sequences: files of sequences of pieces (part, row, start, n_tokens)."""
    batches = []
    for file in sequences:
        columns = [[[piece[k] for piece in pieces] for pieces in file] for k in range(4)]
        batches.append(
            pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, ITEMS, strict=True)], schema=ITEMS)
        )
    return write_parts(folder, INDEX_FORMAT, batches, shape, [source] if source else [], None, None, source)


def write_parts(
    folder: Path,
    format: Format,
    batches: Sequence[pa.RecordBatch],
    shape: Shape,
    below: Sequence[str],
    split: str | None,
    epoch: int | None,
    source: str | None = None,
) -> FileSet:
    directory = folder.joinpath(format.name, *([] if format.one_file else below))
    directory.mkdir(parents=True, exist_ok=True)
    if format.one_file:
        whole = pa.Table.from_batches(batches).combine_chunks()
        batches = whole.to_batches() or [pa.RecordBatch.from_pylist([], schema=batches[0].schema)]
    parts = []
    for i, batch in enumerate(batches):
        stem = f"part-{i:05}" if not format.one_file else (split or "train")
        with format.write(directory, stem, shape) as add:
            for at in range(0, batch.num_rows, BATCH):
                add(batch.slice(at, BATCH))
        files = [described(folder, directory / name) for name in format.files(stem, shape)]
        ids = batch["input_ids"] if "input_ids" in batch.schema.names else batch["n_tokens"]
        n_tokens = len(ids.flatten()) if "input_ids" in batch.schema.names else sum(ids.flatten().to_pylist())
        parts.append(SetPart(files=files, n_items=batch.num_rows, n_tokens=n_tokens))
    return FileSet(format=format.name, split=split, source=source, epoch=epoch, parts=parts, shared=[])


def write_dataset(
    folder: Path,
    shards: Sequence[OutputShard],
    sets: Sequence[FileSet],
    id_max: int,
    splits: dict[str, float] | None = None,
    shuffle: Shuffle | None = None,
    pack: Pack | None = None,
    pad_id: int | None = None,
    end_id: int | None = None,
    epochs: dict[str, str] | None = None,
) -> None:
    files = Files(
        file_bytes=1 << 30,
        splits=splits or {},
        split_group=None,
        shuffle=shuffle,
        pack=pack,
        pad_id=pad_id,
        epochs=epochs or {},
    )
    manifest = Manifest(
        engine="by hand",
        tokenizer_digest="7" * 64,
        params_digest="8" * 64,
        id_type=str(id_type(id_max)),
        id_max=id_max,
        end_of_document_id=end_id,
        special_tokens_in_text="as_text",
        n_documents=sum(one.n_documents for one in shards),
        n_tokens=sum(one.n_tokens for one in shards),
        text_bytes=0,
        n_bad=0,
        quarantine_sha256="9" * 64,
        source=ReadingEntry(text_column="text", id_column="id", text_separator=None),
        inputs=[],
        shards=list(shards),
        files=files if sets else None,
        sets=list(sets),
    )
    write_manifest(manifest, folder)


def documents_dataset(folder: Path, parts: Parts, formats: Sequence[str], id_max: int = 60_000) -> Path:
    """A dataset of documents, as Parquet and in these formats, in the order of `parts`."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = write_documents(folder, parts, id_max)
    sets = [write_set(folder, name, parts, shape_of(id_max)) for name in formats]
    write_dataset(folder, shards, sets, id_max)
    return folder
