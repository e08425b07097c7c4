"""Documents that are none, and shards that are damaged: left out of a unit, and kept with where they are from and why."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config.params import Source
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.reader import BadDocument, Batch, read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError
from tokenmill.storage.atomic import naming, read, write_atomic

T = TypeVar("T")

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64()),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.large_binary()),
    ]
)
"""The quarantine's columns. `row`: position in the shard, from 0; null: the shard, from its first document that is missing
on. `line`: of a .jsonl, from 1. `raw`: the document's bytes; null: there are none."""

QUARANTINE_FILE = "quarantine.parquet"  # in QUARANTINE_DIRECTORY

_LEFT_FILE = "left.msgpack"
_N_SHOWN = 3


class Left(msgspec.Struct, frozen=True):
    """What was left out of a unit, seen from its piece: the shard's name and where the piece begins are not of the unit."""

    piece: int
    row: int | None
    line: int | None
    reason: str
    raw: bytes | None


class Documents(NamedTuple):
    """A batch of a unit's documents, and the index of their piece."""

    piece: int
    batch: Batch


def sifted(
    unit: Unit, source: Source, limits: Limits, do: Callable[[Iterator[Documents]], T], damaged: Iterable[int] = ()
) -> tuple[T, list[Left]]:
    """`do` of the unit's good documents, and what was left out of them, as `source` says; `damaged` pieces are not read.

    When a shard turns out damaged half-way, `do` is called again without it. Raises CorpusError for what is not to be left
    out.
    """
    lost: dict[int, Left] = {i: Left(i, None, None, "", None) for i in damaged}
    while True:
        left: list[Left] = []
        reading = _Reading(unit, source, limits, lost, left)
        try:
            return do(iter(reading)), sorted([*left, *lost.values()], key=lambda one: (one.piece, one.row or 0))
        except DamagedError as error:
            if source.on_bad_shard == "fail" or reading.piece in lost:
                raise
            name = unit.pieces[reading.piece].shard.name
            lost[reading.piece] = Left(reading.piece, None, None, str(error).removeprefix(f"{name}: "), None)


def good_batches(shard: Shard, source: Source, limits: Limits = UNBOUNDED) -> Iterator[Batch]:
    """The shard's good documents, for a look at them: what `source` lets be left out is passed over, from where a shard is
    damaged on. Raises CorpusError for what is not to be left out."""
    on_bad = (lambda _bad: None) if source.on_bad_document == "quarantine" else None
    try:
        columns = (source.text_column, source.id_column, source.text_separator)
        yield from read_batches(shard, *columns, on_bad=on_bad, limits=limits)
    except DamagedError:
        if source.on_bad_shard == "fail":
            raise


class _Reading:
    """The documents of a unit's pieces; `piece` is the one being read."""

    def __init__(self, unit: Unit, source: Source, limits: Limits, lost: dict[int, Left], left: list[Left]) -> None:
        self.piece = 0
        self._unit = unit
        self._source = source
        self._limits = limits
        self._lost = lost
        self._left = left

    def __iter__(self) -> Iterator[Documents]:
        source = self._source
        on_bad = self._leave if source.on_bad_document == "quarantine" else None
        columns = (source.text_column, source.id_column, source.text_separator)
        for i, piece in enumerate(self._unit.pieces):
            self.piece = i
            if i not in self._lost:
                for batch in read_batches(piece.shard, *columns, part=piece.part, on_bad=on_bad, limits=self._limits):
                    yield Documents(i, batch)

    def _leave(self, bad: BadDocument) -> None:
        part = self._unit.pieces[self.piece].part
        row = bad.row - (part.first_row if part else 0)
        line = bad.line and bad.line - (part.first_line if part else 1)
        self._left.append(Left(self.piece, row, line, bad.reason, bad.raw))


class LeftOut(msgspec.Struct, frozen=True):
    """How much was left out of a unit: documents and pieces, and the `first` of them."""

    n_documents: int
    n_pieces: int
    first: list[Left]

    @property
    def n(self) -> int:
        """Documents and pieces together."""
        return self.n_documents + self.n_pieces

    def fits(self, source: Source) -> bool:
        """Whether `source` lets these be left out."""
        fails_on_document, fails_on_shard = source.on_bad_document == "fail", source.on_bad_shard == "fail"
        return not ((self.n_documents and fails_on_document) or (self.n_pieces and fails_on_shard))


def left_out(left: Sequence[Left]) -> LeftOut:
    """The sum of what was left out; raw bytes are not kept in it."""
    n_pieces = sum(one.row is None for one in left)
    first = [msgspec.structs.replace(one, raw=None) for one in left[:_N_SHOWN]]
    return LeftOut(len(left) - n_pieces, n_pieces, first)


def piece_bad(unit: Unit, left: Sequence[Left]) -> list[int | None]:
    """How many documents were left out of each piece; None: it is of a damaged shard, and not read."""
    lost = {one.piece for one in left if one.row is None}
    return [None if i in lost else sum(one.piece == i for one in left) for i in range(len(unit.pieces))]


def check_limit(units: Sequence[Unit], left: Sequence[LeftOut], n_documents: int, source: Source) -> int:
    """How many documents were left out, beside `n_documents` that were not. Raises CorpusError when they are too many,
    or damaged shards leave none."""
    if not n_documents and any(one.n_pieces for one in left):
        damaged = [(unit, one) for unit, some in zip(units, left, strict=True) for one in some.first if one.row is None]
        shown = [f"  {unit.pieces[one.piece].shard.name}: {one.reason}" for unit, one in damaged[:_N_SHOWN]]
        raise CorpusError(
            "\n".join(["no document is left, since shards are damaged:", *shown, "Mend or replace them."])
        )
    allowed = source.bad_documents_max
    n_bad = sum(one.n_documents for one in left)
    if n_bad <= (allowed if isinstance(allowed, int) else allowed * (n_bad + n_documents)):
        return n_bad
    first = [(unit, one) for unit, some in zip(units, left, strict=True) for one in some.first if one.row is not None]
    shown = [f"  {_where(unit, one)}: {one.reason}" for unit, one in first[:_N_SHOWN]]
    raise CorpusError(
        "\n".join(
            [
                f"{n_bad:,} of {n_bad + n_documents:,} documents are bad; source.bad_documents_max allows {allowed}. The first:",
                *shown,
                "Mend them, or raise source.bad_documents_max.",
            ]
        )
    )


def write_left(left: Sequence[Left], folder: Path) -> None:
    """Writes what was left out of a unit into its folder; no file where it is nothing."""
    if left:
        path = folder / _LEFT_FILE
        with naming(path):
            path.write_bytes(msgspec.msgpack.encode(left))


def write_quarantine(path: Path, units: Iterable[tuple[Unit, Path]]) -> None:
    """Writes what was left out of all units; each comes with its folder."""
    with (
        write_atomic(path) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", write_statistics=False) as writer,
    ):
        for unit, folder in units:
            if (folder / _LEFT_FILE).exists():
                left = msgspec.msgpack.decode(read(folder / _LEFT_FILE), type=list[Left])
                writer.write_table(pa.Table.from_pylist([_row(unit, one) for one in left], SCHEMA))


class Quarantined(NamedTuple):
    """A row of the quarantine (see SCHEMA)."""

    shard: str
    row: int | None
    line: int | None
    reason: str
    raw: bytes | None


def read_quarantine(path: Path) -> list[Quarantined]:
    """The rows that `write_quarantine` wrote."""
    return [Quarantined(**row) for row in pq.read_table(path).to_pylist()]


def _row(unit: Unit, left: Left) -> dict[str, object]:
    piece = unit.pieces[left.piece]
    first_row, first_line = (piece.part.first_row, piece.part.first_line) if piece.part else (0, 1)
    row = None if left.row is None else first_row + left.row
    line = None if left.line is None else first_line + left.line
    return {"shard": piece.shard.name, "row": row, "line": line, "reason": left.reason, "raw": left.raw}


def _where(unit: Unit, left: Left) -> str:
    row = _row(unit, left)
    return f"{row['shard']}, " + (f"row {row['row']}" if row["line"] is None else f"line {row['line']}")
