"""The values of one build that its stages share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.filter import DocumentList, Filters
from tokenmill.corpus.units import Corpus, Unit
from tokenmill.filters import asked_filters, asked_lists
from tokenmill.pipeline.memory import Memory
from tokenmill.rounds import Seen
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import UnitStore


@dataclass(frozen=True)
class Project:
    """A project while it is built. `corpus`: its documents in units. `digests`: facts about its files. `store`: finished units.
    `force`: whether the build runs finished units again. `recorded`: gives the files that a stage's last run made, by name
    relative to `root`, with their paths in DVC's cache."""

    root: Path
    params: Params
    corpus: Corpus
    memory: Memory
    digests: Digests
    store: UnitStore
    force: bool
    recorded: Callable[[str], Mapping[str, Path]]

    @property
    def units(self) -> list[Unit]:
        """The units, sorted by the names of their outputs."""
        return self.corpus.units

    @property
    def sources(self) -> Mapping[str | None, DocumentSource]:
        """The sources that have documents, sorted by name; under None the source without a name."""
        found = {shard.source.name: shard.source for shard in self.corpus.sha256 if shard.source is not None}
        return dict(sorted(found.items(), key=lambda one: one[0] or ""))

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; else their ids are rows."""
        return any(source.reading.id_column is not None for source in self.sources.values())

    @property
    def cache_mb_max(self) -> int:
        """The limit of an encoder's pre-token cache in memory."""
        return min(self.params.run.cache_mb_max, self.memory.kept_mb * self.memory.workers)

    def seen(self, unit: Unit) -> Seen:
        """The signatures of the unit's files when their digests were found, on which the keys of its tasks rest."""
        return {piece.shard.path: self.corpus.seen[piece.shard.path] for piece in unit.pieces}

    def read_lists(self) -> dict[str, DocumentList]:
        """Reads the lists of documents to leave out, by their names; empty ones, too. Raises CorpusError."""
        return asked_lists(self.root, self.params.source, self.has_ids)

    def read_filters(self) -> Filters:
        """What says which documents are left out. Raises CorpusError."""
        return asked_filters(self.root, self.params.source, self.has_ids)
