"""Quarantine: bad documents and damaged shards, left out of a unit and kept with shard, row and reason."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config.source_params import Source
from tokenmill.corpus.bad_documents import (
    BadDocument,
)
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.checked_parquet import read_table
from tokenmill_reader.regular_files import naming, read

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64()),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.large_binary()),
    ]
)
"""The quarantine's columns. `row`: the row in the shard, from 0; null for a damaged shard or range. `line`: the line of a .jsonl or
.csv file, from 1. `raw`: the document's bytes, or null."""

QUARANTINE_FILE = "quarantine.parquet"  # in QUARANTINE_DIRECTORY

_LEFT_FILE = "left.msgpack"
_N_SHOWN = 3


class LeftOut(msgspec.Struct, frozen=True):
    """The numbers of bad documents and damaged pieces left out of a unit, and the `first` few of them."""

    n_documents: int
    n_pieces: int
    first: list[BadDocument]

    @property
    def n(self) -> int:
        """The number of documents and pieces."""
        return self.n_documents + self.n_pieces

    def fits(self, source: Source) -> bool:
        """Whether `source` allows leaving these out."""
        fails_on_document, fails_on_shard = source.on_bad_document == "fail", source.on_bad_shard == "fail"
        return not ((self.n_documents and fails_on_document) or (self.n_pieces and fails_on_shard))


def left_out(left: Sequence[BadDocument]) -> LeftOut:
    """The summary of what was left out, without raw bytes."""
    n_pieces = sum(one.row is None for one in left)
    first = [msgspec.structs.replace(one, raw=None) for one in left[:_N_SHOWN]]
    return LeftOut(len(left) - n_pieces, n_pieces, first)


def piece_bad(unit: Unit, left: Sequence[BadDocument]) -> list[int | None]:
    """The number of documents that were left out of each piece; None: the piece is damaged and was left out whole."""
    lost = {one.piece for one in left if one.row is None}
    return [None if i in lost else sum(one.piece == i for one in left) for i in range(len(unit.pieces))]


def check_limit(units: Sequence[Unit], left: Sequence[LeftOut], n_documents: int, source: Source) -> int:
    """The number of documents that were left out of all units. `n_documents`: the number of good ones.

    Raises CorpusError if more were left out than source.bad_documents_max allows, or if damaged shards leave no document.
    """
    if not n_documents and any(left_out.n_pieces for left_out in left):
        damaged = [
            (unit, left_out)
            for unit, left_of_unit in zip(units, left, strict=True)
            for left_out in left_of_unit.first
            if left_out.row is None
        ]
        shown = [f"  {_shard(unit, left_out)}: {left_out.reason}" for unit, left_out in damaged[:_N_SHOWN]]
        raise CorpusError(
            "",
            ["no documents are left, because shards are damaged:", *shown],
            "Correct or replace them.",
            code="TM208",
        )
    allowed = source.bad_documents_max
    n_bad = sum(left_out.n_documents for left_out in left)
    if n_bad <= (allowed if isinstance(allowed, int) else allowed * (n_bad + n_documents)):
        return n_bad
    most = allowed if isinstance(allowed, int) else f"{allowed * 100:g} %"
    first = [
        (unit, left_out)
        for unit, left_of_unit in zip(units, left, strict=True)
        for left_out in left_of_unit.first
        if left_out.row is not None
    ]
    shown = [f"  {_where(unit, left_out)}: {left_out.reason}" for unit, left_out in first[:_N_SHOWN]]
    raise CorpusError(
        "",
        [
            f"{n_bad:,} of {n_bad + n_documents:,} documents are bad; source.bad_documents_max allows {most}. The first:",
            *shown,
        ],
        "Correct them, or raise source.bad_documents_max.",
        code="TM208",
    )


def write_left(left: Sequence[BadDocument], folder: Path) -> None:
    """Writes what was left out of a unit into its folder. Writes no file if nothing was left out."""
    if left:
        path = folder / _LEFT_FILE
        with naming(path):
            path.write_bytes(msgspec.msgpack.encode(left))


def write_quarantine(path: Path, units: Iterable[tuple[Unit, Path]]) -> None:
    """Writes the quarantine file. `units`: each unit with the folder of its outputs."""
    with (
        write_atomic(path) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", write_statistics=False) as writer,
    ):
        for unit, folder in units:
            if (folder / _LEFT_FILE).exists():
                left = msgspec.msgpack.decode(read(folder / _LEFT_FILE), type=list[BadDocument])
                rows = [msgspec.structs.asdict(_in_shard(unit, one)) | {"shard": _shard(unit, one)} for one in left]
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def read_quarantine(path: Path) -> dict[str, list[BadDocument]]:
    """The records that `write_quarantine` wrote, by the name of the shard."""
    found: dict[str, list[BadDocument]] = {}
    for row in read_table(path).to_pylist():
        found.setdefault(row.pop("shard"), []).append(BadDocument(**row))
    return found


def _shard(unit: Unit, bad: BadDocument) -> str:
    return unit.pieces[bad.piece].shard.name


def _in_shard(unit: Unit, bad: BadDocument) -> BadDocument:
    piece = unit.pieces[bad.piece]
    return bad.moved(piece.first_row, piece.first_line)


def _where(unit: Unit, bad: BadDocument) -> str:
    there = _in_shard(unit, bad)
    return f"{_shard(unit, bad)}, {there.place}"
