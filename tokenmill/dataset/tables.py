"""The tables of a token dataset in data/tables: the document index, and the counts of tokens."""

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.corpus.dropped import Starts
from tokenmill.dataset.document_index import read_index, read_unit_index, write_index
from tokenmill.dataset.manifest import TableFile
from tokenmill.dataset.token_counts import sum_counts, token_bytes, tokens_per_id, tokens_per_id_by_source
from tokenmill.errors import ValidationError
from tokenmill.storage.atomic import sha256_file, write_atomic
from tokenmill.tokenizer.tokenizer import Tokenizer

DOCUMENTS_FILE = "documents.parquet"
TOKENS_PER_ID_FILE = "tokens_per_id.parquet"
BY_SOURCE_FILE = "tokens_per_id_by_source.parquet"
TOKEN_BYTES_FILE = "token_bytes.npy"

UNIT_INDEX_FILE = "documents.arrow"  # in a unit's folder
UNIT_COUNTS_FILE = "token_counts.parquet"


class Part(NamedTuple):
    """The input of the tables for one file of the dataset: its name, the shard and first row of each piece, the folder with its
    document index and token counts, and its source (see tokenmill.corpus.units.source_name)."""

    file: str
    pieces: Starts
    folder: Path
    source: str


def write_tables(
    parts: Sequence[Part], has_names: bool, tokenizer: Tokenizer, directory: Path, splits: Mapping[str, float]
) -> list[TableFile]:
    """Writes the tables of a dataset, and gives their entries for the manifest. `splits`: the share of each split.

    With the engine tokenizers there is no token_bytes.npy: if a tokenizer is not byte-level, its tokens have no bytes of their own.
    """
    with (
        write_atomic(directory / DOCUMENTS_FILE) as path,
        write_index(path, has_names, has_column(parts, "group"), splits, has_column(parts, "n_trained")) as add,
    ):
        for part in parts:
            add(part.folder / UNIT_INDEX_FILE, part.pieces, part.file)
    counted = [(part.source, part.folder / UNIT_COUNTS_FILE) for part in parts]
    total, by_source = sum_counts(counted, tokenizer.id_max)
    _write(tokens_per_id(total, tokenizer), directory / TOKENS_PER_ID_FILE)
    _write(tokens_per_id_by_source(by_source, tokenizer), directory / BY_SOURCE_FILE)
    if tokenizer.model is not None:
        with write_atomic(directory / TOKEN_BYTES_FILE) as path, path.open("wb") as file:
            np.save(file, token_bytes(tokenizer), allow_pickle=False)
    return [
        TableFile(name=path.name, n_bytes=path.stat().st_size, sha256=sha256_file(path))
        for path in sorted(directory.iterdir())
    ]


def has_column(parts: Sequence[Part], name: str) -> bool:
    """Whether the document indexes of these files have a column: `group` of groups, `n_trained` of conversations."""
    return any(name in read_unit_index(part.folder / UNIT_INDEX_FILE, [name]).schema.names for part in parts[:1])


def _write(table: pa.Table, path: Path) -> None:
    with write_atomic(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=["source"], write_statistics=False)


def wrong_tables(made: Path, found: Path, left_out: Set[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Says how the tables found differ from those derived from the tokens, by file name.

    `left_out`: columns that are not compared. Files that were not derived are ignored.
    """
    for path in sorted(made.iterdir()):
        other = found / path.name
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
