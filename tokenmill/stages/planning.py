"""Plans a build: what it would do and why, what it would cost, and whether the machine is large enough."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenmill.chat.encoder import ChatEncoder
from tokenmill.config.lockfile import pinned
from tokenmill.config.params import Params
from tokenmill.corpus.drop import drop_list
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.sources import reads_objects
from tokenmill.counts.spill import open_parquet
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import CountsError, TokenmillError, ValidationError
from tokenmill.formats.tokens import id_type
from tokenmill.layout import COUNTS_FILE, SCRATCH_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.estimate import CONFIDENCE, Known, Range, StageWork, estimate
from tokenmill.pipeline.memory import divide
from tokenmill.pipeline.plan import SCHEMA_VERSION, Disk, disk_used, refusals
from tokenmill.pipeline.sampling import READ_BYTES, WORK_BYTES, Distinct, take_sample
from tokenmill.pipeline.set_estimate import many_epochs, tokens_of_sources, with_sets
from tokenmill.stages.encode_chat import chat_encoder, chat_entry
from tokenmill.stages.mistakes import find_mistakes, refuse, refuse_mistakes_of
from tokenmill.stages.outstanding import Outstanding, outstanding
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
    ranges: dict[str, Range]
    refused: list[str]
    n_shards: int
    shard_bytes: int
    sampled_bytes: int
    read_bytes: int
    disk_before_bytes: int
    dvc_cache: str

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        stages = [
            {
                "stage": one.stage,
                "would_run": one.would_run,
                "reasons": one.reasons,
                "n_units": one.n_units,
                "n_units_todo": one.n_units_todo,
            }
            for one in self.stages
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "n_shards": self.n_shards,
            "shard_bytes": self.shard_bytes,
            "read_bytes": self.read_bytes,
            "sampled_bytes": self.sampled_bytes,
            "stages": stages,
            "quantities": {name: dict(zip(one._fields, one, strict=True)) for name, one in self.ranges.items()},
            "refused": self.refused,
            "disk_before_bytes": self.disk_before_bytes,
            "dvc_cache": self.dvc_cache,
        }


def make_plan(
    root: Path, params: Params, seed: int, read_bytes: int = READ_BYTES, work_bytes: int = WORK_BYTES
) -> Plan:
    """Plans a build of the project at `root` without touching data/. `seed`: decides the sample of documents.

    `read_bytes`, `work_bytes`: see tokenmill.pipeline.sampling. Raises CorpusError, ParamsError, VersionsError, and what the build
    itself would raise for the documents of the sample.
    """
    memory = divide(params.run, reads_objects(params))
    try:
        work = outstanding(root, params)
    except TokenmillError:
        refuse_mistakes_of(root, params)  # it is one of these, maybe
        raise
    if work.would_run:
        refuse(find_mistakes(root, params, work.shards).wrong)
    cache, shares_bytes = cache_of(root)
    sample, tokenizer = None, work.tokenizer
    if shards := _to_read(work):
        with _scratch(root) as scratch:
            tokenizer = _tokenizer(root, params, work, scratch)
            sample = take_sample(
                shards,
                params,
                tokenizer,
                counts=params.tokenizer is None and work.stages["count"].would_run,
                learns=params.tokenizer is None and work.stages["train-vocab"].would_run,
                seed=seed,
                limits=memory.limits,
                scratch=scratch,
                read_bytes=read_bytes,
                work_bytes=work_bytes,
                chat_of=_chat_of(root, params, scratch),
                drops=drop_list(root, params.source.drop, params.has_ids),
            )
    known = _known(root, work, 0 if shares_bytes else 1)
    sources = params.document_sources()
    ranges = estimate(sample, known, params, memory)
    tokens_of = tokens_of_sources(sample, work.shards, ranges["tokens"].point, _built(root))
    id_max = (
        tokenizer.id_max if tokenizer else max((sample.vocab_size if sample else params.train_vocab.vocab_size) - 1, 0)
    )
    id_bytes = id_type(id_max).bit_width // 8
    spilled = ranges["spill_bytes"].high
    ranges = with_sets(ranges, params.encode, sources, tokens_of, id_bytes, known, memory)
    distinct_bytes, buckets = ranges.pop("distinct_bytes").high, ranges.pop("buckets_bytes").high
    learns = params.tokenizer is None and work.stages["train-vocab"].would_run
    refused = refusals(
        ranges,
        distinct_bytes if learns else 0.0,
        memory,
        _disks(root, params.run.spill_directory, Path(cache), ranges, spilled, buckets),
        machine_bytes(),
    )
    return Plan(
        seed,
        list(work.stages.values()),
        ranges,
        [*refused, *many_epochs(params.encode, sources, tokens_of)] if work.would_run else [],
        len(work.shards),
        sum(shard.n_bytes for shard in work.shards),
        sample.text_bytes if sample else 0,
        sample.read_bytes if sample else 0,
        disk_used(root, cache),
        cache,
    )


def _to_read(work: Outstanding) -> Mapping[Shard, int]:
    """The file bytes to read of each shard, from the first of encode, count and validate that has work."""
    return next((work.stages[name].todo for name in ("encode", "count", "validate") if work.stages[name].todo), {})


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Yields a temporary folder, outside the project if this user may not write there."""
    if may_write(root / SCRATCH_DIRECTORY):
        with scratch_directory(root / SCRATCH_DIRECTORY, "plan-") as scratch:
            yield scratch
    else:
        with TemporaryDirectory(prefix="tokenmill-") as folder:
            yield Path(folder)


def _tokenizer(root: Path, params: Params, work: Outstanding, scratch: Path) -> Tokenizer | None:
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


def _known(root: Path, work: Outstanding, copies: int) -> Known:
    return Known(
        work.stages,
        len(work.shards),
        sum(shard.n_bytes for shard in work.shards),
        work.finished,
        _distinct(root / COUNTS_FILE) if not work.stages["count"].would_run else None,
        copies,
        work.read,
    )


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


def _disks(
    root: Path, spill_directory: str | None, cache: Path, ranges: Mapping[str, Range], spilled: float, buckets: float
) -> list[Disk]:
    """The most bytes that the build needs on each disk that it writes to. `spilled`, `buckets`: temporary bytes in
    run.spill_directory, and of shuffle buckets in the unit store."""
    copies = ranges["dvc_cache_bytes"].high
    needs = [
        ("the project's disk", root, ranges["disk_bytes"].high - copies + buckets),
        (f"DVC's cache ({cache})", cache, copies),
        ("run.spill_directory", root / (spill_directory or SCRATCH_DIRECTORY), spilled),
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
