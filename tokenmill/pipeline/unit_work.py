"""The work on the units of a stage, which may be done in any thread, process or machine that sees the project's folder."""

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
        """The number of documents and pieces in the quarantine."""
        ...


F = TypeVar("F", bound=Facts)

Outcome = Done[F] | TokenmillError
"""A unit as it is in the unit store, or why it could not be done."""


class Job(NamedTuple):
    """One unit to do. `own`: what else it needs, as the stage gave it. `folder`: empty, for its files. `advance`: takes the file
    bytes and tokens that are done. `check_unchanged`: raises CorpusError if a shard is not as it was when the build began."""

    unit: Unit
    own: Any
    folder: Path
    advance: Advance
    check_unchanged: Callable[[], None]


Do = Callable[[Job], F]
"""Makes the files of a unit, and returns its facts. For a cluster it has to be serializable: a function of a module, with values
that are small or travel as their paths (as a Tokenizer does)."""


class UnitWork(msgspec.Struct, Generic[F], frozen=True):
    """What does the units of a stage. `keys` and `own`: of each unit, by its name. `seen`: the signature of each shard's file.
    `kind`, `fits`: a unit that is in the store is not done again if its facts are of this kind and satisfy this.

    `code`: the digest of the code that started the build, if this is a copy for a worker of a cluster; None in the build's own
    process. `threads`: the number of units that such a worker does at the same time. `sign`: a file that it has to see, which this
    build alone has; None for workers on the same machine.
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
        """The same for these units alone, for another process. It shows no progress."""
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
        """A name that no other work has: Dask would read all keys to make one, which takes 1 ms a unit of the build's time."""
        return uuid4().hex

    def outcomes(self, units: Sequence[Unit]) -> list[Outcome[F]]:
        """Does these units. One that fails does not stop the others. Raises ClusterError on a worker that cannot do any."""
        if self.code is None:
            return [self.outcome(unit) for unit in units]
        self._check_worker(self.code)
        with ThreadPoolExecutor(self.threads) as pool:
            done = list(pool.map(self.outcome, units))
        self.store.flush()
        return done

    def outcome(self, unit: Unit) -> Outcome[F]:
        """The unit as it is in the unit store, done now if it is not there; or why it could not be done."""
        try:
            return self._done(unit)
        except TokenmillError as error:
            return error

    def _done(self, unit: Unit) -> Done[F]:
        """If a piece turns out damaged, the unit is done again without that piece, and after a PassingError as it is (see
        tokenmill.storage.retries)."""
        key, rest, n_tried, start_s = self.keys[unit.name], unit, 0, time.monotonic()
        # A cluster gives the units of a worker that died to another one, finished or not.
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
                rest = error.rest  # starts over, because the files and sums contain part of the damaged piece
            except PassingError as error:
                wait_after(error, n_tried := n_tried + 1)
        say_more(f"{self.stage} {unit.name}: {kept.facts}, {time.monotonic() - start_s:.1f} s")
        return kept

    def _check_unchanged(self, unit: Unit) -> None:
        for piece in unit.pieces:  # a changed shard would store bytes that do not belong to the key
            check_unchanged(piece.shard.path, self.seen[piece.shard.path])

    @contextmanager
    def _in_time(self, unit: Unit) -> Iterator[None]:
        """Ends the core's calls in the block at the time limit; each batch of documents is a call. Raises UnitTimeoutError."""
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
