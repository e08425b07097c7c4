"""Where the tasks of a round run: the interface of pools, and the one of threads in this process."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from tokenmill import _core
from tokenmill.pipeline.run_task import TaskRunner
from tokenmill.rounds import F, Outcome, Task


class Pool(Protocol):
    """Runs tasks: threads here, or Prefect's task runs in threads or on a cluster (tokenmill.orchestration.prefect_tasks)."""

    def map(self, tasks: Sequence[Task[F]], runner: TaskRunner[F]) -> list[Outcome[F]]:
        """Runs all tasks, and gives their outcomes in the same order. A failing task does not stop the others."""
        ...


class Threads:
    """Runs tasks in `workers` threads of this process."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def map(self, tasks: Sequence[Task[F]], runner: TaskRunner[F]) -> list[Outcome[F]]:
        """Runs all tasks (see Pool)."""
        with ThreadPoolExecutor(self._workers, thread_name_prefix=runner.round) as pool:
            futures: list[Future[Outcome[F]]] = [pool.submit(runner.outcome, task) for task in tasks]
            all_done = False
            try:
                wait(futures)
                all_done = True
            finally:
                if not all_done:  # Ctrl-C or a termination signal while the threads are in the core
                    pool.shutdown(wait=False, cancel_futures=True)
                    _core.interrupt(True)
            return [future.result() for future in futures]
