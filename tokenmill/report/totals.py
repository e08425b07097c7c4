"""The sums of a whole dataset: those of its sources from its manifest, token counts and document lengths from its tables."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE, TOKENS_PER_ID_FILE
from tokenmill.report.measures import Counts
from tokenmill.report.sample import ROOT_SOURCE
from tokenmill_reader.checked_parquet import parquet_file, read_table


@dataclass(frozen=True)
class Tables:
    """The totals of a dataset. `counts`: each token's count, by id, zeros included. `lengths`, `n_documents`: the distinct document
    lengths in tokens, ascending, and the number of documents of each."""

    counts: dict[int, int]
    lengths: Counts
    n_documents: Counts


@dataclass
class SourceSums:
    """The sums over the documents of one source."""

    n_documents: int = 0
    text_bytes: int = 0
    n_tokens: int = 0


def sums_by_source(manifest: Manifest) -> dict[str, SourceSums]:
    """The sums of each source, by its name in order."""
    sums: dict[str, SourceSums] = {}
    source_names = manifest.source_names()
    for shard in manifest.shards:  # each file is of one source
        of = sums.setdefault(source_names[shard.rows[0].name] or ROOT_SOURCE, SourceSums())
        of.n_documents += shard.n_documents
        of.text_bytes += shard.text_bytes
        of.n_tokens += shard.n_tokens
    return dict(sorted(sums.items()))


def read_tables(directory: Path) -> Tables | None:
    """Reads the tables in data/tables; None if there are none, as with datasets in format 3. Reads the document index in pieces,
    because it may exceed memory."""
    if not (directory / TOKENS_PER_ID_FILE).exists():
        return None
    table = read_table(directory / TOKENS_PER_ID_FILE, columns=["id", "count"])
    counts = dict(zip(table["id"].to_pylist(), table["count"].to_pylist(), strict=True))
    return Tables(counts, *_lengths(directory / DOCUMENTS_FILE))


def _lengths(path: Path) -> tuple[Counts, Counts]:
    lengths, n_documents = np.empty(0, np.int64), np.empty(0, np.int64)
    with parquet_file(path) as file:
        for batch in file.iter_batches(columns=["n_tokens"]):
            some, n_some = np.unique(batch["n_tokens"].to_numpy(), return_counts=True)
            together, where = np.unique(np.concatenate([lengths, some]), return_inverse=True)
            summed = np.bincount(where, np.concatenate([n_documents, n_some]), len(together))
            lengths, n_documents = together.astype(np.int64), summed.astype(np.int64)
    return lengths, n_documents
