"""Provenance of a table of counts: the counted shards, how they were read, and the beginnings of some documents.

It is stored beside the counts, so that training does not need the documents.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tokenmill.config.source_params import Source
from tokenmill.config.sources import Conversations, DocumentFormat, DocumentSource, Reading
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.good_documents import good_batches
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Piece
from tokenmill.errors import CountsError
from tokenmill.storage.atomic import write_atomic
from tokenmill.tokenizer.preparing import Preparation
from tokenmill_reader.regular_files import read

_N_SAMPLES = 32  # the number of samples, at most one per shard
_SAMPLE_CHARACTERS_MAX = 400  # per sample: a published tokenizer contains them, and must not contain whole documents
_SEED = b"tokenmill golden vectors 1"


class CountedShard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shard of the corpus that was counted. `source`: the name of its source, if it has one."""

    name: str
    n_bytes: int
    sha256: str
    source: str | None = None


class CountedSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the shards of a named source were read."""

    text_column: str
    id_column: str | None
    text_separator: str | None
    conversations: Conversations | None = None

    @property
    def reading(self) -> Reading:
        """How files are read that way."""
        return Reading(self.text_column, self.id_column, self.text_separator, self.conversations)


def counted_source(source: DocumentSource) -> CountedSource:
    """How a source is read, for a `Provenance`."""
    reading = source.reading
    return CountedSource(reading.text_column, reading.id_column, reading.text_separator, reading.conversations)


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a table of counts. Columns, separator, conversations and format: how shards without a named source were read.
    `samples`: see `Samples`. `sources`: the named sources. `preparation`: what was done to the texts before; None: nothing."""

    text_column: str
    id_column: str | None
    text_separator: str | None
    shards: list[CountedShard]
    samples: dict[str, str]
    sources: dict[str, CountedSource] = {}
    conversations: Conversations | None = None
    format: DocumentFormat | None = None
    preparation: Preparation | None = None

    def source(self) -> DocumentSource:
        """A source that reads files as the shards without a named source were read."""
        reading = Reading(self.text_column, self.id_column, self.text_separator, self.conversations)
        return DocumentSource(None, (), reading, "as_text", 1.0, None, self.format)

    def readings_of_shards(self) -> dict[str, Reading]:
        """How the shards of named sources were read, by the names of the shards."""
        readings = {name: source.reading for name, source in self.sources.items()}
        return {shard.name: readings[shard.source] for shard in self.shards if shard.source is not None}


class Samples:
    """Beginnings of documents of the corpus, by shard and row. The draw has a fixed seed: the same shards give the same samples.

    Shards are drawn by the hash of their names, and one document from the first batch of each.
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        drawn = sorted(shards, key=lambda shard: _hash(shard.name))[:_N_SAMPLES]
        self._drawn = {shard.name: shard for shard in drawn}
        self._found: dict[str, tuple[str, str]] = {}

    def offer(self, pieces: Sequence[Piece], batch: Batch) -> None:
        """Takes samples from a batch, if it is the first non-empty one of a drawn shard."""
        for number, documents in batch.by_piece():
            piece, n_documents = pieces[number], len(documents.texts)
            name = piece.shard.name
            if piece.part is None and name in self._drawn and name not in self._found and n_documents:
                i = int(_hash(f"{name} row"), 16) % n_documents
                text = documents.texts[i].as_py()[:_SAMPLE_CHARACTERS_MAX]
                self._found[name] = f"corpus/{name}/{documents.rows()[i]}", text

    def texts(self, source: Source, limits: Limits, filters: Filters) -> dict[str, str]:
        """The texts of the samples, by shard and row. Reads drawn shards that were not offered, without the documents that
        filters leave out.

        Raises CorpusError."""
        for name, shard in self._drawn.items():
            batches = () if name in self._found else good_batches(shard, source, filters, limits)
            if batch := next((one for one in batches if len(one.texts)), None):
                self.offer([Piece(shard, None, "")], batch)
        return dict(found for _, found in sorted(self._found.items()))


def write_provenance(provenance: Provenance, path: Path) -> None:
    """Writes the provenance as JSON. The same provenance gives the same bytes."""
    with write_atomic(path) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(provenance), indent=1) + b"\n")


def read_provenance(path: Path) -> Provenance:
    """The provenance that `write_provenance` wrote. Raises CountsError if it is missing or malformed."""
    try:
        return msgspec.json.decode(read(path), type=Provenance)
    except FileNotFoundError:
        raise CountsError(
            path,
            "missing: an older tokenmill made the counts, or the tokenizer was imported and nothing was counted.",
            "Run `tokenmill build --only count`.",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CountsError(path, f"{error}.", "Delete the file and run `tokenmill build`.") from None


def _hash(text: str) -> str:
    return hashlib.sha256(_SEED + text.encode()).hexdigest()
