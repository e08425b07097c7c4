"""Plans a build: what it would do and why, what it would cost, and whether the machine is large enough."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenmill.chat.encoder import ChatEncoder
from tokenmill.config.lockfile import pinned
from tokenmill.config.params import Params
from tokenmill.corpus.drop import drop_list
from tokenmill.corpus.sources import reads_objects
from tokenmill.counts.spill import open_parquet
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import CountsError, TokenmillError, ValidationError
from tokenmill.layout import COUNTS_FILE, SCRATCH_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.costs import Basis, Costs, estimate_costs
from tokenmill.pipeline.estimate import CONFIDENCE, Estimate, StageWork
from tokenmill.pipeline.measuring import Distinct, Trial, take_sample
from tokenmill.pipeline.memory import divide
from tokenmill.pipeline.plan import SCHEMA_VERSION, Disk, disk_used, refusals
from tokenmill.pipeline.rates import read_rates
from tokenmill.pipeline.sampling import Reader, SampleSize
from tokenmill.plan.work import Work, find_work
from tokenmill.stages.encode_chat import chat_encoder, chat_entry
from tokenmill.stages.mistakes import find_mistakes, refuse, refuse_mistakes_of
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.writable import may_write
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning.dvc_repository import cache_of
from tokenmill.versioning.import_tokenizer import import_pinned

_CGROUP_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Plan:
    """The plan of a build. `refused`: texts, why it should not begin. `sampled_bytes`: text bytes encoded for the estimate."""

    seed: int
    stages: list[StageWork]
    ranges: dict[str, Estimate]
    refused: list[str]
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
            "stages": [{name: value for name, value in vars(one).items() if name != "todo"} for one in self.stages],
            "quantities": {name: vars(one) for name, one in self.ranges.items()},
        }


def make_plan(root: Path, params: Params, size: SampleSize) -> Plan:
    """Plans a build of the project at `root` without touching data/. `size`: which documents are in the sample, and how many.

    Raises CorpusError, ParamsError, VersionsError, and what the build itself would raise for the documents of the sample.
    """
    try:
        work = find_work(root, params)
    except TokenmillError:
        refuse_mistakes_of(root, params)  # it is one of these, maybe
        raise
    if work.would_run:
        refuse(find_mistakes(root, params, work.shards).wrong)
    cache, shares_bytes = cache_of(root)
    basis = _basis(root, params, work, 0 if shares_bytes else 1, size)
    costs = estimate_costs(basis)
    disks = _disks(root, params.run.spill_directory, Path(cache), costs)
    refused = refusals(costs.quantities, costs.learned_bytes, basis.memory, disks, machine_bytes())
    return Plan(
        size.seed,
        list(work.stages.values()),
        costs.quantities,
        [*refused, *costs.refused] if work.would_run else [],
        len(work.shards),
        sum(shard.n_bytes for shard in work.shards),
        basis.sample.text_bytes if basis.sample else 0,
        basis.sample.read_bytes if basis.sample else 0,
        disk_used(root, cache),
        cache,
    )


def _basis(root: Path, params: Params, work: Work, copies: int, size: SampleSize) -> Basis:
    """What is known of the build, and what a sample of its documents shows."""
    memory, tokenizer, sample = divide(params.run, reads_objects(params)), work.tokenizer, None
    # The first of these that has work.
    shards = next((work.stages[name].todo for name in ("encode", "count", "validate") if work.stages[name].todo), None)
    if shards is not None:
        with _scratch(root) as scratch:
            tokenizer = _tokenizer(root, params, work, scratch)
            is_own = params.tokenizer is None
            trial = Trial(
                params,
                tokenizer,
                is_own and work.stages["count"].would_run,
                is_own and work.stages["train-vocab"].would_run,
                scratch,
                _chat_of(root, params, scratch),
            )
            reader = Reader(params.source, memory.limits, drop_list(root, params.source.drop, params.has_ids))
            sample = take_sample(trial, shards, reader, size)
    id_max = max(params.train_vocab.vocab_size - 1, 0)
    return Basis(
        params,
        memory,
        work.stages,
        work.shards,
        work.finished,
        work.read,
        None if work.stages["count"].would_run else _distinct(root / COUNTS_FILE),
        copies,
        _built(root),
        read_rates(root, params),
        sample.id_max if sample else tokenizer.id_max if tokenizer else id_max,
        sample,
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


def _tokenizer(root: Path, params: Params, work: Work, scratch: Path) -> Tokenizer | None:
    """The tokenizer that encodes the sample; None if it has to be learned."""
    if work.tokenizer is not None:
        return work.tokenizer
    if params.tokenizer is not None:
        return import_pinned(root, pinned(root, params.tokenizer), scratch / "tokenizer")
    if params.train_vocab.extend is not None:
        return Tokenizer.load(root / params.train_vocab.extend.path)
    return None


def _chat_of(root: Path, params: Params, scratch: Path) -> Callable[[Tokenizer], ChatEncoder] | None:
    """A function that makes the conversation encoder for a tokenizer; None for texts."""
    chat = params.encode.chat
    if chat is None:
        return None
    imported = scratch / "tokenizer"
    return lambda tokenizer: chat_encoder(tokenizer, chat_entry(root, chat, imported if imported.exists() else None))


def _built(root: Path) -> dict[str | None, int]:
    """The tokens of each named source in the present dataset, or of its only source under None; empty without a dataset."""
    try:
        manifest = read_manifest(root / TOKENS_DIRECTORY)
    except ValidationError:
        return {}
    return {one.name: one.n_tokens for one in manifest.sources} or {None: manifest.n_tokens}


def _distinct(path: Path) -> Distinct | None:
    """The distinct pre-tokens in the present counts; None without counts."""
    try:
        with open_parquet(path) as file:
            metadata = file.metadata
    except CountsError:
        return None
    n_bytes = sum(metadata.row_group(i).column(0).total_uncompressed_size for i in range(metadata.num_row_groups))
    return Distinct(0, metadata.num_rows, n_bytes)


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
    return next(one for one in (path, *path.parents) if one.exists())
