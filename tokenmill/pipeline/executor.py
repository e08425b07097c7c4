"""Runs the units of a stage in threads, without an orchestrator."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from tokenmill import _core
from tokenmill.corpus.bad_documents import Bad, BadInputError, ColumnError, joined, lines_of, remedy_of
from tokenmill.corpus.units import Unit
from tokenmill.errors import TokenmillError, UnitsError
from tokenmill.pipeline.unit_work import F, Outcome, UnitWork
from tokenmill.storage.unit_store import Done

_OF_DOCUMENTS = {"TM201", "TM202", "TM209", "TM210"}


class RunUnits(Protocol):
    """Runs all units, and gives them in the order of `units`, as the unit store has them.

    A failing unit does not stop the others. At the end its error is raised; if several failed, UnitsError names the first twenty
    errors.
    """

    def __call__(self, stage: str, work: UnitWork[F], units: Sequence[Unit]) -> list[Done[F]]: ...


def n_workers(asked: int | None) -> int:
    """The number of units that run at the same time: `asked`, or one for each core that this process may use."""
    return asked or len(os.sched_getaffinity(0))


def run_in_threads(workers: int) -> RunUnits:
    """A RunUnits that runs units in threads of this process."""

    def run(stage: str, work: UnitWork[F], units: Sequence[Unit]) -> list[Done[F]]:
        with ThreadPoolExecutor(workers, thread_name_prefix=stage) as pool:
            futures: list[Future[Outcome[F]]] = [pool.submit(work.outcome, unit) for unit in units]
            all_done = False
            try:
                wait(futures)
                all_done = True
            finally:
                if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                    pool.shutdown(wait=False, cancel_futures=True)
                    _core.interrupt(True)
            return results(stage, units, [future.result() for future in futures])

    return run


def results(stage: str, units: Sequence[Unit], outcomes: Sequence[Outcome[F]]) -> list[Done[F]]:
    """The finished units. Raises as RunUnits says."""
    failed: list[tuple[Unit, TokenmillError]] = []
    done: list[Done[F]] = []
    for unit, outcome in zip(units, outcomes, strict=True):
        if isinstance(outcome, TokenmillError):
            failed.append((unit, outcome))
        else:
            done.append(outcome)
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        codes = {error.code for _, error in failed}
        if len(codes) > 1 and codes <= _OF_DOCUMENTS:
            codes = {"TM210"}
        raise _all_of(stage, len(units), failed, codes.pop() if len(codes) == 1 else None)
    return done


def _all_of(stage: str, n_units: int, failed: Sequence[tuple[Unit, TokenmillError]], code: str | None) -> UnitsError:
    found: dict[str, list[Bad]] = {}
    n = 0
    is_all = True
    for unit, error in failed:
        if isinstance(error, BadInputError):
            bad, n_bad, is_all = error.first, error.n, is_all and error.is_all
        elif isinstance(error, ColumnError):
            bad, n_bad = {unit.pieces[0].shard.name: [Bad(error.words, setting=error.setting)]}, 1
        else:
            words = "; ".join(error.lines)
            bad, n_bad = {unit.name: [Bad(words if unit.name in words else f"{unit.name}: {words}")]}, 1
        n += n_bad
        for name, some in bad.items():
            for one in some:
                found[name] = joined(found.get(name, []), one)
    kept = n_units - len(failed)
    head = f"{stage}: {len(failed)} of {n_units} units failed; the results of the other {kept} are kept for the next build."
    lines, _ = lines_of(found, n, is_all)
    return UnitsError([head, *lines], code=code, where=stage, fix=remedy_of(lines) or None)
