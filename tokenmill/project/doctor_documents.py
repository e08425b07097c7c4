"""The advice of `tokenmill doctor` if the folders of data/raw have their texts in different columns."""

import json
import re
from collections.abc import Sequence

from tokenmill.config.sources import Reading
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Shard, read_batches
from tokenmill.corpus.units import source_folder
from tokenmill.errors import CorpusError
from tokenmill.layout import RAW_DIRECTORY

_TEXT_COLUMNS = ("text", "content", "body", "document", "raw_content", "markdown", "code", "article", "story")
_LIMITS = Limits(document_bytes_max=1 << 24, block_bytes_max=1 << 26, batch_bytes=1 << 16)  # more is left to the build


def named_sources(looked: Sequence[tuple[Shard, str | None]]) -> str | None:
    """The `sources` to write into params.yaml if the folders of data/raw have their texts in different columns; None if not, or if
    a folder mixes kinds. `looked`: see FirstRows."""
    column_of: dict[str, str | None] = {}  # by folder; None: source.text_column
    for shard, setting in looked:
        source, folder = shard.source, source_folder(shard.name)
        if source is None or source.name or not shard.name.startswith(f"{RAW_DIRECTORY}/"):
            return None
        column = None
        if setting is not None and (setting != "source.text_column" or not (column := _text_column(shard))):
            return None
        if column_of.setdefault(folder, column) != column:
            return None
    if len(set(column_of.values())) < 2:
        return None
    named = {}
    for folder, column in sorted(column_of.items()):
        glob = f"{RAW_DIRECTORY}/{folder}/**/*" if folder else f"{RAW_DIRECTORY}/*"
        name = re.sub("[^a-z0-9_-]", "_", folder.lower()).lstrip("_-") or "main"
        named[name] = f"{{glob: {json.dumps(glob)}{f', text_column: {json.dumps(column)}' if column else ''}}}"
    shown = ", ".join(f"{name}: {value}" for name, value in named.items())
    return (
        f"Give each folder its own columns: write `sources: {{{shown}}}` into params.yaml in place of `sources: {{}}`."
    )


def _text_column(shard: Shard) -> str | None:
    """The column or key of a file that seems to have its texts: the first with a usual name that can be read as one."""
    assert shard.source is not None
    reading = shard.source.reading
    for column in _TEXT_COLUMNS:
        if column != reading.id_column:
            try:
                tried = Reading(column, reading.id_column, reading.text_separator)
                next(read_batches(shard, tried, limits=_LIMITS), None)
            except CorpusError:
                continue
            return column
    return None
