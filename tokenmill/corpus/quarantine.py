"""Quarantine: bad documents and damaged shards, left out of a unit and kept with shard, row and reason."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config.source_params import Source
from tokenmill.console import Advance
from tokenmill.corpus.bad_documents import (
    N_FOUND_MAX,
    N_LISTED_MAX,
    Bad,
    BadDocument,
    BadInputError,
    ColumnError,
    PieceDamagedError,
    joined,
)
from tokenmill.corpus.drop import DroppedDocument
from tokenmill.corpus.dropped import FindDropped, without
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Piece, Unit
from tokenmill.errors import CorpusError, DamagedError, PassingError, UnitTimeoutError
from tokenmill.process_memory import give_memory_back
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
"""The quarantine's columns. `row`: the row in the shard, from 0; null for a damaged shard or range. `line`: the line of a .jsonl
file, from 1. `raw`: the document's bytes, or null."""

QUARANTINE_FILE = "quarantine.parquet"  # in QUARANTINE_DIRECTORY

_LEFT_FILE = "left.msgpack"
_N_SHOWN = 3
_BYTES_TO_GIVE_BACK = 64_000_000  # of text that has been read


class _Enough(Exception):
    """Stops reading a file in which _N_FOUND_MAX bad documents were found."""


class GoodDocuments:
    """The good documents of a unit. Iterating gives batches, each with the index of its piece. `left` collects the bad
    documents and damaged pieces that were left out so far, if `source` allows that. `dropped` collects the documents that `find`
    says are to be left out.

    Pieces that are marked as damaged are skipped. `advance` is called with the file bytes of each finished batch. Iterating
    raises PieceDamagedError for a newly found damaged piece, and CorpusError for anything that `source` does not let pass.
    """

    def __init__(self, unit: Unit, source: Source, limits: Limits, advance: Advance, find: FindDropped) -> None:
        self.left: list[BadDocument] = []
        self.dropped: list[DroppedDocument] = []
        self.unit = unit
        self._source = source
        self._limits = limits
        self._advance = advance
        self._find = find

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        source, reading = self._source, self.unit.source.reading
        n_bytes = 0
        for i, piece in enumerate(self.unit.pieces):
            if piece.damage is not None:
                self.left.append(BadDocument(None, None, piece.damage, None, i))
                continue
            on_bad = partial(self._leave, i, piece) if source.on_bad_document == "quarantine" else None
            drop = partial(self._drop, i, piece)
            try:
                for batch in read_batches(piece.shard, reading, piece.part, on_bad, self._limits, drop):
                    yield i, batch
                    n_bytes += batch.text_bytes
                    if n_bytes >= _BYTES_TO_GIVE_BACK:
                        n_bytes = 0
                        give_memory_back()
                    self._advance(batch.file_bytes, 0)
            except PassingError:
                raise
            except CorpusError as error:
                if not isinstance(error, DamagedError) or source.on_bad_shard == "fail":
                    raise self._error_with_all_bad(i, error) from None
                reason = str(error).removeprefix(f"{piece.shard.name}: ")
                raise PieceDamagedError(str(error), self.unit.without({i: reason})) from None

    def _error_with_all_bad(self, first: int, error: CorpusError) -> CorpusError:
        """Gives `error`, or a BadInputError if more is bad from the piece with the index `first` on.

        Reads the rest of the unit only to list what is bad. Stops early in a file with very many bad documents, since a wrong
        text_column makes all bad.
        """
        source, reading = self._source, self.unit.source.reading
        n = 0
        shown: dict[str, list[Bad]] = {}
        is_all = True

        def add(name: str, words: str, setting: str | None) -> None:
            nonlocal n
            n += 1
            if name in shown or len(shown) < N_LISTED_MAX:
                shown[name] = joined(shown.get(name, []), Bad(words, setting=setting))[:N_LISTED_MAX]

        for piece in self.unit.pieces[first:]:
            n_before = n

            def on_bad(bad: BadDocument, piece: Piece = piece, n_before: int = n_before) -> None:
                if source.on_bad_document == "fail":
                    add(piece.shard.name, f"{piece.shard.name}, {_place(bad)}: {bad.reason}", bad.setting)
                if n - n_before >= N_FOUND_MAX:
                    raise _Enough

            try:
                if piece.damage is None:
                    deque(read_batches(piece.shard, reading, piece.part, on_bad, self._limits), maxlen=0)
            except (_Enough, PassingError, UnitTimeoutError):  # the error found before matters more than the time limit
                is_all = False
            except ColumnError as other:
                add(piece.shard.name, other.words, other.setting)
            except CorpusError as other:
                if not isinstance(other, DamagedError) or source.on_bad_shard == "fail":
                    add(piece.shard.name, str(other), None)
        return error if n < 2 else BadInputError(n, shown, is_all)

    def _drop(
        self, i: int, piece: Piece, row: int, texts: pa.LargeStringArray, ids: pa.LargeStringArray | None
    ) -> pa.LargeStringArray:
        """The texts with a null for each dropped document."""
        found = self._find(piece.shard.name, row, texts, ids)
        if not found:
            return texts
        self.dropped += (one.moved(-piece.first_row, i) for one in found)
        return without(texts, [one.row - row for one in found])

    def _leave(self, i: int, piece: Piece, bad: BadDocument) -> None:
        self.left.append(bad.moved(-piece.first_row, -piece.first_line, i))


def good_batches(shard: Shard, source: Source, find: FindDropped, limits: Limits = UNBOUNDED) -> Iterator[Batch]:
    """The shard's good documents, for statistics, without those that `find` finds. Skips bad documents if `source` allows that, and
    ends where the shard is damaged. Raises CorpusError for anything that `source` does not let pass."""
    try:
        unit = Unit(shard.name, "", (Piece(shard, None, ""),))
        for _, batch in GoodDocuments(unit, source, limits, lambda _bytes, _tokens: None, find):
            yield batch
    except PieceDamagedError:
        return


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
    if not n_documents and any(one.n_pieces for one in left):
        damaged = [(unit, one) for unit, some in zip(units, left, strict=True) for one in some.first if one.row is None]
        shown = [f"  {_shard(unit, one)}: {one.reason}" for unit, one in damaged[:_N_SHOWN]]
        raise CorpusError(
            "",
            ["no documents are left, because shards are damaged:", *shown],
            "Mend or replace them.",
            code="TM208",
        )
    allowed = source.bad_documents_max
    n_bad = sum(one.n_documents for one in left)
    if n_bad <= (allowed if isinstance(allowed, int) else allowed * (n_bad + n_documents)):
        return n_bad
    most = allowed if isinstance(allowed, int) else f"{allowed * 100:g} %"
    first = [(unit, one) for unit, some in zip(units, left, strict=True) for one in some.first if one.row is not None]
    shown = [f"  {_where(unit, one)}: {one.reason}" for unit, one in first[:_N_SHOWN]]
    raise CorpusError(
        "",
        [
            f"{n_bad:,} of {n_bad + n_documents:,} documents are bad; source.bad_documents_max allows {most}. The first:",
            *shown,
        ],
        "Mend them, or raise source.bad_documents_max.",
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
    return f"{_shard(unit, bad)}, {_place(there)}"


def _place(bad: BadDocument) -> str:
    return f"row {bad.row}" if bad.line is None else f"line {bad.line}"
