"""Reads small files of plain text, several at once: what it takes to read each as other files are costs more than its text."""

import os
from pathlib import Path

from tokenmill.config.sources import Reading
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.other_kinds import may_be_text
from tokenmill.corpus.units import Piece
from tokenmill_reader.regular_files import open_regular

_FILE_BYTES_MAX = 1 << 16


def small_text(piece: Piece, reading: Reading, limits: Limits) -> str | None:
    """The text of a small file that is one document of plain text. None if it has to be read as other files are: it is of another
    kind, larger, empty, or something is wrong with it, which that way of reading tells."""
    shard = piece.shard
    n_bytes_max = min(_FILE_BYTES_MAX, limits.batch_bytes, limits.document_bytes_max or _FILE_BYTES_MAX)
    if piece.damage is not None or not 0 < shard.n_bytes <= n_bytes_max or not isinstance(shard.path, Path):
        return None
    if reading.text_separator or shard.kind != ("text", ""):
        return None
    try:
        file = open_regular(shard.path)
        try:
            content = os.read(file, shard.n_bytes + 1)
        finally:
            os.close(file)
        is_as_listed = len(content) == shard.n_bytes and may_be_text(content)
        return content.decode("utf-8-sig") or None if is_as_listed else None
    except (OSError, UnicodeDecodeError):
        return None
