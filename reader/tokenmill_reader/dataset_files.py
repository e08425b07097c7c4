"""Finds the files of a dataset that a reader asks for: those of one split in one format, as the manifest names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Optional, Union

from tokenmill_reader.errors import ParamsError, ValidationError, did_you_mean, has_pyarrow, need_pyarrow
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.formats.table import INDEX_NAME, PARQUET_SUFFIX, READ_FORMATS
from tokenmill_reader.manifest import DatasetFile, FileSet, Manifest, read_manifest, refuse_wrong_names
from tokenmill_reader.open_parts import FlatParts, Parts, Place, SourceIds

_ADVICE = "Copy it again, or run `tokenmill verify` to see what else differs and `tokenmill build` to make it again."


class DatasetFiles(NamedTuple):
    """The files of one split in one format. `split`: None if there are none. `source`: None for all. `epoch`: 0 unless files
    were shuffled for several. `shape`, `source_ids` belong to the items in `parts`. `index_files`: those that say which
    documents make each packed sequence, each with the number of the part that it calls 0. `digest`: the sha256, in hex, of
    all that decides the items and their order, but for split, source and epoch."""

    manifest: Manifest
    split: Optional[str]
    source: Optional[str]
    format: str
    epoch: int
    shape: Shape
    parts: Parts
    index_files: Sequence[tuple[Place, int]]
    source_ids: SourceIds
    tokens_digest: str
    digest: str


def find_files(
    folder: Path, split: str | None, source: str | None, format: str | None, epoch: int, are_here: bool = True
) -> DatasetFiles:
    """The files of a dataset that were asked for. `are_here`: all of them must be in the folder; otherwise only the manifest.

    Raises ValidationError if a file is not as the manifest says, and ParamsError if there are no such files.
    """
    manifest = read_manifest(folder)
    refuse_wrong_names(manifest, folder)
    splits = list(manifest.files.splits) if manifest.files else []
    if split is None and splits:
        raise ParamsError(
            folder,
            f"has the splits {', '.join(map(repr, splits))}; found no split.",
            f"Name one, as in tokenmill.open({str(folder)!r}, {splits[0]!r}).",
        )
    _expect_one_of(folder, "split", split, splits)
    sets = [file_set for file_set in manifest.sets if file_set.split == split]
    sources = list(dict.fromkeys(file_set.source for file_set in sets if file_set.source is not None))
    if source is not None and not sources and manifest.sources:
        raise ParamsError(
            f"{folder}: source", f"expected none, since the files have all sources together; found {source!r}."
        )
    _expect_one_of(folder, "source", source, sources, has_default=True)
    sets = [file_set for file_set in sets if source in (None, file_set.source)]
    formats = [name for name in READ_FORMATS if name in formats_of(manifest, sets)]
    if not formats:
        raise ParamsError(
            folder,
            f"expected files in one of the formats {', '.join(READ_FORMATS)}; found "
            f"{', '.join(formats_of(manifest, sets))}.",
            "Add one to encode.formats and build, or read these with their own tool.",
        )
    _expect_one_of(folder, "format", format, formats, has_default=True)
    format = format or _first_choice(formats, _shape(manifest))
    of_format, of_index = ([file_set for file_set in sets if file_set.format == name] for name in (format, INDEX_NAME))
    _expect_one_of(
        folder, "epoch", epoch, list(dict.fromkeys(file_set.epoch or 0 for file_set in of_index or of_format)) or [0]
    )
    places: list[Place] = []
    only: list[str | None] = []  # the only source of each place
    index: list[tuple[Place, int]] = []
    for file_set in of_format:
        if of_index:  # documents in the order of the dataset, for all epochs
            indexes = [i for i in of_index if i.source == file_set.source and (i.epoch or 0) == epoch]
            index += [(place, len(places)) for i in indexes for place in _places(folder, i, PARQUET_SUFFIX, are_here)]
        elif (file_set.epoch or 0) != epoch:
            continue
        places += _places(folder, file_set, READ_FORMATS[format].suffix, are_here)
        only += [file_set.source] * len(file_set.parts)
    if not of_format:
        places = _places_of_documents(folder, manifest, are_here)
        source_of = {input_file.name: input_file.source for input_file in manifest.inputs}
        only = [source_of.get(shard.rows[0].name) if shard.rows else None for shard in manifest.shards]
    shape = _shape(manifest)
    if not READ_FORMATS[format].holds_mask:
        shape = replace(shape, has_mask=False)
    is_flat = of_format and READ_FORMATS[format].flat is not None
    parts = FlatParts(format, places, shape) if is_flat else _parquet_parts(folder, places, manifest.has_mask)
    source_ids = SourceIds(places, only, [file_set.name for file_set in manifest.sources], format, shape.has_sources)
    tokens = manifest.tokens_digest()
    digest = _digest(manifest, tokens)
    return DatasetFiles(manifest, split, source, format, epoch, shape, parts, index, source_ids, tokens, digest)


def formats_of(manifest: Manifest, sets: Iterable[FileSet]) -> list[str]:
    """The formats that there are. The documents' own files are the format parquet, unless the file sets arrange them."""
    own = [] if manifest.files is not None and manifest.files.is_arranged else ["parquet"]
    return list(dict.fromkeys([*(file_set.format for file_set in sets if file_set.format != INDEX_NAME), *own]))


def _expect_one_of(
    folder: Path, name: str, value: Union[str, int, None], allowed: Sequence[Union[str, int]], has_default: bool = False
) -> None:
    if value in allowed or (value is None and (has_default or not allowed)):
        return
    expected = f"one of {', '.join(map(repr, allowed))}" if allowed else "none, since the dataset has none"
    near = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
    raise ParamsError(f"{folder}: {name}", f"expected {expected}; found {value!r}.{near}")


def _first_choice(formats: Sequence[str], shape: Shape) -> str:
    """The first of these formats, or without pyarrow the first that does not need it, if there is one."""
    without = [
        name
        for name in formats
        if not (READ_FORMATS[name].needs_pyarrow if shape.length is None else READ_FORMATS[name].packed_needs_pyarrow)
    ]
    return formats[0] if has_pyarrow() or not without else without[0]


def _parquet_parts(folder: Path, places: Sequence[Place], has_mask: bool) -> Parts:
    need_pyarrow(folder)
    from tokenmill_reader.parquet_parts import ParquetParts

    return ParquetParts(places, has_mask)


def _places(folder: Path, file_set: FileSet, suffix: str, are_here: bool) -> list[Place]:
    """The parts of a file set, after all its files were found if they are here."""
    if are_here:
        _check_sizes(folder, file_set.files)
    places = []
    for part in file_set.parts:
        path = next((folder / file.name for file in part.files if file.name.endswith(suffix)), None)
        if path is None:
            raise ValidationError(
                f"{folder}: manifest.json", f"a part of the set {file_set.format} names no file *{suffix}.", _ADVICE
            )
        places.append(Place(path.parent, path.name[: -len(suffix)], part.n_items, part.n_tokens, part.files))
    return places


def _places_of_documents(folder: Path, manifest: Manifest, are_here: bool) -> list[Place]:
    """The documents' own files."""
    files = [DatasetFile(shard.name, shard.n_bytes, shard.sha256) for shard in manifest.shards]
    if are_here:
        _check_sizes(folder, files)
    paths = [folder / file.name for file in files]
    return [
        Place(path.parent, path.name[: -len(PARQUET_SUFFIX)], shard.n_documents, shard.n_tokens, [file])
        for path, shard, file in zip(paths, manifest.shards, files)
    ]


def _check_sizes(folder: Path, files: Iterable[DatasetFile]) -> None:
    for name, n_bytes, _ in files:
        try:
            n_bytes_there = (folder / name).stat().st_size
        except FileNotFoundError:
            raise ValidationError(folder / name, "missing, though the manifest names it.", _ADVICE) from None
        if n_bytes_there != n_bytes:
            raise ValidationError(
                folder / name, f"expected {n_bytes:,} bytes, as the manifest says; found {n_bytes_there:,}.", _ADVICE
            )


def _shape(manifest: Manifest) -> Shape:
    """The shape of the items of its file sets."""
    documents = Shape(
        manifest.id_max,
        manifest.tokenizer_digest,
        manifest.begin_of_document_id,
        manifest.end_of_document_id,
        manifest.has_ids,
        has_mask=manifest.has_mask,
        is_pair=manifest.chat is not None and manifest.chat.turns == "pair",
        has_sources=manifest.files is not None and manifest.files.source_ids,
    )
    pack = manifest.files.pack if manifest.files else None
    if pack is None or pack.output == "index":
        return documents
    return documents.packed(pack.length, pack.labels)


def _digest(manifest: Manifest, tokens_digest: str) -> str:
    """See DatasetFiles. Further formats and the numbers of parts do not change it."""
    files = manifest.files
    if files is None or not files.is_arranged:
        return tokens_digest
    decides = {
        **files._asdict(),
        "shuffle": None if files.shuffle is None else files.shuffle._asdict(),
        "pack": None if files.pack is None else files.pack._asdict(),
    }
    del decides["min_parts"], decides["source_ids"]  # files are cut after documents are packed
    if files.pack is None:
        del decides["file_bytes"], decides["pad_id"]
    return hashlib.sha256(json.dumps([tokens_digest, decides], sort_keys=True).encode()).hexdigest()
