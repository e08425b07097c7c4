"""Dropped documents: those that filters left out, kept in a table with shard, row and reason, without their text."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.filter import DroppedDocument, Left
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests
from tokenmill.corpus.units import Unit
from tokenmill.errors import ValidationError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.regular_files import naming, read

DROPPED_FILE = "dropped.parquet"  # in TABLES_DIRECTORY

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("sha256", pa.binary(32), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("by", pa.string(), nullable=False),
    ]
)
"""The columns of dropped.parquet. `row`: the row in the shard, from 0. `id`: null if documents have none. `sha256`: the digest of
the text, or of a conversation's canonical JSON, in UTF-8. `by`: what the filter knows it by, such as its id."""

_UNIT_FILE = "dropped.msgpack"

Starts: TypeAlias = Sequence[tuple[str, int]]
"""The shard of each piece of a unit, and the row in it of the piece's first document."""


def starts_of(unit: Unit) -> Starts:
    """The shards and first rows of a unit's pieces."""
    return [(piece.shard.name, piece.first_row) for piece in unit.pieces]


def piece_dropped(n_pieces: int, dropped: Iterable[DroppedDocument]) -> list[int]:
    """The number of dropped documents of each piece."""
    counts = Counter(one.piece for one in dropped)
    return [counts[i] for i in range(n_pieces)]


def reasons_of(dropped: Iterable[DroppedDocument]) -> dict[str, int]:
    """The number of dropped documents by reason."""
    return dict(sorted(Counter(one.reason for one in dropped).items()))


def write_unit_dropped(dropped: Sequence[DroppedDocument], folder: Path) -> None:
    """Writes the dropped documents of a unit into its folder. Writes no file if there are none."""
    if dropped:
        path = folder / _UNIT_FILE
        with naming(path):
            path.write_bytes(msgspec.msgpack.encode(dropped))


def write_dropped(path: Path, units: Iterable[tuple[Starts, Path]]) -> None:
    """Writes the dropped documents of all units as dropped.parquet; each unit comes with its folder."""
    with (
        write_atomic(path) as partial,
        pq.ParquetWriter(partial, SCHEMA, compression="zstd", write_statistics=False) as writer,
    ):
        for starts, folder in units:
            if (folder / _UNIT_FILE).exists():
                found = msgspec.msgpack.decode(read(folder / _UNIT_FILE), type=list[DroppedDocument])
                rows = [
                    msgspec.structs.asdict(one.moved(starts[one.piece][1])) | {"shard": starts[one.piece][0]}
                    for one in found
                ]
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def read_dropped(path: Path) -> dict[str, list[DroppedDocument]]:
    """The content of dropped.parquet, by shard. Raises ValidationError if it cannot be read or has other columns."""
    dropped: dict[str, list[DroppedDocument]] = {}
    try:
        with parquet_file(path) as file:  # read_table would import pyarrow.dataset
            table = file.read()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValidationError(path, f"cannot be read: {error}.", "Run `tokenmill build --force`.") from None
    if not table.schema.equals(SCHEMA):
        raise ValidationError(
            path,
            f"expected the columns {', '.join(SCHEMA.names)}; found {', '.join(table.schema.names)}.",
            "Run `tokenmill build --force`.",
        )
    for row in table.to_pylist():
        dropped.setdefault(row.pop("shard"), []).append(DroppedDocument(**row))
    return dropped


class RecordedRows:
    """The filter that leaves out the documents that dropped.parquet names, by shard and row."""

    def __init__(self, dropped: Mapping[str, Sequence[DroppedDocument]]) -> None:
        self._by_shard = {name: sorted(some, key=lambda one: one.row) for name, some in dropped.items()}
        self._rows_of = {name: [one.row for one in some] for name, some in self._by_shard.items()}

    def as_key(self) -> None:
        """None, since no unit is made by it (see Filter)."""

    def left_out(self, shard: str, batch: Batch) -> dict[int, Left]:
        """The documents of a batch that are named (see Filter). Raises ValidationError if one has another text or id than the table
        says."""
        rows, texts, ids = self._rows_of.get(shard, []), batch.digested, batch.ids
        start = batch.first_row
        recorded = self._by_shard.get(shard, [])[bisect_left(rows, start) : bisect_left(rows, start + len(texts))]
        for document in recorded:
            i = document.row - start
            id = None if ids is None else ids[i].as_py()
            if not texts[i].is_valid or (id, text_digests(texts.slice(i, 1))[0].as_py()) != (
                document.id,
                document.sha256,
            ):
                raise ValidationError(
                    f"{DROPPED_FILE}: {shard}: row {document.row}",
                    f"says that the document {document.id!r} with the sha256 {document.sha256.hex()[:16]}… is there; found "
                    "another one.",
                    "Run `tokenmill build --force`.",
                )
        return {document.row - start: Left(document.reason, document.by) for document in recorded}
