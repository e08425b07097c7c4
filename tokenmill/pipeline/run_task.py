"""Runs tasks in any thread, process or machine that sees the project's folder: retries, time limits, and the unit store."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import Generic, NamedTuple

import msgspec

from tokenmill import _core
from tokenmill.console import Advance, say_more
from tokenmill.corpus.bad_documents import PieceDamagedError
from tokenmill.errors import ClusterError, PassingError, TokenmillError, UnitTimeoutError
from tokenmill.layout import PARAMS_FILE
from tokenmill.pipeline.code_digest import units_digest
from tokenmill.rounds import F, Outcome, Task
from tokenmill.storage.retries import wait_after
from tokenmill.storage.unit_store import Done, UnitStore


class Remote(NamedTuple):
    """How a process of a cluster runs tasks. `code`: the digest of the build's code, which the worker must have. `threads`: the
    number of tasks that it runs at once. `sign`: a file that this build made in the project's folder, which the worker must see;
    None for workers on the same machine."""

    code: str
    threads: int
    sign: Path | None


class TaskRunner(msgspec.Struct, Generic[F], frozen=True):
    """Runs the tasks of one round. It can be pickled.

    `round`, `facts`, `is_acceptable`: those of the Round. `force`: whether to run tasks whose results are stored. `timeout_s`: the
    time limit of a task that reads documents; None: no limit. `remote`: for a worker of a cluster; None in the build's own process.
    """

    round: str
    facts: type[F]
    is_acceptable: Callable[[F], bool]
    root: Path
    store: UnitStore
    force: bool
    timeout_s: float | None
    advance: Advance
    remote: Remote | None = None

    def for_worker(self, threads: int, sign: Path | None) -> "TaskRunner[F]":
        """A copy for a process of a cluster, which shows no progress."""
        return msgspec.structs.replace(self, advance=advance_nothing, remote=Remote(units_digest(), threads, sign))

    def outcomes(self, tasks: Sequence[Task[F]]) -> list[Outcome[F]]:
        """Runs the tasks; a failing one does not stop the others. Raises ClusterError on a worker that cannot run any."""
        if self.remote is None:
            return list(map(self.outcome, tasks))
        _check_worker(self.root, self.remote)
        with ThreadPoolExecutor(self.remote.threads) as pool:
            found = list(pool.map(self.outcome, tasks))
        self.store.flush()
        return found

    def outcome(self, task: Task[F]) -> Outcome[F]:
        """Gives the task's result from the store, running it first if it is missing; or the error that stopped it.

        A task is repeated without a piece that turns out damaged, and unchanged after a PassingError (see
        tokenmill.storage.retries)."""
        start_s, n_tried = time.monotonic(), 0
        try:
            done = self.stored(task)  # when a worker dies, a cluster reruns all its tasks elsewhere, even finished ones
            while done is None:
                try:
                    with self._in_time(task), self.store.new(task.key) as folder:
                        facts = task.run(folder, self.advance)
                        task.check_unchanged()
                        done = self.store.keep(task.key, folder, facts)
                except PieceDamagedError as error:
                    # Starts over, because files and sums contain part of the damaged piece.
                    task = msgspec.structs.replace(task, unit=error.rest)
                except PassingError as error:
                    wait_after(error, n_tried := n_tried + 1)
        except TokenmillError as error:
            return error
        say_more(f"{self.round} {task.name}: {done.facts}, {time.monotonic() - start_s:.1f} s")
        return done

    def stored(self, task: Task[F]) -> Done[F] | None:
        """The stored result of a task, if this build may use it."""
        return None if self.force else stored(self.store, task.key, self.facts, self.is_acceptable)

    @contextmanager
    def _in_time(self, task: Task[F]) -> Iterator[None]:
        """Stops the core's calls in the block at the time limit. Each batch of documents is one call. Raises UnitTimeoutError."""
        _core.deadline(None if task.unit is None else self.timeout_s)
        try:
            yield
        except UnitTimeoutError:
            raise UnitTimeoutError(
                f"{self.round} {task.name}",
                f"not done after {self.timeout_s:g} s.",
                "Look at its documents, or raise run.unit_timeout_s.",
            ) from None
        finally:
            _core.deadline(None)


def stored(store: UnitStore, key: str, facts: type[F], is_acceptable: Callable[[F], bool]) -> Done[F] | None:
    """The result under a key, if a build with that `is_acceptable` (see Round) may use it."""
    found = store.find(key, facts)
    return found if found is not None and is_acceptable(found.facts) else None


def advance_nothing(n_bytes: int, n_tokens: int) -> None:
    """Shows no progress."""


def _check_worker(root: Path, remote: Remote) -> None:
    """Raises ClusterError if this worker does not see the project's folder, or has another tokenmill than the build."""
    host = gethostname()
    if not (remote.sign or root / PARAMS_FILE).is_file():
        raise ClusterError(
            "",
            f"the worker on {host} does not see this project in {root}.",
            "Keep the project in a folder that all machines of the cluster have under the same path, and build again.",
        )
    if remote.code != units_digest():
        raise ClusterError(
            "",
            f"the worker on {host} has another tokenmill than the build, which would make other bytes.",
            "Install the same version there, restart the worker, and build again.",
        )
