"""What decides a unit's bytes in its documents, for keys of the unit store."""

from typing import Any

from tokenmill.corpus.units import Piece, Unit


def content(unit: Unit, with_rows: bool) -> list[Any]:
    """What decides a unit's bytes in its input: digests, formats, ranges; with `with_rows` also its first row in each shard."""
    return [_content(piece, with_rows) for piece in unit.pieces]


def _content(piece: Piece, with_rows: bool) -> list[Any]:
    shard, part = piece.shard, piece.part
    if part is None:
        return [
            shard.kind.suffix,
            piece.digest,
            None,
            0,
            *([] if shard.ids_from_name is None else [shard.ids_from_name]),
        ]
    is_lines = shard.kind.is_cut_at_lines  # a part's digest covers its lines, not their position
    span = ["lines", part.first_line == 1] if is_lines else ["row groups", part.start, part.stop]
    return [shard.kind.suffix, piece.digest, span, part.first_row if with_rows else 0]
