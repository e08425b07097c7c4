"""Checks that the documents that a dataset left out agree with its manifest, and that none is in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.checks.findings import BUILD, FORCE, Finding, NotChecked, of_error
from tokenmill.checks.subject import Subject
from tokenmill.checks.table_checks import TABLES
from tokenmill.corpus.dropped import DROPPED_FILE, Dropped, none_dropped, read_dropped
from tokenmill.corpus.filter import LISTED_BY, DocumentList
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import ValidationError
from tokenmill.filters import recorded_lists
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.manifest import MANIFEST_FILE

_COLUMNS = ["id", "shard", "row", "file", "sha256"]


def dropped_documents(subject: Subject) -> tuple[Dropped | None, list[Finding | NotChecked]]:
    """The content of dropped.parquet, or None and why it is not known."""
    tables = subject.tables
    if tables is None or not (tables / DROPPED_FILE).exists():
        if not subject.manifest.n_dropped or (subject.inputs is None and tables is None):
            return none_dropped(), []
        where = DROPPED_FILE if tables is None else tables / DROPPED_FILE
        return None, [NotChecked(f"the dropped documents: {where} is not there; copy it beside the dataset")]
    try:
        return read_dropped(tables / DROPPED_FILE), []
    except ValidationError as error:
        return None, [of_error(f"../{tables.name}/{DROPPED_FILE}", error)]


def wrong_dropped(subject: Subject, dropped: Dropped | None, scratch: Path) -> Iterator[Finding]:
    """Checks the dropped documents against the manifest and the project's lists, and that none is in the dataset.

    `dropped`: None if they are not known. `scratch`: where the tables were derived again.
    """
    if dropped is None or subject.tables is None:
        return
    place = f"../{subject.tables.name}/{DROPPED_FILE}"
    yield from _not_as_in_manifest(place, subject.manifest, dropped)
    filters = LISTED_BY | subject.manifest.filters.keys()
    for by in sorted({*pc.unique(dropped.table["by"]).to_pylist()} - filters):
        yield Finding(place, None, f"has documents that {by!r} left out, which is no filter of {MANIFEST_FILE}.", FORCE)
    lists = recorded_lists(dropped)
    if subject.inputs is not None and subject.inputs.lists:
        lists += subject.inputs.lists
        yield from _in_no_list(place, subject.inputs.lists, dropped.by(LISTED_BY))
    made, found = scratch / TABLES / DOCUMENTS_FILE, subject.tables / DOCUMENTS_FILE
    index = made if subject.inputs is not None and made.exists() else found
    if not index.exists() or not any(map(len, lists)):
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


def _in_no_list(place: str, lists: Sequence[DocumentList], dropped: Dropped) -> Iterator[Finding]:
    """The documents that no line of the project's lists names."""
    names = " or ".join(one.place for one in lists)
    for shard in dropped.shards:
        rows, of_shard = dropped.rows_of(shard), dropped.of(shard).combine_chunks()
        ids = None if of_shard["id"].null_count else of_shard["id"].combine_chunks().cast(pa.large_string())
        named = {i for one in lists for i, _ in one.matching(ids, of_shard["sha256"].combine_chunks())}
        for i, row in enumerate(rows.tolist()):
            if i not in named:
                yield Finding(place, row, f"{shard}: row {row}: no line of {names} names this document.", BUILD)


def _still_there(index: Path, lists: Sequence[DocumentList]) -> Iterator[Finding]:
    """The documents of a document index that a line of these lists leaves out."""
    with parquet_file(index) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=_COLUMNS).combine_chunks()
            ids, digests = table["id"].combine_chunks(), table["sha256"].combine_chunks()
            names = None if pa.types.is_integer(ids.type) else ids.cast(pa.large_string())
            for whole in lists:
                for i, line in whole.matching(names, digests):
                    row = table["row"][i].as_py()
                    what = (
                        f"{table['shard'][i]}: row {row}: the document {ids[i].as_py()!r} is in the dataset; "
                        f"{whole.place}, {line}."
                    )
                    yield Finding(table["file"][i].as_py(), row, what, BUILD)
