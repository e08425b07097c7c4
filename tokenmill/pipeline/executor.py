"""Runs the units of a stage in threads, without an orchestrator."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from tokenmill import _core
from tokenmill.corpus.bad_documents import BadInputError, listed
from tokenmill.corpus.units import Unit
from tokenmill.errors import TokenmillError, UnitsError
from tokenmill.storage.unit_store import Done


class Facts(Protocol):
    """A stage's facts about a finished unit. As a string, they are a short summary."""

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        ...


F = TypeVar("F", bound=Facts)


class RunUnits(Protocol):
    """Runs `do(unit)` for every unit, and gives the results in the order of `units`.

    A unit that fails does not stop the others. At the end its error is raised; if several failed, UnitsError names the first
    twenty errors.
    """

    def __call__(self, stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit]) -> list[Done[F]]: ...


def n_workers(asked: int | None) -> int:
    """The number of units that run at the same time: as asked, or one for each core that this process may use."""
    return asked or len(os.sched_getaffinity(0))


def run_in_threads(workers: int) -> RunUnits:
    """Runs units in threads of this process."""

    def run(stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit]) -> list[Done[F]]:
        with ThreadPoolExecutor(workers, thread_name_prefix=stage) as pool:
            futures: list[Future[Done[F]]] = []
            for unit in units:
                futures.append(pool.submit(do, unit))
            all_done = False
            try:
                wait(futures)
                all_done = True
            finally:
                if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                    pool.shutdown(wait=False, cancel_futures=True)
                    _core.interrupt(True)
            return results(stage, units, futures)

    return run


def results(stage: str, units: Sequence[Unit], futures: Sequence[Any]) -> list[Any]:
    """The results of the units' futures. Raises as RunUnits says; an error that is not a TokenmillError is raised first."""
    failed: list[tuple[Unit, TokenmillError]] = []
    done = []
    for unit, future in zip(units, futures, strict=True):
        try:
            done.append(future.result())
        except TokenmillError as error:
            failed.append((unit, error))
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        codes = {error.code for _, error in failed}
        raise UnitsError(_table(stage, len(units), failed), code=codes.pop() if len(codes) == 1 else None)
    return done


def _table(stage: str, n_units: int, failed: Sequence[tuple[Unit, TokenmillError]]) -> str:
    found: dict[str, list[str]] = {}
    n = 0
    is_all = True
    for unit, error in failed:
        if isinstance(error, BadInputError):
            for name, some in error.first.items():
                found.setdefault(name, []).extend(some)
            n, is_all = n + error.n, is_all and error.is_all
        else:
            found.setdefault(unit.name, []).append(str(error))
            n += 1
    kept = n_units - len(failed)
    head = f"{stage}: {len(failed)} of {n_units} units failed; the results of the other {kept} are kept for the next build."
    lines = [head]
    for name, some in listed(found).items():
        lines += [f"  {name}", *(f"    {one}" for one in some)]
        n -= len(some)
    if n:
        lines.append(f"  and {'' if is_all else 'at least '}{n:,} more")
    return "\n".join(lines)
