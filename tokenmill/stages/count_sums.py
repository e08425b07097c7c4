"""Adds up the partial counts of count's units, in groups and in partitions, as units of the stage count-sum."""

import tempfile
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenmill.corpus.units import Unit
from tokenmill.counts.partitions import partition_name, write_partitions
from tokenmill.counts.spill import Run, Totals, sum_of_runs
from tokenmill.counts.table import write_batches
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_runner import UnitRunner
from tokenmill.pipeline.unit_work import Job
from tokenmill.storage.scratch import scratch_here
from tokenmill.storage.unit_store import unit_key

_STAGE = "count-sum"
_SUMMED_AT_ONCE_MAX = 64


class PartialCounts(NamedTuple):
    """A file of counts. `place`: the key by whose first digits files are grouped."""

    key: str
    path: Path
    weight: Fraction
    place: str


class SumFacts(msgspec.Struct, frozen=True):
    """Facts about a sum of counts. `dropped`: totals of the pre-tokens below count.count_min, which a partition leaves out."""

    n_parts: int
    dropped: Totals = Totals()
    n_left_out: int = 0

    def __str__(self) -> str:
        return f"{self.n_parts:,} files of counts"


def sums_of(
    parts: Sequence[PartialCounts], partitions: int, runner: UnitRunner, run_units: RunUnits, scratch: Path
) -> Sequence[PartialCounts]:
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
        parts = _sums_of_groups(parts, n, runner, run_units, scratch)
    return parts


def _sums_of_groups(
    parts: Sequence[PartialCounts], n_digits: int, runner: UnitRunner, run_units: RunUnits, scratch: Path
) -> list[PartialCounts]:
    groups: dict[tuple[Fraction, str], list[PartialCounts]] = {}
    for part in sorted(parts):
        groups.setdefault((part.weight, part.place[:n_digits]), []).append(part)
    summed = {f"{place} × {weight}": group for (weight, place), group in groups.items() if len(group) > 1}
    keys = {
        name: unit_key(stage=_STAGE, parts=[(part.key, part.path.name) for part in group])
        for name, group in summed.items()
    }

    units = [Unit(name, "", ()) for name in summed]
    do = partial(_sum_unit, scratch=scratch, bytes_max=runner.memory.kept_mib << 20)
    done = runner.finish(_STAGE, do, units, keys, SumFacts, run_units, summed)
    single = [group[0] for group in groups.values() if len(group) == 1]
    return single + [
        PartialCounts(keys[unit.name], one.folder / part_name(0), group[0].weight, group[0].place[:n_digits])
        for unit, group, one in zip(units, summed.values(), done, strict=True)
    ]


def _sum_unit(job: Job, scratch: Path, bytes_max: int) -> SumFacts:
    runs = [Run.of_parquet(part.path) for part in job.own]
    with scratch_here(scratch) as there, tempfile.TemporaryDirectory(dir=there) as own:
        write_batches(sum_of_runs(runs, Path(own), bytes_max), job.folder / part_name(0))
    return SumFacts(len(runs))


def partition_sums(
    parts: Sequence[PartialCounts],
    partitions: int,
    count_min: int,
    runner: UnitRunner,
    run_units: RunUnits,
    scratch: Path,
) -> tuple[list[Run], Totals]:
    """Adds up all parts into `partitions` files without common pre-tokens, with weights and `count_min` applied; also gives the
    totals of the dropped pre-tokens.

    Each part is divided into that many files, and then the files of each partition are added up. The keys of both contain the
    number of partitions, so files of another division are never reused.
    """
    parts = sorted(parts)
    divided = {f"part {i}": part for i, part in enumerate(parts)}
    keys = {
        name: unit_key(stage=_STAGE, part=(part.key, part.path.name), partitions=partitions)
        for name, part in divided.items()
    }
    units = [Unit(name, "", ()) for name in divided]
    do = partial(_divide_unit, partitions=partitions)
    done = runner.finish(_STAGE, do, units, keys, SumFacts, run_units, divided)

    of = unit_key(parts=[(part.key, part.path.name, str(part.weight)) for part in parts], count_min=count_min)
    places = [(one.folder, part.weight) for one, part in zip(done, parts, strict=True)]
    own = {f"partition {i}": (i, places) for i in range(partitions)}
    keys = {name: unit_key(stage=_STAGE, of=of, partition=(i, partitions)) for name, (i, _) in own.items()}
    units = [Unit(name, "", ()) for name in own]
    bytes_max = runner.memory.kept_mib << 20
    sum_unit = partial(_sum_partition, scratch=scratch, bytes_max=bytes_max, count_min=count_min)
    done = runner.finish(_STAGE, sum_unit, units, keys, SumFacts, run_units, own)
    dropped = sum((one.facts.dropped for one in done), Totals())
    return [Run.of_parquet(one.folder / part_name(0)) for one in done], dropped


def _divide_unit(job: Job, partitions: int) -> SumFacts:
    write_partitions(Run.of_parquet(job.own.path), job.folder, partitions)
    return SumFacts(1)


def _sum_partition(job: Job, scratch: Path, bytes_max: int, count_min: int) -> SumFacts:
    partition, places = job.own
    runs = [Run.of_parquet(folder / partition_name(partition), weight) for folder, weight in places]
    with scratch_here(scratch) as there, tempfile.TemporaryDirectory(dir=there) as own:
        total = sum_of_runs(runs, Path(own), bytes_max, count_min)
        write_batches(total, job.folder / part_name(0))
    return SumFacts(len(runs), total.dropped)


def part_name(group: int) -> str:
    """The name of the file for one group of a unit's pieces, or of a sum."""
    return f"counts.{group}.parquet"
