"""Runs units of a stage in any thread, process or machine that sees the project's folder."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import msgspec

from tokenmill import _core
from tokenmill.console import Advance, say_more
from tokenmill.corpus.bad_documents import PieceDamagedError
from tokenmill.corpus.units import Unit
from tokenmill.errors import ClusterError, PassingError, TokenmillError, UnitTimeoutError
from tokenmill.layout import PARAMS_FILE
from tokenmill.pipeline.code_digest import units_digest
from tokenmill.storage.file_facts import Signature, check_unchanged
from tokenmill.storage.retries import wait_after
from tokenmill.storage.unit_store import Done, UnitStore
from tokenmill.storage.urls import StoredObject


class Facts(Protocol):
    """A stage's facts about a finished unit. As a string, they are a short summary."""

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the unit's quarantine."""
        ...


F = TypeVar("F", bound=Facts)

Outcome = Done[F] | TokenmillError
"""A finished unit in the store, or the error that stopped it."""


class Job(NamedTuple):
    """One unit to run. `own`: its further input from the stage. `folder`: an empty folder for its files. `advance`: reports
    finished file bytes and tokens. `check_unchanged`: raises CorpusError if a shard changed since the build began."""

    unit: Unit
    own: Any
    folder: Path
    advance: Advance
    check_unchanged: Callable[[], None]


Do = Callable[[Job], F]
"""Makes the files of a unit, and returns its facts. For a cluster it must be picklable: a module's function with arguments that are
small or are pickled as paths (like a Tokenizer)."""


class UnitWork(msgspec.Struct, Generic[F], frozen=True):
    """Runs units: looks each up in the store, computes missing ones, retries transient failures. Picklable. `keys`, `own`: each
    unit's key and further input, by unit name. `seen`: the signatures of the shards' files when the build began. `kind`, `fits`:
    the type of facts, and whether a stored unit's facts allow using it.

    `code`: the digest of the build's code, in a copy for a cluster's worker; None in the build's own process. `threads`: how many
    units such a worker runs at once. `sign`: a file that this build made, by which a worker checks that it sees the same folder;
    None for workers on the same machine.
    """

    stage: str
    root: Path
    do: Do[F]
    keys: Mapping[str, str]
    own: Mapping[str, Any]
    seen: Mapping[Path | StoredObject, Signature]
    store: UnitStore
    kind: type[F]
    fits: Callable[[F], bool]
    unit_timeout_s: float | None
    anew: bool
    advance: Advance
    code: str | None = None
    threads: int = 1
    sign: Path | None = None

    def for_worker(self, units: Sequence[Unit], threads: int, sign: Path | None = None) -> "UnitWork[F]":
        """A copy that holds only these units, for another process. It shows no progress."""
        names = [unit.name for unit in units]
        paths = {piece.shard.path for unit in units for piece in unit.pieces}
        return msgspec.structs.replace(
            self,
            keys={name: self.keys[name] for name in names},
            own={name: self.own[name] for name in names if name in self.own},
            seen={path: self.seen[path] for path in paths},
            advance=advance_nothing,
            code=units_digest(),
            threads=threads,
            sign=sign,
        )

    def __dask_tokenize__(self) -> str:
        """A unique name. Dask would otherwise hash all keys, which takes the build 1 ms per unit."""
        return uuid4().hex

    def outcomes(self, units: Sequence[Unit]) -> list[Outcome[F]]:
        """Runs the units; a failing unit does not stop the others. Raises ClusterError on a worker that cannot run any."""
        if self.code is None:
            return [self.outcome(unit) for unit in units]
        self._check_worker(self.code)
        with ThreadPoolExecutor(self.threads) as pool:
            done = list(pool.map(self.outcome, units))
        self.store.flush()
        return done

    def outcome(self, unit: Unit) -> Outcome[F]:
        """Gives the unit from the store, running it first if it is missing; or the error that stopped it."""
        try:
            return self._done(unit)
        except TokenmillError as error:
            return error

    def _done(self, unit: Unit) -> Done[F]:
        """Runs a unit. Repeats it without a piece that turns out damaged, and unchanged after a PassingError (see
        tokenmill.storage.retries)."""
        key, rest, n_tried, start_s = self.keys[unit.name], unit, 0, time.monotonic()
        # When a worker dies, a cluster reruns all its units elsewhere, even finished ones.
        found = None if self.anew else self.store.find(key, self.kind)
        kept = found if found and self.fits(found.facts) else None
        while kept is None:
            try:
                with self._in_time(unit), self.store.new(key) as partial:
                    facts = self.do(
                        Job(rest, self.own.get(unit.name), partial, self.advance, lambda: self._check_unchanged(unit))
                    )
                    self._check_unchanged(unit)
                    kept = self.store.keep(key, partial, facts)
            except PieceDamagedError as error:
                rest = error.rest  # starts over, because files and sums contain part of the damaged piece
            except PassingError as error:
                wait_after(error, n_tried := n_tried + 1)
        say_more(f"{self.stage} {unit.name}: {kept.facts}, {time.monotonic() - start_s:.1f} s")
        return kept

    def _check_unchanged(self, unit: Unit) -> None:
        for piece in unit.pieces:  # a changed shard would store bytes that do not belong to the key
            check_unchanged(piece.shard.path, self.seen[piece.shard.path])

    @contextmanager
    def _in_time(self, unit: Unit) -> Iterator[None]:
        """Stops the core's calls in the block at the time limit. Each batch of documents is one call. Raises UnitTimeoutError."""
        _core.deadline(self.unit_timeout_s if unit.pieces else None)  # a sum reads no documents, so it has no limit
        try:
            yield
        except UnitTimeoutError:
            raise UnitTimeoutError(
                f"{self.stage} {unit.name}: not done after {self.unit_timeout_s:g} s. Look at its documents, or raise "
                "run.unit_timeout_s.",
                where=f"{self.stage} {unit.name}",
            ) from None
        finally:
            _core.deadline(None)

    def _check_worker(self, code: str) -> None:
        host = gethostname()
        if not (self.sign or self.root / PARAMS_FILE).is_file():
            raise ClusterError(
                f"the worker on {host} does not see this project in {self.root}. Keep the project in a folder that all machines of "
                "the cluster have under the same path, and build again."
            )
        if code != units_digest():
            raise ClusterError(
                f"the worker on {host} has another tokenmill than the build, which would make other bytes. Install the same "
                "version there, restart the worker, and build again."
            )


def advance_nothing(n_bytes: int, n_tokens: int) -> None:
    """Shows no progress."""
