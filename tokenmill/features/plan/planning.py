"""Plans a build: what it would do and why, what it would cost, and whether the machine is large enough."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tokenmill.config.params import Params
from tokenmill.errors import TokenmillError, raise_all
from tokenmill.features.plan.costs import Costs, estimate_costs
from tokenmill.features.plan.estimate import CONFIDENCE, Estimate
from tokenmill.features.plan.measuring import take_sample
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.features.plan.work import StageWork, Work, find_work
from tokenmill.layout import SCRATCH_DIRECTORY, TOKENIZER_DIRECTORY, TRAINING_FILE
from tokenmill.pipeline.last_plan import SCHEMA_VERSION, disk_used
from tokenmill.pipeline.memory import Memory
from tokenmill.stages.mistakes import find_mistakes, refuse_mistakes_of
from tokenmill.storage.json_files import read_json
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.writable import may_write
from tokenmill.versioning.dvc_repository import cache_of
from tokenmill_reader.shown import size

_LEARNING_A_BYTE_MAX = 32.0  # of memory for each byte of the distinct pre-tokens: above, train-vocab refuses to begin
_CGROUP_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Disk(NamedTuple):
    """A disk with the bytes that the build may need there and the bytes that are free."""

    name: str
    needed_bytes: float
    free_bytes: int


@dataclass(frozen=True)
class Plan:
    """The plan of a build. `refused`: texts, why it should not begin. `notes`: texts, what the ranges leave out. `sampled_bytes`:
    text bytes encoded for the estimate."""

    seed: int
    stages: list[StageWork]
    ranges: dict[str, Estimate]
    refused: list[str]
    notes: list[str]
    n_shards: int
    shard_bytes: int
    sampled_bytes: int
    read_bytes: int
    disk_before_bytes: int
    dvc_cache: str

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        kept = {name: value for name, value in vars(self).items() if name not in ("stages", "ranges")}
        return {
            "schema_version": SCHEMA_VERSION,
            "confidence": CONFIDENCE,
            **kept,
            "stages": [{name: value for name, value in vars(stage).items() if name != "todo"} for stage in self.stages],
            "quantities": {name: vars(one) for name, one in self.ranges.items()},
        }


def make_plan(root: Path, params: Params, sampled: SampleSize) -> Plan:
    """Plans a build of the project at `root` without touching data/. `sampled`: which documents are in the sample, and how many.

    Raises CorpusError, ParamsError, VersionsError, and what the build itself would raise for the documents of the sample.
    """
    try:
        work = find_work(root, params)
    except TokenmillError:
        refuse_mistakes_of(root, params)  # it is one of these, maybe
        raise
    if work.would_run:
        raise_all(find_mistakes(root, params, work.shards, {}).wrong)
    cache, shares_bytes = cache_of(root)
    with _scratch(root) as scratch:
        sample = take_sample(work, scratch, sampled)
    costs = estimate_costs(work, sample, 0 if shares_bytes else 1)
    disks = _disks(root, params.run.spill_directory, Path(cache), costs)
    refused = refusals(costs.quantities, costs.learned_bytes, work.project.memory, disks, machine_bytes())
    return Plan(
        sampled.seed,
        list(work.stages.values()),
        costs.quantities,
        [*refused, *costs.refused] if work.would_run else [],
        list(_left_out(work)) if sample else [],
        len(work.shards),
        sum(shard.n_bytes for shard in work.shards),
        sample.text_bytes if sample else 0,
        sample.read_bytes if sample else 0,
        disk_used(root, cache),
        cache,
    )


def _left_out(work: Work) -> Iterator[str]:
    """Yields what the ranges leave out of tokens of several words, which no sample is counted for."""
    root, params = work.project.root, work.project.params
    if work.counts and params.count.superwords is not None:
        yield (
            "count.superwords counts the text a second time and writes its sentences, about half of the text's bytes. Neither is "
            "in these ranges."
        )
    if work.learns and work.tokenizer is None and params.train_vocab.superwords is not None:
        yield (
            "The ranges of tokens and bytes are those of tokens within words. train_vocab.superwords makes fewer: how many is "
            f"known after a build{_saved_earlier(root)}."
        )


def _saved_earlier(root: Path) -> str:
    """How many tokens the superwords of the present tokenizer save; empty if it has none."""
    try:
        found = read_json(root / TOKENIZER_DIRECTORY / TRAINING_FILE)
        share = 1 - found["n_text_tokens"] / found["superwords"]["n_text_tokens_before"]
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        ZeroDivisionError,
    ):  # no such training, or a file that was changed
        return ""
    return f". The last training's save {share:.0%} of the tokens of its first phase, which has fewer tokens to choose from"


def refusals(
    plan: Mapping[str, Estimate], learned_bytes: float, memory: Memory, disks: Sequence[Disk], machine_bytes: int
) -> Iterator[str]:
    """Yields one text per reason not to begin a build. `learned_bytes`: the most bytes of distinct pre-tokens to learn from; 0 if
    no vocabulary is learned. `machine_bytes`: the machine's memory."""
    for disk in disks:
        if disk.needed_bytes > disk.free_bytes:
            yield (
                f"{disk.name} has {size(disk.free_bytes)} free; the build may need {size(disk.needed_bytes)}. Free some, or take "
                "a larger disk."
            )
    peak = plan["peak_memory_bytes"].high
    if peak > machine_bytes:
        yield (
            f"the machine has {size(machine_bytes)} of memory; the build may need {size(peak)}. Lower run.memory_mb_max or "
            "run.workers."
        )
    needed = learned_bytes * _LEARNING_A_BYTE_MAX + memory.base_mb * 1e6
    if needed > memory.mb_max * 1e6:
        yield (
            f"run.memory_mb_max allows {size(memory.mb_max * 1e6)}; learning the vocabulary may need {size(needed)}. Raise it, or "
            "raise count.count_min, which leaves rare pre-tokens out."
        )


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Yields a temporary folder, outside the project if this user may not write there."""
    if may_write(root / SCRATCH_DIRECTORY):
        with scratch_directory(root / SCRATCH_DIRECTORY, "plan-") as scratch:
            yield scratch
    else:
        with TemporaryDirectory(prefix="tokenmill-") as folder:
            yield Path(folder)


def machine_bytes() -> int:
    """The memory limit of this process in bytes: the machine's memory, or the container's limit if lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _CGROUP_MEMORY:
        with suppress(OSError, ValueError):
            limits.append(int(Path(name).read_text(encoding="ascii")))
    return min(limits)


def _disks(root: Path, spill_directory: str | None, cache: Path, costs: Costs) -> list[Disk]:
    """The most bytes that the build needs on each disk that it writes to."""
    copies = costs.quantities["dvc_cache_bytes"].high
    needs = [
        ("the project's disk", root, costs.quantities["disk_bytes"].high - copies + costs.buckets_bytes),
        (f"DVC's cache ({cache})", cache, copies),
        ("run.spill_directory", root / (spill_directory or SCRATCH_DIRECTORY), costs.spilled_bytes),
    ]
    by_device: dict[int, Disk] = {}
    for name, path, n_bytes in needs:
        device = _there(path.absolute()).stat().st_dev
        free = shutil.disk_usage(_there(path.absolute())).free
        first = by_device.get(device, Disk(name, 0.0, free))
        by_device[device] = first._replace(needed_bytes=first.needed_bytes + n_bytes)
    return list(by_device.values())


def _there(path: Path) -> Path:
    return next(ancestor for ancestor in (path, *path.parents) if ancestor.exists())
