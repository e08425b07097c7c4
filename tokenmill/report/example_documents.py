"""Names the longest and the shortest documents of a dataset, and shows the beginnings of some that are drawn, for report.html."""

import random
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.numbered import NumberedDocuments
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.layout import TABLES_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.report.health import shown
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.array_types import Longs
from tokenmill_reader.checked_parquet import parquet_file

SEED = 0
N_DRAWN = 10
N_EXTREME = 3
SHOWN_TOKENS_MAX = 60


class Examples(NamedTuple):
    """Documents as rows of the document index: the N_EXTREME longest and shortest ones, the first in the dataset before others of
    the same length, and up to N_DRAWN, drawn with SEED, in the order of the dataset. Those have `beginning`, too: their first
    SHOWN_TOKENS_MAX tokens."""

    longest: list[dict[str, Any]]
    shortest: list[dict[str, Any]]
    drawn: list[dict[str, Any]]


def examples_in(root: Path, manifest: Manifest) -> Examples | None:
    """Documents of the dataset in the project at `root`; None if it has no document index, or no documents. None is drawn from a
    dataset of conversations, of which the report shows some anyway."""
    index = root / TABLES_DIRECTORY / DOCUMENTS_FILE
    if not index.exists() or not manifest.n_documents:
        return None
    n_drawn = 0 if manifest.chat else min(N_DRAWN, manifest.n_documents)
    numbers = sorted(random.Random(SEED).sample(range(manifest.n_documents), n_drawn))
    longest, shortest = _extremes(index)
    rows = _rows(index, {*numbers, *longest, *shortest})
    drawn = []
    if numbers:
        tokenizer = Tokenizer.load(root / TOKENIZER_DIRECTORY)
        taken = NumberedDocuments(root / TOKENS_DIRECTORY, manifest).take(np.array(numbers))
        for number, ids in zip(numbers, taken, strict=True):
            tokens = [shown(tokenizer.token_bytes(id)) for id in ids[:SHOWN_TOKENS_MAX].tolist()]
            drawn.append({**rows[number], "beginning": tokens})
    return Examples([rows[number] for number in longest], [rows[number] for number in shortest], drawn)


def _extremes(index: Path) -> tuple[list[int], list[int]]:
    """The numbers of the longest and the shortest documents. The index is read in pieces, because it may exceed memory."""
    longest = shortest = np.empty((0, 2), np.int64)
    first = 0
    with parquet_file(index) as file:
        for batch in file.iter_batches(columns=["n_tokens"]):
            lengths = np.column_stack([batch["n_tokens"].to_numpy(), np.arange(first, first + len(batch))])
            first += len(batch)
            longest = _first(np.concatenate([longest, lengths]), sign=-1)
            shortest = _first(np.concatenate([shortest, lengths]), sign=1)
    return longest[:, 1].tolist(), shortest[:, 1].tolist()


def _first(lengths: Longs, sign: int) -> Longs:
    """The first rows in the order of `sign` times the length, then of the number."""
    return lengths[np.lexsort((lengths[:, 1], sign * lengths[:, 0]))[:N_EXTREME]]


def _rows(index: Path, numbers: Set[int]) -> dict[int, dict[str, Any]]:
    """The rows of the index with these numbers: id (None without names), shard, row and number of tokens."""
    rows_by_number: dict[int, dict[str, Any]] = {}
    first = 0
    with parquet_file(index) as file:
        columns = [name for name in ("id", "shard", "row", "n_tokens") if name in file.schema_arrow.names]
        for k in range(file.num_row_groups):
            n_rows = file.metadata.row_group(k).num_rows
            chosen = [number - first for number in numbers if first <= number < first + n_rows]
            if chosen:
                of_group = file.read_row_group(k, columns=columns).take(chosen).to_pylist()
                rows_by_number |= {first + i: {"id": None, **row} for i, row in zip(chosen, of_group, strict=True)}
            first += n_rows
    return rows_by_number
