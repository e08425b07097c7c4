"""count: documents → exact counts of pre-tokens."""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill.console import Advance, StageSummary, progress, say
from tokenmill.corpus import Shard, find_shards, read_batches
from tokenmill.counts import Counter, write_batches
from tokenmill.errors import ParamsError
from tokenmill.files import write_atomic, write_directory
from tokenmill.layout import COUNTS_FILE, COUNTS_REPORT_FILE, SCRATCH_DIRECTORY
from tokenmill.params import Count, Source
from tokenmill.patterns import steps_of
from tokenmill.pre_tokenizer import pre_tokenizer_of
from tokenmill.runs import Run, Sum, sum_of_runs
from tokenmill.scratch import scratch_directory
from tokenmill.units import RunUnits
from tokenmill.weights import weight_of

_ONE = Fraction(1)


@dataclass(frozen=True)
class Part:
    """The counts of one unit: a file as `write_counts` makes it, and what it was made from."""

    path: Path
    n_documents: int
    text_bytes: int
    missed_max: int


def count(
    root: Path, source: Source, params: Count, memory_mb_max: int, spill_directory: Path | None, run_units: RunUnits
) -> StageSummary:
    """Counts the pre-tokens of all documents into data/counts/counts.parquet, and says in report.json beside it of what.

    `memory_mb_max`: what one unit's counter may hold, and the adding up of all; `spill_directory`: where there is room for what
    is more (None: .tokenmill). Raises CorpusError, PatternError, CountsError, ParamsError.
    """
    start_s = time.monotonic()
    pre_tokenizer_of(steps_of(params.pattern))  # a regex that other libraries read otherwise is refused before any work
    shards = find_shards(root, source.glob)
    weights = weights_of(root, params.weights, shards)
    with scratch_directory(root / (spill_directory or SCRATCH_DIRECTORY), "count-") as scratch:
        with progress("count", sum(shard.n_bytes for shard in shards) / 1e6, "file MB") as advance:
            do = partial(
                count_unit, source=source, params=params, memory_mb_max=memory_mb_max, scratch=scratch, advance=advance
            )
            parts = run_units("count", do, shards)
        runs = [Run.of_parquet(part.path, weight) for part, weight in zip(parts, weights, strict=True) if weight]
        total = sum_of_runs(runs, scratch, memory_mb_max << 19, params.count_min)
        with write_directory((root / COUNTS_FILE).parent) as directory:
            write_batches(total, directory / Path(COUNTS_FILE).name)
            missed_max = sum(
                (part.missed_max * weight for part, weight in zip(parts, weights, strict=True)), Fraction()
            )
            report = report_of(params, parts, total, math.ceil(missed_max))
            with write_atomic(directory / Path(COUNTS_REPORT_FILE).name) as path:
                path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if total.dropped.n_distinct:
        say(
            f"count: {total.dropped.n_distinct:,} of {total.kept.n_distinct + total.dropped.n_distinct:,} distinct pre-tokens "
            f"counted less than {params.count_min}: {report['dropped']['text_share']:.2%} of the text."
        )
    return StageSummary(
        "count",
        "run",
        n_units=len(shards),
        n_documents=report["documents"],
        text_mb=report["text_bytes"] / 1e6,
        seconds=time.monotonic() - start_s,
    )


def count_unit(unit: Shard, source: Source, params: Count, memory_mb_max: int, scratch: Path, advance: Advance) -> Part:
    """Counts one shard into a file of its own."""
    error = params.approximate.error if params.approximate else None
    counter = Counter(params.pattern, memory_mb_max, threads=1, spill_directory=scratch, approximate_error=error)
    n_documents = text_bytes = 0
    for batch in read_batches(unit, source.text_column, source.id_column, source.text_separator):
        counter.update(batch.texts)
        n_documents += len(batch.texts)
        text_bytes += batch.text_bytes
        advance(batch.file_bytes / 1e6)
    missed_max = counter.missed_max
    path = scratch / f"{hashlib.sha256(unit.name.encode()).hexdigest()}.parquet"
    counter.finish_to(path)
    return Part(path, n_documents, text_bytes, missed_max)


def weights_of(root: Path, weights: Mapping[str, Any], shards: Sequence[Shard]) -> list[Fraction]:
    """What the counts of each shard are multiplied by: the weight of the glob that matches it, or 1.

    Raises ParamsError for a shard that two globs match, CorpusError for a glob that matches nothing.
    """
    glob_of: dict[str, str] = {}
    for glob in weights:
        for shard in find_shards(root, glob):
            if shard.name in glob_of:
                raise ParamsError(
                    f"count.weights: {shard.name} is matched by {glob_of[shard.name]!r} and by {glob!r}; "
                    "allowed: one glob for a shard."
                )
            glob_of[shard.name] = glob
    return [weight_of(weights[glob_of[shard.name]]) if shard.name in glob_of else _ONE for shard in shards]


def report_of(params: Count, parts: Sequence[Part], total: Sum, missed_max: int) -> dict[str, Any]:
    """What was counted; the same for the same input, whatever the machine.

    `pretokens`, `text_bytes_counted` and `dropped` are sums of counts, so weights are in them. `count_missed_max`: by how much an
    approximate count may be too low.
    """
    kept, dropped = total.kept, total.dropped
    return {
        "documents": sum(part.n_documents for part in parts),
        "text_bytes": sum(part.text_bytes for part in parts),
        "pretokens": kept.n_pretokens,
        "pretokens_distinct": kept.n_distinct,
        "text_bytes_counted": kept.n_bytes,
        "dropped": {
            "count_min": params.count_min,
            "pretokens": dropped.n_pretokens,
            "pretokens_distinct": dropped.n_distinct,
            "text_bytes": dropped.n_bytes,
            "text_share": round(dropped.n_bytes / max(kept.n_bytes + dropped.n_bytes, 1), 6),
        },
        "weights": {glob: str(weight_of(weight)) for glob, weight in sorted(params.weights.items())},
        "approximate": params.approximate and {"error": params.approximate.error, "count_missed_max": missed_max},
    }
