"""Puts units into batches, so that a build of many units has few tasks."""

from collections.abc import Sequence
from itertools import accumulate

from tokenmill.corpus.units import Unit

_TASKS_MAX = 256  # thousands of task runs slow Prefect's server down (PrefectHQ/prefect#18883)
_TASKS_PER_SLOT = 8  # a task run costs 15 ms in a thread and 0.15 s on a worker of Dask, where a small unit takes 10 ms

_UNIT_COST_BYTES = 1 << 20  # added to each unit's size, because even a tiny unit takes time


def tasks_max(n_slots: int) -> int:
    """The largest number of tasks of a stage: several per slot, at most 256 in all, but at least one per slot.

    >>> tasks_max(2), tasks_max(64), tasks_max(1024)
    (16, 256, 1024)
    """
    return max(min(_TASKS_MAX, _TASKS_PER_SLOT * n_slots), n_slots)


class Batch:
    """The units of one task. Not a dataclass, because Prefect searches dataclasses for futures."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units: list[Unit] = list(units)

    def __dask_tokenize__(self) -> list[str]:
        """The names of its units, from which Dask makes a token without reading the whole batch."""
        return [unit.name for unit in self.units]

    @property
    def name(self) -> str:
        """The name of its first unit, and how many more there are."""
        more = f" and {len(self.units) - 1:,} more" if len(self.units) > 1 else ""
        return f"{self.units[0].name}{more}"

    @property
    def n_bytes(self) -> int:
        """The size of its units in bytes of input files."""
        return sum(unit.n_bytes for unit in self.units)


def batches_of(units: Sequence[Unit], n_max: int) -> list[Batch]:
    """At most `n_max` batches of about equal size, with the units in order; one unit per batch if there are no more than `n_max`.

    >>> [len(one.units) for one in batches_of([Unit(str(i), "", ()) for i in range(10)], 4)]
    [2, 3, 2, 3]
    """
    if len(units) <= n_max:
        return [Batch([unit]) for unit in units]
    costs = [unit.n_bytes + _UNIT_COST_BYTES for unit in units]
    total = sum(costs)
    groups: dict[int, list[Unit]] = {}
    for unit, cost, end in zip(units, costs, accumulate(costs), strict=True):
        groups.setdefault((2 * end - cost) * n_max // (2 * total), []).append(
            unit
        )  # by its midpoint in the running total
    return [Batch(group) for group in groups.values()]
