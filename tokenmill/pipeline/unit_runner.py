"""Gets the units of a stage done: finished units come from the unit store, and the others are run."""

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

    `recorded`: the files that a stage made when it ran last, by their names relative to `root`, with their present paths.
    `cache_mb_max`: the size of an encoder's pre-token cache. `unit_timeout_s`: the time limit of one unit. `anew`: run finished
    units again. `cause_of`: for the documents, a function that says why a stage makes a unit again; or None, where nobody asks.
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
    """The file bytes of the units that each stage did, and did not find finished."""

    def sources(self) -> dict[str | None, DocumentSource]:
        """The sources of the documents by name; the one without a name has None."""
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
        """As `cause_of` gives it for this build's first stage: `encode` replaces the dataset that it compares with."""
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
        """Each unit as it is in the unit store, with facts of type `kind`.

        `keys`: the key of each unit, by its name; units with equal keys are one. A finished unit is used if its facts satisfy
        `fits`. `do` makes a unit's files, and returns its facts; `run_units` has it called for each unit (see UnitWork).
        `own`: what `do` needs for each unit, by its name. `shown`: shows how much is done. Raises what `do` raises, after all
        other units are done.
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
                if unit.pieces:  # a sum has none
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
    """The part of a unit's input that decides its bytes: digests, formats, ranges; `with_rows` adds its first row in each shard."""
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
    is_lines = shard.kind.is_cut_at_lines  # a part's digest covers its lines, wherever in the file they are
    span = ["lines", part.first_line == 1] if is_lines else ["row groups", part.start, part.stop]
    return [shard.kind.suffix, piece.digest, span, part.first_row if with_rows else 0]
