"""Checks that the documents that a dataset left out agree with its manifest, and that none is in it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from tokenmill.checks.findings import BUILD, FORCE, Finding, NotChecked, of_error
from tokenmill.checks.subject import Subject
from tokenmill.checks.table_checks import TABLES
from tokenmill.corpus.drop import BY, DropLine, DropList
from tokenmill.corpus.dropped import DROPPED_FILE, read_dropped
from tokenmill.corpus.filter import DroppedDocument
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import ValidationError
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.manifest import MANIFEST_FILE

_COLUMNS = ["id", "shard", "row", "file", "sha256"]

Dropped: TypeAlias = Mapping[str, Sequence[DroppedDocument]]
"""The content of dropped.parquet, by shard."""


def dropped_documents(subject: Subject) -> tuple[Dropped | None, list[Finding | NotChecked]]:
    """The content of dropped.parquet, or None and why it is not known."""
    tables = subject.tables
    if tables is None or not (tables / DROPPED_FILE).exists():
        if not subject.manifest.n_dropped or (subject.inputs is None and tables is None):
            return {}, []
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
    for by in sorted({document.by for of_shard in dropped.values() for document in of_shard} - filters):
        yield Finding(place, None, f"has documents that {by!r} left out, which is no filter of {MANIFEST_FILE}.", FORCE)
    by_list = listed(dropped)
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
    found = Counter(document.reason for of_shard in dropped.values() for document in of_shard)
    if found != manifest.n_dropped:
        what = f"holds {dict(sorted(found.items()))}; {MANIFEST_FILE} says {manifest.n_dropped}."
        yield Finding(place, None, what, FORCE)
    for rows in (rows for shard in manifest.shards for rows in shard.rows):
        if (end := rows.next_row) is None:
            continue
        n_found = len({document.row for document in dropped.get(rows.name, ()) if rows.first_row <= document.row < end})
        if n_found != rows.n_dropped:
            where = f"{rows.name} in rows {rows.first_row:,} to {end - 1:,}"
            what = f"holds {n_found:,} documents of {where}; {MANIFEST_FILE} says {rows.n_dropped:,}."
            yield Finding(place, None, what, FORCE)


def listed(dropped: Dropped) -> Dropped:
    """The documents that lines of a drop list left out, without those that other filters did."""
    by_list = {shard: [one for one in some if one.by in BY] for shard, some in dropped.items()}
    return {shard: some for shard, some in by_list.items() if some}


def list_of_dropped(dropped: Dropped) -> DropList:
    """Rebuilds the lines of the drop list from the documents that they left out."""
    return DropList(
        [
            DropLine(
                f"{shard}, row {document.row}",
                document.id if "id" in document.by else None,
                document.sha256 if "digest" in document.by else None,
                document.reason,
            )
            for shard, of_shard in dropped.items()
            for document in of_shard
        ]
    )


def _not_in_list(place: str, name: str, drop: DropList, dropped: Dropped) -> Iterator[Finding]:
    """The documents that no line of the project's list names."""
    for shard, of_shard in dropped.items():
        ids = (
            None
            if any(document.id is None for document in of_shard)
            else pa.array([document.id for document in of_shard], pa.large_string())
        )
        named = dict(drop.match(ids, pa.array([document.sha256 for document in of_shard], pa.binary(32))))
        for i, document in enumerate(of_shard):
            if i not in named:
                what = f"{shard}: row {document.row}: no line of {name} names this document."
                yield Finding(place, document.row, what, BUILD)


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
