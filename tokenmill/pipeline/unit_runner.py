"""Where a stage gets its units done: those that are finished come from the unit store, the others are carried out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenmill import _core
from tokenmill.config.params import Source
from tokenmill.console import say
from tokenmill.corpus.quarantine import PieceDamagedError
from tokenmill.corpus.shards import SUFFIXES, Shard
from tokenmill.corpus.units import Corpus, Piece, Unit, cut
from tokenmill.errors import UnitTimeoutError
from tokenmill.pipeline.executor import F, RunUnits
from tokenmill.pipeline.memory import Memory
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import Done, UnitStore


@dataclass(frozen=True)
class UnitRunner:
    """The documents, the unit store, the remembered digests, the workers of one build and what they hold.

    `recorded`: the files that a stage made when it ran last, where they are now, by their names seen from `root`;
    `cache_mb_max`: what an encoder may remember of pre-tokens; `unit_timeout_s`: what one unit may take; `anew`: do
    finished units again, too.
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

    @cached_property
    def corpus(self) -> Corpus:
        """The units of the documents as they were when this was first asked for. Raises CorpusError, Stopped."""
        return cut(
            self.shards,
            self.digests,
            self.source.unit_bytes_min,
            self.source.unit_bytes_max,
            self.memory.workers,
        )

    def finish(
        self,
        stage: str,
        do: Callable[[Unit, Path], F],
        units: Sequence[Unit],
        keys: Mapping[str, str],
        kind: type[F],
        run_units: RunUnits,
        skip: Callable[[int], None] = lambda n_bytes: None,
        fits: Callable[[F], bool] = lambda facts: True,
    ) -> list[Done[F]]:
        """Each unit as the store has it, with facts of type `kind`.

        `keys`: of each unit, by its name; units of one key are one. A finished unit is taken if its facts fit; `skip` is told
        the bytes of those. `do` makes a unit's files in the folder it is given, and gives its facts back; `run_units` calls it for
        each, and once more, without the piece, where one turns out damaged.

        Raises what `do` raises, after all units that can be done are done.
        """
        done: dict[str, Done[F]] = {}
        todo: dict[str, Unit] = {}
        finished = []
        for unit in units:
            key = keys[unit.name]
            found = None if self.anew or key in done else self.store.find(key, kind)
            if found and fits(found.facts):
                done[key] = found
            if key in done:
                finished.append(unit)
            else:
                todo.setdefault(key, unit)
        skip(sum(unit.n_bytes for unit in units) - sum(unit.n_bytes for unit in todo.values()))
        if done:
            say(f"{stage}: {len(todo):,} of {len(units):,} units to do; the others are finished already")

        def one(unit: Unit) -> Done[F]:
            key = keys[unit.name]
            with self._in_time(stage, unit), self.store.new(key) as partial:
                facts, rest = None, unit
                while facts is None:
                    try:
                        facts = do(rest, partial)
                    except PieceDamagedError as error:
                        rest = error.rest  # what was made of the damaged piece is in the unit's files and sums
                for piece in unit.pieces:  # else other bytes than those of its key would be kept under it
                    self.digests.check_unchanged(piece.shard.path)
                return self.store.keep(key, partial, facts)

        try:
            done |= zip(todo, run_units(stage, one, list(todo.values()), finished), strict=True)
        finally:
            self.store.flush()
        return [done[keys[unit.name]] for unit in units]

    @contextmanager
    def _in_time(self, stage: str, unit: Unit) -> Iterator[None]:
        """The core's calls in the block end when it takes too long: each batch of documents is one. Raises UnitTimeoutError."""
        _core.deadline(self.unit_timeout_s if unit.pieces else None)  # a sum has no documents that could be the reason
        try:
            yield
        except UnitTimeoutError:
            raise UnitTimeoutError(
                f"{stage} {unit.name}: not done after {self.unit_timeout_s:g} s. Look at its documents, or raise "
                "run.unit_timeout_s."
            ) from None
        finally:
            _core.deadline(None)


def content(unit: Unit, with_rows: bool) -> list[Any]:
    """What of its input decides a unit's bytes: digests, formats, ranges; and with `with_rows`, where it starts in its shards."""
    return [_content(piece, with_rows) for piece in unit.pieces]


def _content(piece: Piece, with_rows: bool) -> list[Any]:
    suffix = next(suffix for suffix in SUFFIXES if piece.shard.name.endswith(suffix))
    part = piece.part
    if part is None:
        return [suffix, piece.digest, None, 0]
    is_lines = piece.shard.name.endswith(".jsonl")  # their digest is of the part alone, wherever it stands in the file
    span = ["lines", part.first_line == 1] if is_lines else ["row groups", part.start, part.stop]
    return [suffix, piece.digest, span, part.first_row if with_rows else 0]
