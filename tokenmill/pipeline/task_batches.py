"""Puts tasks into batches, so that a build of many units has few task runs of Prefect."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tokenmill.pipeline.run_task import TaskRunner
from tokenmill.rounds import F, Task

_TASKS_MAX = 256  # thousands of task runs slow Prefect's server down (PrefectHQ/prefect#18883)
_TASKS_PER_SLOT = 8  # a task run costs 15 ms in a thread and 0.15 s on a worker of Dask, where a small unit takes 10 ms

_UNIT_COST_BYTES = 1 << 20  # added to each unit's size, because even a tiny unit takes time


def tasks_max(n_slots: int) -> int:
    """The largest number of tasks of a stage: several per slot, at most 256 in all, but at least one per slot.

    >>> tasks_max(2), tasks_max(64), tasks_max(1024)
    (16, 256, 1024)
    """
    return max(min(_TASKS_MAX, _TASKS_PER_SLOT * n_slots), n_slots)


class TaskBatch:
    """The tasks of one of Prefect's task runs. Not a dataclass, because Prefect searches dataclasses for futures."""

    def __init__(self, tasks: Sequence[Task[Any]], runner: TaskRunner[Any]) -> None:
        self.tasks: list[Task[Any]] = list(tasks)
        self.runner: TaskRunner[Any] = runner

    def __dask_tokenize__(self) -> list[str]:
        """The keys of its tasks, from which Dask makes a token without reading the whole batch."""
        return [self.runner.round, *(task.key for task in self.tasks)]

    @property
    def name(self) -> str:
        """The name of its first task, and how many more there are."""
        more = f" and {len(self.tasks) - 1:,} more" if len(self.tasks) > 1 else ""
        return f"{self.tasks[0].name}{more}"

    @property
    def n_bytes(self) -> int:
        """The size of the documents that its tasks read, in file bytes."""
        return sum(task.n_bytes for task in self.tasks)


def groups_of(tasks: Sequence[Task[F]], n_max: int) -> list[list[Task[F]]]:
    """At most `n_max` groups of about equal size, with the tasks in order; one task per group if there are no more than `n_max`.

    >>> tasks = [Task(name=str(i), key=str(i)) for i in range(10)]
    >>> [len(group) for group in groups_of(tasks, 4)]
    [2, 3, 2, 3]
    """
    if len(tasks) <= n_max:
        return [[task] for task in tasks]
    costs = [task.n_bytes + _UNIT_COST_BYTES for task in tasks]
    total = sum(costs)
    groups: dict[int, list[Task[F]]] = {}
    for task, cost, end in zip(tasks, costs, accumulate(costs), strict=True):
        middle = 2 * end - cost  # twice the middle of the task in the running total
        groups.setdefault(middle * n_max // (2 * total), []).append(task)
    return list(groups.values())
