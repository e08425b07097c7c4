"""How the units of a stage are carried out, without an orchestrator."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Protocol, TypeVar

from tokenmill import _core
from tokenmill.corpus.quarantine import BadInputError, listed
from tokenmill.corpus.units import Unit
from tokenmill.errors import TokenmillError, UnitsError
from tokenmill.storage.retries import with_retries
from tokenmill.storage.unit_store import Done


class Facts(Protocol):
    """What a stage knows of a unit that is done; as a string, in a few words."""

    @property
    def n_left_out(self) -> int:
        """Documents and pieces that were left out of it."""
        ...


F = TypeVar("F", bound=Facts)


class RunUnits(Protocol):
    """Does `do(unit)` for every unit; what comes back is in the order of `units`. `finished`: units that need no doing.

    One that raises PassingError is tried again (see tokenmill.storage.retries). One that fails does not stop the others. Then its
    error is raised, or UnitsError with those of all that failed.
    """

    def __call__(
        self, stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit], finished: Sequence[Unit]
    ) -> list[Done[F]]: ...


def n_workers(asked: int | None) -> int:
    """Units at work at the same time: as asked, or one for each core this process may use."""
    return asked or len(os.sched_getaffinity(0))


def run_in_threads(workers: int) -> RunUnits:
    """Units in threads of this process."""

    def run(
        stage: str, do: Callable[[Unit], Done[F]], units: Sequence[Unit], finished: Sequence[Unit]
    ) -> list[Done[F]]:
        with ThreadPoolExecutor(workers, thread_name_prefix=stage) as pool:
            futures: list[Future[Done[F]]] = [pool.submit(with_retries, partial(do, unit)) for unit in units]
            all_done = False
            try:
                wait(futures)
                all_done = True
            finally:
                if not all_done:  # Ctrl-C or a termination signal: the threads are in the core
                    pool.shutdown(wait=False, cancel_futures=True)
                    _core.interrupt(True)
            return results(stage, units, futures)

    return run


def results(stage: str, units: Sequence[Unit], futures: Sequence[Any]) -> list[Any]:
    """What the futures of these units give. Raises as RunUnits says; an error that is not the user's comes before others."""
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
        raise UnitsError(_table(stage, len(units), failed))
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
    lines = [
        f"{stage}: {len(failed)} of {n_units} units failed; what the other {kept} gave is kept for the next build."
    ]
    for name, some in listed(found).items():
        lines += [f"  {name}", *(f"    {one}" for one in some)]
        n -= len(some)
    if n:
        lines.append(f"  and {'' if is_all else 'at least '}{n:,} more")
    return "\n".join(lines)
