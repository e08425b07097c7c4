"""Checks that the documents that a dataset left out agree with its manifest, and that none is in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.checks.findings import BUILD, FORCE, Finding, NotChecked, of_error
from tokenmill.checks.subject import Subject
from tokenmill.checks.table_checks import TABLES
from tokenmill.corpus.drop import BY, DropLine, DropList
from tokenmill.corpus.dropped import DROPPED_FILE, NONE_DROPPED, Dropped, read_dropped
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import ValidationError
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.manifest import MANIFEST_FILE

_COLUMNS = ["id", "shard", "row", "file", "sha256"]


def dropped_documents(subject: Subject) -> tuple[Dropped | None, list[Finding | NotChecked]]:
    """The content of dropped.parquet, or None and why it is not known."""
    tables = subject.tables
    if tables is None or not (tables / DROPPED_FILE).exists():
        if not subject.manifest.n_dropped or (subject.inputs is None and tables is None):
            return NONE_DROPPED, []
        where = DROPPED_FILE if tables is None else tables / DROPPED_FILE
        return None, [NotChecked(f"the dropped documents: {where} is not there; copy it beside the dataset")]
    try:
        return read_dropped(tables / DROPPED_FILE), []
    except ValidationError as error:
        return None, [of_error(f"../{tables.name}/{DROPPED_FILE}", error)]


def wrong_dropped(subject: Subject, dropped: Dropped | None, scratch: Path) -> Iterator[Finding]:
    """Checks the dropped documents against the manifest and the project's list, and that none is in the dataset.

    `dropped`: None if they are not known. `scratch`: where the tables were derived again.
    """
    if dropped is None or subject.tables is None:
        return
    place = f"../{subject.tables.name}/{DROPPED_FILE}"
    yield from _not_as_in_manifest(place, subject.manifest, dropped)
    filters = BY | subject.manifest.filters.keys()
    for by in sorted({*pc.unique(dropped.table["by"]).to_pylist()} - filters):
        yield Finding(place, None, f"has documents that {by!r} left out, which is no filter of {MANIFEST_FILE}.", FORCE)
    by_list = dropped.by(BY)
    lists = [(DROPPED_FILE, list_of_dropped(by_list))]
    if subject.inputs is not None and subject.inputs.drop is not None:
        lists.append((subject.inputs.drop_name, subject.inputs.drop))
        yield from _not_in_list(place, subject.inputs.drop_name, subject.inputs.drop, by_list)
    made, found = scratch / TABLES / DOCUMENTS_FILE, subject.tables / DOCUMENTS_FILE
    index = made if subject.inputs is not None and made.exists() else found
    if not index.exists() or not any(some.lines for _, some in lists):
        return
    try:
        yield from _still_there(index, lists)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        yield Finding(f"../{subject.tables.name}/{DOCUMENTS_FILE}", None, f"cannot be read: {error}.", FORCE)


def _not_as_in_manifest(place: str, manifest: Manifest, dropped: Dropped) -> Iterator[Finding]:
    """Says where dropped.parquet differs from the manifest: numbers by reason, and by part of an input file."""
    numbers = pc.value_counts(dropped.table["reason"])
    found = dict(zip(numbers.field("values").to_pylist(), numbers.field("counts").to_pylist(), strict=True))
    if found != manifest.n_dropped:
        what = f"holds {dict(sorted(found.items()))}; {MANIFEST_FILE} says {manifest.n_dropped}."
        yield Finding(place, None, what, FORCE)
    for rows in (rows for shard in manifest.shards for rows in shard.rows):
        if (end := rows.next_row) is None:
            continue
        n_found = len(np.unique(dropped.of(rows.name, rows.first_row, end)["row"].to_numpy()))
        if n_found != rows.n_dropped:
            where = f"{rows.name} in rows {rows.first_row:,} to {end - 1:,}"
            what = f"holds {n_found:,} documents of {where}; {MANIFEST_FILE} says {rows.n_dropped:,}."
            yield Finding(place, None, what, FORCE)


def list_of_dropped(dropped: Dropped) -> DropList:
    """Rebuilds the lines of the drop list from the documents that they left out."""
    return DropList(
        [
            DropLine(
                f"{document['shard']}, row {document['row']}",
                document["id"] if "id" in document["by"] else None,
                document["sha256"] if "digest" in document["by"] else None,
                document["reason"],
            )
            for document in dropped.table.to_pylist()
        ]
    )


def _not_in_list(place: str, name: str, drop: DropList, dropped: Dropped) -> Iterator[Finding]:
    """The documents that no line of the project's list names."""
    for shard in dropped.shards:
        rows, of_shard = dropped.rows_of(shard), dropped.of(shard).combine_chunks()
        ids = None if of_shard["id"].null_count else of_shard["id"].combine_chunks().cast(pa.large_string())
        named = dict(drop.match(ids, of_shard["sha256"].combine_chunks()))
        for i, row in enumerate(rows.tolist()):
            if i not in named:
                yield Finding(place, row, f"{shard}: row {row}: no line of {name} names this document.", BUILD)


def _still_there(index: Path, lists: Sequence[tuple[str, DropList]]) -> Iterator[Finding]:
    """The documents of a document index that a line of these lists, each with its name, leaves out."""
    with parquet_file(index) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=_COLUMNS).combine_chunks()
            ids, digests = table["id"].combine_chunks(), table["sha256"].combine_chunks()
            names = None if pa.types.is_integer(ids.type) else ids.cast(pa.large_string())
            for name, drop in lists:
                for i, line in drop.match(names, digests):
                    row = table["row"][i].as_py()
                    what = (
                        f"{table['shard'][i]}: row {row}: the document {ids[i].as_py()!r} is in the dataset; {name}, "
                        f"{line.place}, leaves it out ({line.reason})."
                    )
                    yield Finding(table["file"][i].as_py(), row, what, BUILD)
