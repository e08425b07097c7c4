"""Puts units into batches, so that a build of many units has few tasks."""

from collections.abc import Sequence
from itertools import accumulate

from tokenmill.corpus.units import Unit

_TASKS_MAX = 256  # thousands of task runs slow Prefect's server down (PrefectHQ/prefect#18883)
_TASKS_PER_SLOT = 8  # a task run costs 15 ms in a thread and 0.15 s on a worker of Dask, where a small unit takes 10 ms

_UNIT_COST_BYTES = 1 << 20  # added to the size of each unit, as small units take their time, too


def tasks_max(n_slots: int) -> int:
    """The largest number of tasks of a stage, of which `n_slots` run at the same time: some for each of these, but not many in all.

    >>> tasks_max(2), tasks_max(64), tasks_max(1024)
    (16, 256, 1024)
    """
    return max(min(_TASKS_MAX, _TASKS_PER_SLOT * n_slots), n_slots)


class Batch:
    """The units of one task. It is no dataclass, because Prefect looks into those for futures."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units: list[Unit] = list(units)

    def __dask_tokenize__(self) -> list[str]:
        """Its units by name, which Dask takes for the batch where it would read all of it."""
        return [unit.name for unit in self.units]

    @property
    def name(self) -> str:
        """The name of its unit, or of the first of them with their number."""
        more = f" and {len(self.units) - 1:,} more" if len(self.units) > 1 else ""
        return f"{self.units[0].name}{more}"

    @property
    def n_bytes(self) -> int:
        """The bytes of its units in their files."""
        return sum(unit.n_bytes for unit in self.units)


def batches_of(units: Sequence[Unit], n_max: int) -> list[Batch]:
    """The units in their order, in at most `n_max` batches of about the same size; a unit each, if they are so few.

    >>> [len(one.units) for one in batches_of([Unit(str(i), "", ()) for i in range(10)], 4)]
    [2, 3, 2, 3]
    """
    if len(units) <= n_max:
        return [Batch([unit]) for unit in units]
    costs = [unit.n_bytes + _UNIT_COST_BYTES for unit in units]
    total = sum(costs)
    groups: dict[int, list[Unit]] = {}
    for unit, cost, end in zip(units, costs, accumulate(costs), strict=True):
        groups.setdefault((2 * end - cost) * n_max // (2 * total), []).append(unit)  # by the place of its middle
    return [Batch(group) for group in groups.values()]
