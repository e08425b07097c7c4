"""Runs the units of a stage that the unit store does not have."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenmill.config.params import Source
from tokenmill.config.sources import DocumentSource
from tokenmill.console import Progress, say, say_more
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Corpus, Piece, Unit, cut
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.unit_work import Do, F, UnitWork, advance_nothing
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import Done, UnitStore


@dataclass(frozen=True)
class UnitRunner:
    """The documents, unit store, stored digests and workers of one build, and their limits.

    `recorded`: gives the files that a stage's last run made, by name relative to `root`, with their present paths. `cache_mb_max`:
    the limit of an encoder's pre-token cache. `unit_timeout_s`: the time limit of one unit. `anew`: whether to run finished units
    again. `cause_of`: gives a function that says why a unit is made again, or None.
    """

    root: Path
    source: Source
    shards: Sequence[Shard]
    memory: Memory
    digests: Digests
    store: UnitStore
    recorded: Callable[[str], dict[str, Path]]
    cache_mb_max: int
    unit_timeout_s: float | None
    anew: bool
    cause_of: Callable[[Corpus], Callable[[str, Unit], str] | None]
    done_bytes: Counter[str] = field(default_factory=Counter, init=False)
    """The file bytes of the units that each stage ran."""

    def sources(self) -> dict[str | None, DocumentSource]:
        """The sources of the documents by name, None for the source without a name."""
        found = {one.source.name: one.source for one in self.shards if one.source is not None}
        return dict(sorted(found.items(), key=lambda one: one[0] or ""))

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; else their ids are rows."""
        return any(one.id_column is not None for one in self.sources().values())

    @cached_property
    def corpus(self) -> Corpus:
        """The units of the documents, cut on first access. Raises CorpusError or Stopped."""
        return cut(
            self.shards,
            self.digests,
            self.source.unit_bytes_min,
            self.source.unit_bytes_max,
            self.memory.own_threads,
        )

    @cached_property
    def _cause(self) -> Callable[[str, Unit], str] | None:
        """The result of `cause_of`, kept because `encode` replaces the dataset that it compares with."""
        return self.cause_of(self.corpus)

    def finish(
        self,
        stage: str,
        do: Do[F],
        units: Sequence[Unit],
        keys: Mapping[str, str],
        kind: type[F],
        run_units: RunUnits,
        own: Mapping[str, Any] | None = None,
        shown: Progress | None = None,
        fits: Callable[[F], bool] = lambda facts: True,
    ) -> list[Done[F]]:
        """Runs the missing units, and gives all units as the store has them, with facts of type `kind`.

        `keys`: each unit's key, by unit name; units with equal keys are run once. `fits`: says whether a stored unit's facts allow
        using it. `do`: makes a unit's files and returns its facts; called by `run_units` (see UnitWork). `own`: what `do` needs for
        each unit, by name. `shown`: the progress display. Raises what `do` raises, after all other units are done.
        """
        done: dict[str, Done[F]] = {}
        todo: dict[str, Unit] = {}
        for unit in units:
            key = keys[unit.name]
            found = None if self.anew or key in done else self.store.find(key, kind)
            if found and fits(found.facts):
                done[key] = found
            if key not in done:
                todo.setdefault(key, unit)
        if shown is not None:
            shown.skip(sum(unit.n_bytes for unit in units) - sum(unit.n_bytes for unit in todo.values()))
        if done:
            say(f"{stage}: {len(todo):,} of {len(units):,} units to do; the others are finished already")
        if self._cause is not None and not self.anew:
            for unit in todo.values():
                if unit.pieces:  # sums have no pieces
                    say_more(f"{stage} {unit.name}: to do: {self._cause(stage, unit)}")
        work = UnitWork(
            stage,
            self.root,
            do,
            keys,
            own or {},
            self.digests.seen,
            self.store,
            kind,
            fits,
            self.unit_timeout_s,
            self.anew,
            advance_nothing if shown is None else shown.add,
        )
        self.done_bytes[stage] += sum(unit.n_bytes for unit in todo.values())
        try:
            done |= zip(todo, run_units(stage, work, list(todo.values())), strict=True)
        finally:
            self.store.flush()
        return [done[keys[unit.name]] for unit in units]


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
