"""count: documents → exact counts of pre-tokens."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.config.params import Count, Source
from tokenmill.console import progress, say
from tokenmill.corpus.drop import DropList, drop_list
from tokenmill.corpus.provenance import CountedShard, Provenance, Samples, counted_source, write_provenance
from tokenmill.corpus.quarantine import Documents, LeftOut, check_limit, left_out
from tokenmill.corpus.shards import matching_names
from tokenmill.corpus.units import Unit
from tokenmill.counts.counter import Counter
from tokenmill.counts.spill import Run, Totals, sum_of_runs
from tokenmill.counts.table import merge, write_batches, write_counts
from tokenmill.counts.weights import weight_of
from tokenmill.errors import ParamsError, PatternError
from tokenmill.layout import COUNTS_FILE, COUNTS_REPORT_FILE, PROVENANCE_FILE, SCRATCH_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.unit_drops import unit_drops
from tokenmill.pipeline.unit_runner import UnitRunner, content
from tokenmill.pipeline.unit_work import Job
from tokenmill.pretokenizers.patterns import steps_of
from tokenmill.pretokenizers.tokenizer_json import pre_tokenizer_of
from tokenmill.quantities import size
from tokenmill.stages.count_sums import PartialCounts, part_name, partition_sums, sums_of
from tokenmill.storage.atomic import write_atomic, write_directory
from tokenmill.storage.scratch import scratch_directory, scratch_here
from tokenmill.storage.unit_store import unit_key
from tokenmill.summary import StageSummary

_ONE = Fraction(1)


class CountFacts(msgspec.Struct, frozen=True):
    """The sums of a unit, the largest error of each group's counts (they may be too low), and its quarantine."""

    n_documents: int
    text_bytes: int
    missed_max: list[int]
    left: LeftOut

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        return self.left.n

    def __str__(self) -> str:
        return f"{self.n_documents:,} documents, {size(self.text_bytes)} of text"


def count(
    source: Source,
    params: Count,
    spill_directory: str | None,
    runner: UnitRunner,
    run_units: RunUnits,
    output: Path,
) -> StageSummary:
    """Counts the pre-tokens of all documents into counts.parquet in `output`. report.json and provenance.json beside it describe
    what was counted.

    `spill_directory`: where counters spill what exceeds their memory (None: .tokenmill).
    Raises CorpusError, PatternError, CountsError, ParamsError, UnitsError.
    """
    start_s = time.monotonic()
    root = runner.root
    check_settings(root, params, spill_directory)
    units = runner.corpus.units
    weights = weights_of(root, params.weights, [piece.shard.name for unit in units for piece in unit.pieces])
    drops = unit_drops(source, runner, run_units)
    samples = Samples(runner.corpus.sha256)
    by_weight = {unit.name: groups_of(unit, weights) for unit in units}
    keys = count_keys(units, params, by_weight, drops)
    with scratch_directory(root / (spill_directory or SCRATCH_DIRECTORY), "count-") as scratch:
        with progress("count", runner.corpus.n_bytes, "bytes") as now:
            do = partial(
                count_unit, source=source, params=params, samples=samples, memory=runner.memory, scratch=scratch
            )
            own = {name: (list(groups.values()), drops[name]) for name, groups in by_weight.items()}
            done = runner.finish(
                "count", do, units, keys, CountFacts, run_units, own, now, lambda facts: facts.left.fits(source)
            )
        facts = [one.facts for one in done]
        n_documents = sum(one.n_documents for one in facts)
        check_limit(units, [one.left for one in facts], n_documents, source)
        parts = [
            PartialCounts(keys[unit.name], one.folder / part_name(i), weight, keys[unit.name])
            for unit, one in zip(units, done, strict=True)
            for i, weight in enumerate(by_weight[unit.name])
            if weight
        ]
        sums = sums_of(parts, params.partitions, runner, run_units, scratch)
        if params.partitions == 1:
            runs, dropped = [Run.of_parquet(part.path, part.weight) for part in sums], Totals()
        else:
            runs, dropped = partition_sums(sums, params.partitions, params.count_min, runner, run_units, scratch)
        total = sum_of_runs(runs, scratch, runner.memory.kept_mib << 20, params.count_min)
        with write_directory(output) as directory:
            with write_atomic(directory / Path(COUNTS_FILE).name) as path:
                write_batches(total, path)
            dropped += total.dropped
            missed_max = sum(
                (
                    weight * n
                    for unit, one in zip(units, facts, strict=True)
                    for weight, n in zip(by_weight[unit.name], one.missed_max, strict=True)
                ),
                Fraction(),
            )
            report = report_of(params, facts, total.kept, dropped, math.ceil(missed_max))
            with write_atomic(directory / Path(COUNTS_REPORT_FILE).name) as path:
                path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            provenance = Provenance(
                source.text_column,
                source.id_column,
                source.text_separator,
                [
                    CountedShard(one.name, one.n_bytes, sha256, one.named_source)
                    for one, sha256 in runner.corpus.sha256.items()
                ],
                samples.texts(source, runner.memory.limits, drop_list(root, source.drop, runner.has_ids).find),
                {name: counted_source(one) for name, one in runner.sources().items() if name is not None},
                source.conversations,
                source.format,
            )
            write_provenance(provenance, directory / Path(PROVENANCE_FILE).name)
    if dropped.n_distinct:
        say(
            f"count: {dropped.n_distinct:,} of {total.kept.n_distinct + dropped.n_distinct:,} distinct pre-tokens "
            f"counted less than {params.count_min}: {report['dropped']['text_share']:.2%} of the text."
        )
    return StageSummary(
        "count",
        "run",
        n_units=len(units),
        n_documents=n_documents,
        file_mb=runner.corpus.n_bytes / 1e6,
        done_mb=runner.done_bytes["count"] / 1e6,
        text_mb=report["text_bytes"] / 1e6,
        seconds=time.monotonic() - start_s,
    )


def count_keys(
    units: Sequence[Unit],
    params: Count,
    by_weight: Mapping[str, Mapping[Fraction, list[int]]],
    drops: Mapping[str, DropList],
) -> dict[str, str]:
    """Each unit's key in the unit store, by unit name. `by_weight`: the groups of each unit's pieces. `drops`: the documents that
    each unit leaves out."""
    decides = {
        "code": code_digest("count"),
        "pattern": params.pattern,
        "approximate": params.approximate and params.approximate.error,
    }
    return {
        unit.name: unit_key(
            stage="count",
            content=content(unit, with_rows=False),
            groups=list(by_weight[unit.name].values()),
            drop=drops[unit.name].as_key(),
            source=unit.source.reading.as_key(),
            **decides,
        )
        for unit in units
    }


def count_nothing(root: Path) -> StageSummary:
    """Writes an empty table of counts. With an imported tokenizer, nothing is learned from counts."""
    with write_directory((root / COUNTS_FILE).parent) as directory:
        write_counts(merge([]), directory / Path(COUNTS_FILE).name)
    return StageSummary("count", "not needed")


def count_unit(job: Job, source: Source, params: Count, samples: Samples, memory: Memory, scratch: Path) -> CountFacts:
    """Counts one unit into files in the job's folder, one per group of its pieces. `job.own`: the groups, and the documents to
    leave out."""
    unit = job.unit
    own, drops = job.own
    error = params.approximate.error if params.approximate else None
    kept_mib = max(1, memory.kept_mib // len(own))
    with scratch_here(scratch) as own_scratch:
        counters = [
            Counter(params.pattern, kept_mib, threads=1, spill_directory=own_scratch, approximate_error=error)
            for _ in own
        ]
        counter_of = {piece: counter for pieces, counter in zip(own, counters, strict=True) for piece in pieces}
        n_documents = text_bytes = 0
        documents = Documents(unit, source, memory.limits, job.advance, drops.find)
        for piece, batch in documents:
            samples.offer(unit.pieces[piece], batch)
            counter_of[piece].update(batch.texts)
            n_documents += len(batch.texts)
            text_bytes += batch.text_bytes
        missed_max = [counter.missed_max for counter in counters]
        for i, counter in enumerate(counters):
            write_batches(counter.batches(), job.folder / part_name(i))
    return CountFacts(n_documents, text_bytes, missed_max, left_out(documents.left))


def check_settings(root: Path, params: Count, spill_directory: str | None) -> None:
    """Raises PatternError for a pattern that does not compile or that other libraries read differently, and ParamsError or
    CorpusError for a folder to spill to that is missing, and for wrong weights."""
    try:
        pre_tokenizer_of(steps_of(params.pattern))
    except PatternError as error:
        raise PatternError(f"params.yaml: count.pattern: {str(error).removeprefix('pattern: ')}") from None
    if spill_directory is not None and not (root / spill_directory).is_dir():
        raise ParamsError(
            f"run.spill_directory: {root / spill_directory}: expected a folder; none is there. Make it, mount its disk, or set "
            "null."
        )


def groups_of(unit: Unit, weights: Mapping[str, Fraction]) -> dict[Fraction, list[int]]:
    """The pieces of a unit, grouped by the weight of their shards."""
    groups: dict[Fraction, list[int]] = {}
    for i, piece in enumerate(unit.pieces):
        groups.setdefault(weights.get(piece.shard.name, _ONE), []).append(i)
    return groups


def weights_of(root: Path, weights: Mapping[str, Any], names: Sequence[str]) -> dict[str, Fraction]:
    """The weight of each shard that a glob matches, by the shard's name.

    Raises ParamsError for a shard that two globs match, and CorpusError for a glob that matches nothing.
    """
    glob_of: dict[str, str] = {}
    for glob in weights:
        for name in matching_names(root, glob, "count.weights"):
            if name in glob_of:
                raise ParamsError(
                    f"count.weights: {name} is matched by {glob_of[name]!r} and by {glob!r}; allowed: one glob for a shard.",
                    where="count.weights",
                )
            glob_of[name] = glob
    return {name: weight_of(weights[glob_of[name]]) for name in names if name in glob_of}


def report_of(
    params: Count, facts: Sequence[CountFacts], kept: Totals, dropped: Totals, missed_max: int
) -> dict[str, Any]:
    """The report of a count. The same input gives the same report on every machine.

    `pretokens`, `text_bytes_counted` and `dropped` are sums of counts, so they include weights. `count_missed_max`: the most by
    which an approximate count may be too low.
    """
    return {
        "documents": sum(one.n_documents for one in facts),
        "text_bytes": sum(one.text_bytes for one in facts),
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
