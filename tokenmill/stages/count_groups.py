"""count.by: the groups of documents whose pre-tokens are also counted by themselves."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.count_params import BY_SOURCES
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit, source_name
from tokenmill.errors import CorpusError, ParamsError

GROUPS_MAX = 1000
"""The most groups. A column with more values, such as one of ids, is a mistake."""


def refuse_groups(units: Sequence[Unit], by: str | None) -> None:
    """Raises ParamsError or CorpusError for a column whose values cannot be read."""
    if by is None or by == BY_SOURCES:
        return
    for piece in (piece for unit in units for piece in unit.pieces):
        source = piece.shard.source
        if not piece.shard.kind.has_columns:
            raise CorpusError(
                piece.shard.name,
                f"plain text has no column {by!r}, which count.by names.",
                f"Set count.by to {BY_SOURCES}, with a source or a folder for each group.",
            )
        if source is not None and source.reading.conversations is None and source.reading.text_column == by:
            raise ParamsError("count.by", f"{by!r} is the column of the texts.", "Name the column of the groups.")


def _groups(by: str) -> Column:
    return Column(by, "count.by")


def reading_of(unit: Unit, by: str | None) -> Reading:
    """How the unit is read, with the column of the groups beside the documents."""
    reading = unit.source.reading
    return reading if by is None or by == BY_SOURCES else replace(reading, columns=(_groups(by),))


def groups_in(unit: Unit, batch: Batch, by: str | None) -> Iterator[tuple[int, str, pa.LargeStringArray]]:
    """The texts of a batch by piece and group: the index of the piece, the name of the group ("" without `by`), and the texts.
    `batch`: read as `reading_of` says."""
    if by is None and len(unit.pieces) == 1:
        yield 0, "", batch.texts
        return
    for piece, documents in batch.by_piece():
        if by is None:
            yield piece, "", documents.texts
        elif by == BY_SOURCES:
            yield piece, source_name(unit.pieces[piece].shard), documents.texts
        else:
            groups = documents.columns[_groups(by)]
            for name in pc.unique(groups):
                yield piece, name.as_py(), documents.texts.filter(pc.equal(groups, name))


def refuse_many(names: Collection[str], by: str | None) -> None:
    """Raises ParamsError for more than GROUPS_MAX groups."""
    if len(names) > GROUPS_MAX:
        raise ParamsError(
            "count.by",
            f"{by!r} has more than {GROUPS_MAX:,} values; expected a few, such as languages.",
            "Name the column of the groups.",
        )
