"""Units of files that are made here, and their documents."""

from pathlib import Path

from tokenmill.config.source_params import Source
from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Piece, Unit

SOURCE = DocumentSource(None, (), Reading("text", "id"), "as_text", 1.0, None)
LIMITS = Limits(10_000, 10_000)


def unit_of(folder: Path, files: dict[str, bytes]) -> Unit:
    """A unit whose pieces are these files, by their names."""
    pieces = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        pieces.append(Piece(Shard(folder / name, name, len(content), SOURCE), None, ""))
    return Unit("unit", "unit", tuple(pieces))


def documents_of(
    unit: Unit,
    filters: Filters,
    limits: Limits = LIMITS,
    on_bad: str = "quarantine",
    folder: Path | None = None,
    reading: Reading | None = None,
) -> GoodDocuments:
    """The documents of a unit without those that filters leave out, which go to `folder`."""
    source = Source.model_construct(on_bad_document=on_bad, on_bad_shard="fail")
    return GoodDocuments(unit, source, limits, lambda _bytes, _tokens: None, filters, reading, folder)
