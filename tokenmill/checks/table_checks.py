"""Checks the tables of a dataset: they are those that its manifest names, and say what its tokens say."""

from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.checks.findings import FORCE, Finding, NotChecked, in_manifest
from tokenmill.checks.manifest_checks import wrong_file, wrong_files
from tokenmill.checks.subject import RightFile, Subject, table_inputs
from tokenmill.corpus.dropped import DROPPED_FILE, write_dropped
from tokenmill.dataset.document_index import n_repeated_tokens, read_index
from tokenmill.dataset.tables import UNIT_INDEX_FILE, write_tables
from tokenmill.errors import ValidationError
from tokenmill_reader.copy_check import files_below
from tokenmill_reader.regular_files import sha256_file

TABLES = "tables"
"""The folder in `scratch` with the tables that are derived again."""


def wrong_tables(subject: Subject, files: Sequence[RightFile], scratch: Path) -> Iterator[Finding | NotChecked]:
    """Checks that the tables are those that the manifest names, and that they follow from the files. `files`: those that are right;
    unless these are all, the content cannot be compared."""
    manifest, tables = subject.manifest, subject.tables
    if tables is None or (manifest.format_version < 4 and not manifest.tables):
        return
    if not tables.is_dir():
        yield NotChecked(f"the tables: {tables} is not there; copy it beside the dataset")
        return
    place = f"../{tables.name}/"
    yield from wrong_files((table.name for table in manifest.tables), files_below(tables), place)
    for table in manifest.tables:
        if what := wrong_file(tables / table.name, table.n_bytes, table.sha256, subject.digests):
            yield Finding(f"{place}{table.name}", None, f"{what}.", FORCE)
    if len(files) < len(manifest.shards):
        return  # what is missing is named already
    derived = scratch / TABLES
    derived.mkdir()
    inputs = table_inputs(manifest, files)
    write_tables(inputs, manifest.has_ids, subject.tokenizer, derived, manifest.files.splits if manifest.files else {})
    if subject.inputs is not None:
        write_dropped(derived / DROPPED_FILE, ((file.entry.pieces, file.folder) for file in files))
    for name in sorted(set(files_below(derived)) - {table.name for table in manifest.tables}):
        yield in_manifest(f"tables: {name} is not among them, which every dataset has.")
    if subject.inputs is not None and manifest.chat is not None and manifest.chat.n_repeated is not None:
        n_repeated = sum(n_repeated_tokens(file.folder / UNIT_INDEX_FILE) for file in files)
        if n_repeated != manifest.chat.n_repeated:
            yield in_manifest(
                f"chat: n_repeated is {manifest.chat.n_repeated}, but its files have {n_repeated} together."
            )
    for name, what in differing_tables(derived, tables, _unknown_columns(subject)):
        yield Finding(f"{place}{name}", None, what, FORCE)


def _unknown_columns(subject: Subject) -> Set[str]:
    """The columns that cannot be derived again without the documents."""
    if subject.inputs is not None:
        return frozenset()
    manifest = subject.manifest
    has_left_out = any(rows.n_dropped or rows.n_bad != 0 for entry in manifest.shards for rows in entry.rows)
    unknown = set(manifest.kept_columns) | ({"row"} if has_left_out else set())  # which rows were left out
    if manifest.chat is not None:
        return unknown | {"n_messages"} | ({"row"} if manifest.chat.turns == "each" else set())
    return unknown | {"sha256"} if subject.tokenizer.prepares_text else unknown


def differing_tables(derived: Path, tables: Path, left_out: Set[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Says how the tables found differ from those derived from the tokens, by file name.

    `left_out`: columns that are not compared. Files that were not derived are ignored.
    """
    for path in sorted(derived.iterdir()):
        other = tables / path.name
        if not other.exists() or (not left_out and sha256_file(path) == sha256_file(other)):
            continue
        try:
            wrong = _differ_bytes(path, other) if path.suffix == ".npy" else _differ(path, other, left_out)
        except (ValidationError, OSError, ValueError, pa.ArrowException) as error:
            wrong = f"cannot be read: {error}"
        if wrong:
            yield path.name, wrong


def _differ(made: Path, found: Path, left_out: Set[str]) -> str | None:
    expected, table = read_index(made), read_index(found)
    table = table.select([name for name in table.schema.names if name in expected.schema.names or name not in left_out])
    columns = [name for name in expected.schema.names if name not in left_out]
    if table.schema.names != expected.schema.names or table.schema.types != expected.schema.types:
        return f"expected the columns {', '.join(expected.schema.names)}; found {', '.join(table.schema.names)}"
    n_rows = min(len(table), len(expected))
    first = [
        at
        for name in columns
        if (at := pc.index(_equal(table[name][:n_rows], expected[name][:n_rows]), False).as_py()) >= 0
    ]
    if first:
        row = min(first)
        one, other = ({name: table_[name][row].as_py() for name in columns} for table_ in (table, expected))
        name = next(name for name in columns if one[name] != other[name])
        found_, expected_ = (
            value[name].hex() if name == "sha256" and value[name] else repr(value[name])[:60] for value in (one, other)
        )
        return f"row {row}: {name}: found {found_}, expected {expected_}"
    if len(table) != len(expected):
        return f"holds {len(table):,} rows, expected {len(expected):,}"
    return None


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether values are equal; nulls are equal to each other alone."""
    return pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null()))


def _differ_bytes(made: Path, found: Path) -> str | None:
    expected, array = np.load(made, allow_pickle=False), np.load(found, allow_pickle=False)
    if array.shape != expected.shape or array.dtype != expected.dtype:
        return f"expected {expected.dtype}{list(expected.shape)}; found {array.dtype}{list(array.shape)}"
    wrong = np.flatnonzero(array != expected)
    return f"id {wrong[0]}: found {array[wrong[0]]}, expected {expected[wrong[0]]}" if len(wrong) else None
