"""Adds up the partial counts of count's units, in groups and in partitions, in rounds of tasks."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tokenmill.console import Advance
from tokenmill.counts.partitions import partition_name, write_partitions
from tokenmill.counts.spill import Run, Totals, sum_of_runs
from tokenmill.counts.table import write_batches
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Round, Rounds, Task, do
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import unit_key

SCRATCH_PREFIX = "count-"  # of the names of temporary folders
_ROUND = "count-sum"
_SUMMED_AT_ONCE_MAX = 64


class PartialCounts(NamedTuple):
    """A file of counts. `place`: the key by whose first digits files are grouped."""

    key: str
    path: Path
    weight: Fraction
    place: str


class SumFacts(Facts, frozen=True):
    """Facts about a sum of counts. `dropped`: totals of the pre-tokens below count.count_min, which a partition leaves out."""

    n_parts: int
    dropped: Totals = Totals()

    def __str__(self) -> str:
        return f"{number_of(self.n_parts, 'file')} of counts"


class SumTask(Task[SumFacts], frozen=True, kw_only=True):
    """Adds up files of counts into one. `paths`: the files and their weights. `count_min`: pre-tokens below it are left out.
    `scratch`: the folder where large sums are merged. `bytes_max`: the memory for them."""

    paths: Sequence[tuple[Path, Fraction]]
    count_min: int
    scratch: Path
    bytes_max: int

    def run(self, folder: Path, advance: Advance) -> SumFacts:
        """Writes the sum (see Task)."""
        runs = [Run.of_parquet(path, weight) for path, weight in self.paths]
        with scratch_directory(self.scratch, SCRATCH_PREFIX) as own_scratch:
            total = sum_of_runs(runs, own_scratch, self.bytes_max, self.count_min)
            write_batches(total, folder / part_name(0))
        return SumFacts(len(runs), total.dropped)


class DivideTask(Task[SumFacts], frozen=True, kw_only=True):
    """Divides a file of counts into `partitions` files without common pre-tokens."""

    path: Path
    partitions: int

    def run(self, folder: Path, advance: Advance) -> SumFacts:
        """Writes the partitions (see Task)."""
        write_partitions(Run.of_parquet(self.path), folder, self.partitions)
        return SumFacts(1)


def sums_of(
    parts: Sequence[PartialCounts], partitions: int, scratch: Path, bytes_max: int
) -> Rounds[Sequence[PartialCounts]]:
    """Adds up many files of counts to at most 16 per weight, or 256 if partitions follow. Few files stay as they are.

    Files are added up in groups by the beginning of their keys, then those sums by one hex digit less, and so on. The unit store
    keeps each sum. A changed file then costs a sum of two groups per level instead of reading all files again. Partitions take over
    one level earlier, since 16 sums of nearly all pre-tokens would keep only 16 workers busy.
    """
    n_digits = 0
    while len(parts) > _SUMMED_AT_ONCE_MAX * 16**n_digits:
        n_digits += 1
    n_last = 2 if partitions > 1 and n_digits > 1 else 1
    for n in range(n_digits, n_last - 1, -1):
        parts = yield from _sums_of_groups(parts, n, scratch, bytes_max)
    return parts


def _sums_of_groups(
    parts: Sequence[PartialCounts], n_digits: int, scratch: Path, bytes_max: int
) -> Rounds[list[PartialCounts]]:
    groups: dict[tuple[Fraction, str], list[PartialCounts]] = {}
    for part in sorted(parts):
        groups.setdefault((part.weight, part.place[:n_digits]), []).append(part)
    summed = [(weight, place, group) for (weight, place), group in groups.items() if len(group) > 1]
    tasks = [
        SumTask(
            name=f"{place} × {weight}",
            key=unit_key(stage=_ROUND, parts=[(part.key, part.path.name) for part in group]),
            paths=[(part.path, Fraction(1)) for part in group],
            count_min=1,
            scratch=scratch,
            bytes_max=bytes_max,
        )
        for weight, place, group in summed
    ]
    done = yield from do(Round(_ROUND, tasks, SumFacts))
    single = [group[0] for group in groups.values() if len(group) == 1]
    return single + [
        PartialCounts(task.key, one.folder / part_name(0), weight, place)
        for task, one, (weight, place, _) in zip(tasks, done, summed, strict=True)
    ]


def partition_sums(
    parts: Sequence[PartialCounts], partitions: int, count_min: int, scratch: Path, bytes_max: int
) -> Rounds[tuple[list[Run], Totals]]:
    """Adds up all parts into `partitions` files without common pre-tokens, with weights and `count_min` applied; also gives the
    totals of the dropped pre-tokens.

    Each part is divided into that many files, and then the files of each partition are added up. The keys of both contain the
    number of partitions, so files of another division are never reused.
    """
    parts = sorted(parts)
    divide = [
        DivideTask(
            name=f"part {i}",
            key=unit_key(stage=_ROUND, part=(part.key, part.path.name), partitions=partitions),
            path=part.path,
            partitions=partitions,
        )
        for i, part in enumerate(parts)
    ]
    divided = yield from do(Round(_ROUND, divide, SumFacts))
    of = unit_key(parts=[(part.key, part.path.name, str(part.weight)) for part in parts], count_min=count_min)
    add = [
        SumTask(
            name=f"partition {i}",
            key=unit_key(stage=_ROUND, of=of, partition=(i, partitions)),
            paths=[(one.folder / partition_name(i), part.weight) for one, part in zip(divided, parts, strict=True)],
            count_min=count_min,
            scratch=scratch,
            bytes_max=bytes_max,
        )
        for i in range(partitions)
    ]
    done = yield from do(Round(_ROUND, add, SumFacts))
    dropped = sum((result.facts.dropped for result in done), Totals())
    return [Run.of_parquet(result.folder / part_name(0)) for result in done], dropped


def part_name(group: int) -> str:
    """The name of the file for one group of a unit's pieces, or of a sum."""
    return f"counts.{group}.parquet"
