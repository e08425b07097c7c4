"""The tables of a token dataset in data/tables: the document index, and the counts of tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.dropped import Starts
from tokenmill.dataset.document_index import unit_columns, write_index
from tokenmill.dataset.entries import TableFile
from tokenmill.dataset.kept_columns import kept_types
from tokenmill.dataset.token_counts import sum_counts, token_bytes, tokens_per_id, tokens_per_id_by_source
from tokenmill.storage.atomic import write_atomic
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.regular_files import sha256_file

DOCUMENTS_FILE = "documents.parquet"
TOKENS_PER_ID_FILE = "tokens_per_id.parquet"
BY_SOURCE_FILE = "tokens_per_id_by_source.parquet"
TOKEN_BYTES_FILE = "token_bytes.npy"

UNIT_INDEX_FILE = "documents.arrow"  # in a unit's folder
UNIT_COUNTS_FILE = "token_counts.parquet"


class TableInput(NamedTuple):
    """The input of the tables for one file of the dataset: its name, the shard and first row of each piece, the folder with its
    document index and token counts, and its source (see tokenmill.corpus.units.source_name)."""

    file: str
    pieces: Starts
    folder: Path
    source: str


def write_tables(
    parts: Sequence[TableInput], has_names: bool, tokenizer: Tokenizer, directory: Path, splits: Mapping[str, float]
) -> list[TableFile]:
    """Writes the tables of a dataset, and gives their entries for the manifest. `splits`: the share of each split."""
    has_group, has_mask = has_column(parts, "group"), has_column(parts, "n_trained")
    kept = kept_types(part.folder for part in parts)
    with (
        write_atomic(directory / DOCUMENTS_FILE) as path,
        write_index(path, has_names, has_group, splits, has_mask, kept) as add,
    ):
        for part in parts:
            add(part.folder / UNIT_INDEX_FILE, part.pieces, part.file)
    write_count_tables(parts, tokenizer, directory)
    return table_entries(directory)


def write_count_tables(parts: Sequence[TableInput], tokenizer: Tokenizer, directory: Path) -> None:
    """Writes the tables that have a row for each token.

    With the engine tokenizers there is no token_bytes.npy: if a tokenizer is not byte-level, its tokens have no bytes of their own.
    """
    counted = [(part.source, part.folder / UNIT_COUNTS_FILE) for part in parts]
    total, by_source = sum_counts(counted, tokenizer.id_max)
    _write(tokens_per_id(total, tokenizer), directory / TOKENS_PER_ID_FILE)
    _write(tokens_per_id_by_source(by_source, tokenizer), directory / BY_SOURCE_FILE)
    if tokenizer.model is not None:
        with write_atomic(directory / TOKEN_BYTES_FILE) as path, path.open("wb") as file:
            np.save(file, token_bytes(tokenizer), allow_pickle=False)


def table_entries(directory: Path) -> list[TableFile]:
    """The manifest's entries of the files in a folder: of the tables, or of the tokenizer."""
    return [
        TableFile(name=path.relative_to(directory).as_posix(), n_bytes=path.stat().st_size, sha256=sha256_file(path))
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]


def has_column(parts: Sequence[TableInput], name: str) -> bool:
    """Whether the document indexes of these files have a column: `group` of groups, `n_trained` of conversations."""
    return any(name in unit_columns(part.folder / UNIT_INDEX_FILE) for part in parts[:1])


def _write(table: pa.Table, path: Path) -> None:
    with write_atomic(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=["source"], write_statistics=False)
