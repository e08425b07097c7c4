"""Checks that the documents that a dataset left out agree with its manifest, and that none is in it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from tokenmill.corpus.drop import DropLine, DropList, DroppedDocument
from tokenmill.dataset.manifest import MANIFEST_FILE, Manifest
from tokenmill.errors import ValidationError
from tokenmill.storage.checked_parquet import parquet_file

_FORCE = "Run `tokenmill build --force`."
_COLUMNS = ["id", "shard", "row", "file", "sha256"]

Dropped: TypeAlias = Mapping[str, Sequence[DroppedDocument]]
"""The content of dropped.parquet, by shard."""


def wrong_dropped(manifest: Manifest, dropped: Dropped) -> Iterator[str]:
    """Says where dropped.parquet differs from the manifest: numbers by reason, and by part of an input file."""
    found = Counter(one.reason for some in dropped.values() for one in some)
    if found != manifest.n_dropped:
        yield f"holds {dict(sorted(found.items()))}; {MANIFEST_FILE} says {manifest.n_dropped}. {_FORCE}"
    for rows in (rows for shard in manifest.shards for rows in shard.rows):
        if (end := rows.next_row) is None:
            continue
        n_found = len({one.row for one in dropped.get(rows.name, ()) if rows.first_row <= one.row < end})
        if n_found != rows.n_dropped:
            yield (
                f"holds {n_found:,} documents of {rows.name} in rows {rows.first_row:,} to {end - 1:,}; {MANIFEST_FILE} says "
                f"{rows.n_dropped:,}. {_FORCE}"
            )


def list_of_dropped(dropped: Dropped) -> DropList:
    """Rebuilds the lines of the drop list from the documents that they left out."""
    return DropList(
        [
            DropLine(
                f"{shard}, row {one.row}",
                one.id if "id" in one.by else None,
                one.sha256 if "digest" in one.by else None,
                one.reason,
            )
            for shard, some in dropped.items()
            for one in some
        ]
    )


def not_in_list(name: str, drop: DropList, dropped: Dropped) -> Iterator[str]:
    """The documents that no line of the project's list names."""
    for shard, some in dropped.items():
        ids = None if any(one.id is None for one in some) else pa.array([one.id for one in some], pa.large_string())
        named = dict(drop.match(ids, pa.array([one.sha256 for one in some], pa.binary(32))))
        for i, one in enumerate(some):
            if i not in named:
                yield f"{shard}: row {one.row}: no line of {name} names this document. Run `tokenmill build`."


def still_there(index: Path, lists: Sequence[tuple[str, DropList]]) -> Iterator[tuple[str, str]]:
    """The documents of a document index that a line of these lists, each with its name, leaves out; each with the file of the
    dataset that it is in. Raises ValidationError if the index cannot be read."""
    try:
        with parquet_file(index) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=_COLUMNS).combine_chunks()
                ids, digests = table["id"].combine_chunks(), table["sha256"].combine_chunks()
                names = None if pa.types.is_integer(ids.type) else ids.cast(pa.large_string())
                for name, drop in lists:
                    for i, line in drop.match(names, digests):
                        yield (
                            table["file"][i].as_py(),
                            f"{table['shard'][i]}: row {table['row'][i]}: the document {ids[i].as_py()!r} is in the dataset; "
                            f"{name}, {line.place}, leaves it out ({line.reason}). Run `tokenmill build`.",
                        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ValidationError(index, f"cannot be read: {error}.", _FORCE) from None
