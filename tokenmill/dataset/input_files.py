"""Finds the documents of a dataset's files in the input files again, by the manifest."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.corpus.object_globs import stored_objects
from tokenmill.corpus.parquet_files import read_metadata
from tokenmill.corpus.shard_files import open_shard
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.units import Piece, Unit
from tokenmill.dataset.entries import InputRows
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import ValidationError
from tokenmill.storage.urls import StoredObject
from tokenmill_reader.urls import is_url

_BLOCK_BYTES = 1 << 20
_LINE_FEED = 10


def inputs_of(manifest: Manifest, root: Path) -> tuple[list[Shard], list[str]]:
    """The input files of a dataset below `root` or in object storage, and the names of missing ones. Raises StorageError and
    PassingError."""
    shards, missing = [], []
    sources = manifest.document_sources()
    stored = stored_objects([input_file.name for input_file in manifest.inputs if is_url(input_file.name)])
    for input_file in manifest.inputs:
        path = stored.get(input_file.name) if is_url(input_file.name) else root / input_file.name
        if isinstance(path, StoredObject):
            shards.append(Shard(path, input_file.name, path.n_bytes, sources.get(input_file.name)))
        elif path is not None and path.is_file():
            shards.append(Shard(path, input_file.name, path.stat().st_size, sources.get(input_file.name)))
        else:
            missing.append(input_file.name)
    return shards, missing


def parts_of(
    shard: Shard, rows: Sequence[InputRows], stopped: Callable[[], bool]
) -> tuple[str, list[ShardRange | None]]:
    """The sha256 of an input file, and the range of it that each of `rows` begins; None for all of it.

    `rows`: the manifest's entries for this shard, in order. The file is read once. Raises ValidationError if a range begins
    where the file's format has no beginning, and OSError.
    """
    digest = hashlib.sha256()
    first_lines = [row.first_line for row in rows]
    starts = [0]
    n_lines = n_bytes = 0
    is_cut = len(rows) > 1
    with open_shard(shard) as file:
        while (block := file.read(_BLOCK_BYTES)) and not stopped():
            digest.update(block)
            if is_cut and shard.kind.is_cut_at_lines:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
                for line in first_lines[len(starts) :]:  # line n begins behind the line feed number n - 1
                    if not n_lines < line - 1 <= n_lines + len(ends):
                        break
                    starts.append(n_bytes + int(ends[line - 2 - n_lines]) + 1)
                n_lines += len(ends)
            n_bytes += len(block)
    sha256 = digest.hexdigest()
    if not is_cut:
        return sha256, [None]
    if shard.kind.format == "parquet":
        return sha256, list(_row_groups(shard, rows))
    if len(starts) < len(rows):
        line = first_lines[len(starts)]
        raise ValidationError(
            shard.name,
            f"the manifest says that a part begins at line {line}; the file has fewer lines.",
            "Run `tokenmill build`.",
        )
    spans = pairwise([*starts, n_bytes])
    return sha256, [
        ShardRange(start, stop, stop - start, row.first_row, row.first_line)
        for (start, stop), row in zip(spans, rows, strict=True)
    ]


def _row_groups(shard: Shard, rows: Sequence[InputRows]) -> list[ShardRange]:
    try:
        metadata = read_metadata(shard)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(shard.name, f"cannot be read: {error}.", "Copy or make it again.") from None
    n_rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    groups = {int(row): i for i, row in reversed(list(enumerate(np.cumsum([0, *n_rows]))))}
    if odd := [row.first_row for row in rows if row.first_row not in groups]:
        raise ValidationError(
            shard.name,
            f"the manifest says that a part begins at row {odd[0]}; no row group does.",
            "Run `tokenmill build`.",
        )
    starts = [groups[row.first_row] for row in rows]
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    return [
        ShardRange(start, stop, sum(sizes[start:stop]), row.first_row, 1)
        for (start, stop), row in zip(pairwise([*starts, len(n_rows)]), rows, strict=True)
    ]


def units_of(
    manifest: Manifest, shards: Mapping[str, Shard], parts: Mapping[str, Mapping[tuple[int, int], ShardRange | None]]
) -> dict[str, Unit]:
    """The unit of each file of the dataset whose shards all exist, by the file's name. `parts`: gives the range of a shard that
    begins at a row and a line."""
    units = {}
    for entry in manifest.shards:
        if all(rows.name in parts for rows in entry.rows):
            pieces = tuple(
                Piece(shards[rows.name], parts[rows.name][rows.first_row, rows.first_line], "") for rows in entry.rows
            )
            units[entry.name] = Unit(entry.name, entry.name, pieces)
    return units
