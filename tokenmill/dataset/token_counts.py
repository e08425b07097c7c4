"""Counts how often each token occurs in each unit, and sums the counts for the tables of a dataset."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill import _core
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import naming

_COUNTED = pa.schema([pa.field("id", pa.uint32(), nullable=False), pa.field("count", pa.uint64(), nullable=False)])


class TokenCounts:
    """Counts of ids up to `id_max`, in 64 bits."""

    def __init__(self, id_max: int) -> None:
        self.counts: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.zeros(id_max + 1, np.uint64)

    def add(self, ids: pa.Array) -> None:
        """Counts ids of uint16 or uint32 without nulls. Raises ValueError for an id above `id_max`."""
        found = _core.count_ids(ids, len(self.counts) - 1)
        if found is None:
            raise ValueError(f"an id is larger than {len(self.counts) - 1}")
        self.add_counted(found.to_numpy())

    def add_counted(self, found: npt.NDArray[np.int64]) -> None:
        """Adds the counts of all ids, by id."""
        self.counts += found.astype(np.uint64)

    def table(self) -> pa.Table:
        """The ids that occur, with their counts: `id` uint32, `count` uint64."""
        ids = np.flatnonzero(self.counts)
        return pa.table([ids.astype(np.uint32), self.counts[ids]], schema=_COUNTED)

    def write(self, path: Path) -> None:
        """Writes that table."""
        with naming(path):
            pq.write_table(self.table(), path, compression="zstd", use_dictionary=False, write_statistics=False)


def sum_counts(units: Iterable[tuple[str, Path]], id_max: int) -> tuple["TokenCounts", dict[str, pa.Table]]:
    """Sums the counts over all units, and over each source, as tables of id and count without zeros.

    `units`: the source and the counts file of each unit.
    """
    total = TokenCounts(id_max)
    by_source: dict[str, TokenCounts] = {}
    for source, path in units:
        with naming(path), parquet_file(path) as file:  # a third of the time of read_table, for each of many units
            table = file.read()
        ids, counts = table["id"].to_numpy(), table["count"].to_numpy()
        total.counts[ids] += counts
        by_source.setdefault(source, TokenCounts(id_max)).counts[ids] += counts
    return total, {source: one.table() for source, one in sorted(by_source.items())}


def tokens_per_id(total: TokenCounts, tokenizer: Tokenizer) -> pa.Table:
    """A row for each token of the vocabulary in the order of ids: `id` uint32, `bytes` binary, `count` uint64 (zeros too)."""
    ids = tokenizer.ids
    tokens = tokenizer.tokens
    columns = [pa.array(ids, pa.uint32()), pa.array([tokens[id] for id in ids], pa.binary()), total.counts[ids]]
    shape = pa.schema([_COUNTED.field("id"), pa.field("bytes", pa.binary(), nullable=False), _COUNTED.field("count")])
    return pa.table(columns, schema=shape.with_metadata(_metadata(tokenizer)))


def tokens_per_id_by_source(by_source: Mapping[str, pa.Table], tokenizer: Tokenizer) -> pa.Table:
    """Rows of `source` string, `id` uint32 and `count` uint64, sorted; a token that a source does not have is left out."""
    shape = pa.schema([pa.field("source", pa.string(), nullable=False), *_COUNTED], metadata=_metadata(tokenizer))
    tables = [
        pa.table([pa.repeat(source, len(table)), table["id"], table["count"]], schema=shape)
        for source, table in by_source.items()
    ]
    return pa.concat_tables([shape.empty_table(), *tables])


def token_bytes(tokenizer: Tokenizer) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """The length in bytes of each id's token, by id; 0 for special tokens, which are no text, and for ids without a token."""
    lengths = tokenizer.token_lengths.astype(np.uint32)
    lengths[list(tokenizer.special_tokens.values())] = 0
    return lengths


def _metadata(tokenizer: Tokenizer) -> dict[str, str]:
    return {"tokenizer_digest": tokenizer.digest}
