"""Dropped documents: those that filters left out, kept in a table with shard, row and reason, without their text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.corpus.filter import Left
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests
from tokenmill.corpus.units import Unit
from tokenmill.errors import ValidationError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import naming, open_regular

DROPPED_FILE = "dropped.parquet"  # in TABLES_DIRECTORY

_FACTS = [
    pa.field("row", pa.int64(), nullable=False),
    pa.field("id", pa.string()),
    pa.field("sha256", pa.binary(32), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("by", pa.string(), nullable=False),
]
SCHEMA = pa.schema([pa.field("shard", pa.string(), nullable=False), *_FACTS])
"""The columns of dropped.parquet. `row`: the row in the shard, from 0. `id`: null if documents have none. `sha256`: the digest of
the text, or of a conversation's canonical JSON, in UTF-8. `by`: what the filter knows it by, such as its id."""

_UNIT_SCHEMA = pa.schema([pa.field("piece", pa.int32(), nullable=False), *_FACTS])
"""The columns of a unit's file. `row` counts from the start of the piece with the index `piece`."""
_UNIT_FILE = "dropped.arrow"
_REPEATED = ["shard", "reason", "by"]  # columns with few values

Starts: TypeAlias = Sequence[tuple[str, int]]
"""The shard of each piece of a unit, and the row in it of the piece's first document."""


def starts_of(unit: Unit) -> Starts:
    """The shards and first rows of a unit's pieces."""
    return [(piece.shard.name, piece.first_row) for piece in unit.pieces]


class UnitDropped:
    """Collects the dropped documents of a unit: writes them into its `folder`, if that is given, as they are found; without any,
    no file. `n_by_piece`, `reasons`: their numbers by piece and by reason."""

    def __init__(self, n_pieces: int, folder: Path | None) -> None:
        self.n_by_piece: list[int] = [0] * n_pieces
        self.reasons: Counter[str] = Counter()
        self._path = None if folder is None else folder / _UNIT_FILE
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, piece: int, first_row: int, batch: Batch, left: Mapping[int, Left]) -> None:
        """Adds documents of a batch of the piece with this index and first row, which are left out for these reasons."""
        indices, reasons = pa.array(left, pa.int64()), [why.reason for why in left.values()]
        ids = pa.nulls(len(left), pa.string()) if batch.ids is None else batch.ids.take(indices).cast(pa.string())
        self._add(
            {
                "piece": pa.repeat(pa.scalar(piece, pa.int32()), len(left)),
                "row": pc.add(indices, batch.first_row - first_row),
                "id": ids,
                "sha256": text_digests(batch.digested.take(indices)),
                "reason": reasons,
                "by": [why.by for why in left.values()],
            }
        )
        self.n_by_piece[piece] += len(left)
        self.reasons.update(reasons)

    def add_known(self, piece: int, first_row: int, known: pa.Table) -> None:
        """Adds rows of dropped.parquet that are of the piece with this index and first row."""
        if not known.num_rows:
            return
        rows = {name: known[name].cast(_UNIT_SCHEMA.field(name).type) for name in known.column_names if name != "shard"}
        pieces = pa.repeat(pa.scalar(piece, pa.int32()), known.num_rows)
        self._add(rows | {"piece": pieces, "row": pc.subtract(rows["row"], first_row)})
        self.n_by_piece[piece] += known.num_rows
        self.reasons.update(known["reason"].to_pylist())

    def _add(self, columns: Mapping[str, object]) -> None:
        if self._path is None:
            return
        with naming(self._path):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._path, _UNIT_SCHEMA)
            self._writer.write_table(pa.table(columns, _UNIT_SCHEMA))

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None and self._path is not None:
            with naming(self._path):
                self._writer.close()


def unit_dropped(folder: Path) -> Iterator[pa.RecordBatch]:
    """The dropped documents in the folder of a unit."""
    if (folder / _UNIT_FILE).exists():
        with open(folder / _UNIT_FILE, "rb", opener=open_regular) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def write_dropped(path: Path, units: Iterable[tuple[Starts, Path]]) -> None:
    """Writes the dropped documents of all units as dropped.parquet; each unit comes with its folder."""
    with (
        write_atomic(path) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", write_statistics=False) as writer,
    ):
        for starts, folder in units:
            shards, first_rows = (pa.array(column) for column in zip(*starts, strict=True))
            tables = []
            for batch in unit_dropped(folder):
                rows = pc.add(batch["row"], first_rows.take(batch["piece"]))
                columns = {name: batch[name] for name in SCHEMA.names[2:]}
                tables.append(pa.table({"shard": shards.take(batch["piece"]), "row": rows, **columns}, SCHEMA))
            if tables:
                writer.write_table(pa.concat_tables(tables).combine_chunks())


class Dropped:
    """Rows of dropped.parquet. `table`: has SCHEMA's columns, those with few values as dictionaries."""

    def __init__(self, table: pa.Table) -> None:
        shards = table["shard"].combine_chunks()
        numbers, rows = shards.indices.to_numpy(), table["row"].to_numpy()
        steps = np.diff(numbers)
        if not np.all((steps > 0) | ((steps == 0) & (np.diff(rows) > 0))):
            table = table.take(np.lexsort((rows, numbers)))
        self.table = table
        self._rows: npt.NDArray[np.int64] = table["row"].to_numpy()
        ends = np.cumsum(np.bincount(numbers, minlength=len(shards.dictionary)))
        names, starts = shards.dictionary.to_pylist(), [0, *ends.tolist()]
        self._ranges = {name: (starts[i], starts[i + 1]) for i, name in enumerate(names) if starts[i] < starts[i + 1]}

    @property
    def shards(self) -> list[str]:
        """The names of the shards that have some."""
        return list(self._ranges)

    def rows_of(self, shard: str) -> npt.NDArray[np.int64]:
        """The rows of a shard in which they are, in order."""
        start, end = self._ranges.get(shard, (0, 0))
        return self._rows[start:end]

    def of(self, shard: str, first_row: int = 0, end: int | None = None) -> pa.Table:
        """Gives the dropped documents in these rows of a shard, in order."""
        start, rows = self._ranges.get(shard, (0, 0))[0], self.rows_of(shard)
        first, last = np.searchsorted(rows, [first_row, np.iinfo(np.int64).max if end is None else end])
        return self.table.slice(start + first, last - first)

    def by(self, names: Iterable[str]) -> "Dropped":
        """Gives the documents that are known by one of these names."""
        return Dropped(self.table.filter(self._is_by(names)))

    def but_by(self, names: Iterable[str]) -> "Dropped":
        """Gives the documents that are known by none of these names."""
        return Dropped(self.table.filter(pc.invert(self._is_by(names))))

    def _is_by(self, names: Iterable[str]) -> pa.ChunkedArray:
        return pc.is_in(self.table["by"], value_set=pa.array(names, pa.string()))


_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@cache
def none_dropped() -> Dropped:
    """No documents. Not made as this module is imported, since pyarrow then imports pandas where that is installed."""
    fields = [field.with_type(_DICTIONARY) if field.name in _REPEATED else field for field in SCHEMA]
    return Dropped(pa.schema(fields).empty_table())


def read_dropped(path: Path) -> Dropped:
    """The content of dropped.parquet. Raises ValidationError if it cannot be read or has other columns."""
    try:
        with parquet_file(path) as file:
            schema = file.schema_arrow
        if schema.equals(SCHEMA):
            with parquet_file(path, read_dictionary=_REPEATED) as file:  # read_table would import pyarrow.dataset
                return Dropped(file.read())
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "Run `tokenmill build --force`.") from None
    raise ValidationError(
        path,
        f"expected the columns {', '.join(SCHEMA.names)}; found {', '.join(schema.names)}.",
        "Run `tokenmill build --force`.",
    )


class RecordedRows:
    """The filter that leaves out the documents that dropped.parquet names, by shard and row."""

    def __init__(self, dropped: Dropped) -> None:
        self._dropped = dropped

    def as_key(self) -> None:
        """None, since no unit is made by it (see Filter)."""

    def left_out(self, shard: str, batch: Batch) -> dict[int, Left]:
        """The documents of a batch that are named (see Filter). Raises ValidationError if one has another text or id than the table
        says."""
        start = batch.first_row
        recorded = self._dropped.of(shard, start, start + len(batch.texts))
        if not recorded.num_rows:
            return {}
        indices = pc.subtract(recorded["row"], start).combine_chunks()
        texts = batch.digested.take(indices)
        is_same = pc.and_(texts.is_valid(), pc.equal(text_digests(texts), recorded["sha256"].combine_chunks()))
        if batch.ids is None:
            is_same = pc.and_(is_same, recorded["id"].combine_chunks().is_null())
        else:
            is_id = pc.equal(batch.ids.take(indices).cast(pa.string()), recorded["id"].combine_chunks())
            is_same = pc.and_(is_same, pc.fill_null(is_id, False))
        if (i := is_same.index(False).as_py()) >= 0:
            id, sha256 = recorded["id"][i].as_py(), recorded["sha256"][i].as_py().hex()
            raise ValidationError(
                f"{DROPPED_FILE}: {shard}: row {recorded['row'][i]}",
                f"says that the document {id!r} with the sha256 {sha256[:16]}… is there; found another one.",
                "Run `tokenmill build --force`.",
            )
        why = zip(recorded["reason"].to_pylist(), recorded["by"].to_pylist(), strict=True)
        return {i: Left(*one) for i, one in zip(indices.to_pylist(), why, strict=True)}
