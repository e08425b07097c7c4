"""How the units of a stage are carried out, without an orchestrator."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from tokenmill import _core
from tokenmill.shards import Shard

T = TypeVar("T")


class RunUnits(Protocol):
    """Does `do(unit)` for every unit; what comes back is in the order of `units`. Raises the first unit's error."""

    def __call__(self, stage: str, do: Callable[[Shard], T], units: Sequence[Shard]) -> list[T]: ...


def n_workers(asked: int | None) -> int:
    """Units at work at the same time: as asked, or one for each core this process may use."""
    return asked or len(os.sched_getaffinity(0))


def run_in_threads(workers: int) -> RunUnits:
    """Units in threads of this process. All come to their end; then the error of the first that failed is raised."""

    def run(stage: str, do: Callable[[Shard], T], units: Sequence[Shard]) -> list[T]:
        with ThreadPoolExecutor(workers, thread_name_prefix=stage) as pool:
            futures = [pool.submit(do, unit) for unit in units]
            all_done = False
            try:
                wait(futures)
                all_done = True
            finally:
                if not all_done:  # Ctrl-C or a termination signal: the threads are in the core
                    pool.shutdown(wait=False, cancel_futures=True)
                    _core.interrupt(True)
            return [future.result() for future in futures]

    return run
