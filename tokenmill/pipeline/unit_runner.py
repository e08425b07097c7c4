"""Runs the units of validate, which is not yet a generator of rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.config.source_params import Source
from tokenmill.config.sources import DocumentSource
from tokenmill.console import Advance
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Corpus, Unit
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.pools import Pool
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.run import Driver
from tokenmill.rounds import F, Round, Rounds, T, Task
from tokenmill.rounds import do as do_round
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import Done, UnitStore


class Job(NamedTuple):
    """One unit to run. `own`: its further input from the stage. `folder`: an empty folder for its files. `advance`: reports
    finished file bytes and tokens. `check_unchanged`: raises CorpusError if a shard changed since the build began."""

    unit: Unit
    own: Any
    folder: Path
    advance: Advance
    check_unchanged: Callable[[], None]


class _JobTask(Task[Any], frozen=True, kw_only=True):
    do: Callable[[Job], Any]
    own: Any
    whole: Unit

    def run(self, folder: Path, advance: Advance) -> Any:
        return self.do(Job(self.unit or self.whole, self.own, folder, advance, self.check_unchanged))


@dataclass(frozen=True)
class UnitRunner:
    """The documents, unit store, stored digests and workers of one build, and their limits."""

    project: Project
    driver: Driver

    @property
    def root(self) -> Path:
        return self.project.root

    @property
    def source(self) -> Source:
        return self.project.params.source

    @property
    def shards(self) -> Sequence[Shard]:
        return list(self.project.corpus.sha256)

    @property
    def memory(self) -> Memory:
        return self.project.memory

    @property
    def digests(self) -> Digests:
        return self.project.digests

    @property
    def store(self) -> UnitStore:
        return self.project.store

    @property
    def anew(self) -> bool:
        return self.project.force

    @property
    def cache_mb_max(self) -> int:
        return self.project.cache_mb_max

    @property
    def corpus(self) -> Corpus:
        return self.project.corpus

    @property
    def has_ids(self) -> bool:
        return self.project.has_ids

    def sources(self) -> Mapping[str | None, DocumentSource]:
        return self.project.sources

    def drive(self, part: Rounds[T], pool: Pool) -> T:
        return self.driver.drive(part, pool)

    def finish(
        self,
        stage: str,
        do: Callable[[Job], F],
        units: Sequence[Unit],
        keys: Mapping[str, str],
        kind: type[F],
        run_units: Pool,
        own: Mapping[str, Any] | None = None,
    ) -> list[Done[F]]:
        """Runs the missing units, and gives all units as the store has them, with facts of type `kind`."""
        tasks = [
            _JobTask(
                name=unit.name,
                key=keys[unit.name],
                unit=unit if unit.pieces else None,
                seen=self.project.seen(unit),
                do=do,
                own=(own or {}).get(unit.name),
                whole=unit,
            )
            for unit in units
        ]
        return self.driver.drive(do_round(Round(stage, tasks, kind)), run_units)
