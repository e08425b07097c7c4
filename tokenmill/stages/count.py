"""count: documents → exact counts of pre-tokens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill import _core
from tokenmill.config.count_params import Count
from tokenmill.config.source_params import Source
from tokenmill.console import say
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.provenance import CountedShard, Provenance, Samples, counted_source, write_provenance
from tokenmill.corpus.quarantine import check_limit
from tokenmill.corpus.shards import matching_names
from tokenmill.counts.groups import write_groups
from tokenmill.counts.spill import Run, Totals, sum_of_runs
from tokenmill.counts.table import merge, write_batches, write_counts
from tokenmill.counts.weights import weight_of
from tokenmill.errors import ParamsError, PatternError
from tokenmill.layout import (
    COUNTS_FILE,
    COUNTS_GROUPS_DIRECTORY,
    COUNTS_REPORT_FILE,
    PROVENANCE_FILE,
    SCRATCH_DIRECTORY,
    SUPERWORDS_COUNTS_FILE,
)
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.unit_filters import unit_filters
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.pretokenizers.patterns import name_of, steps_of
from tokenmill.rounds import Round, Stage, do
from tokenmill.stages.count_groups import refuse_groups, refuse_many
from tokenmill.stages.count_sums import SCRATCH_PREFIX, PartialCounts, part_name, partition_sums, sums_of
from tokenmill.stages.count_units import CountFacts, CountTask, count_keys, groups_of, superwords_name
from tokenmill.storage.atomic import write_atomic, write_directory
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import Done
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.preparing import Preparation
from tokenmill.tokenizer.tokenizer import Tokenizer


def count(project: Project, output: Path) -> Stage:
    """Counts the pre-tokens of all documents into counts.parquet in the folder `output`. report.json and provenance.json in the
    same folder describe what was counted.

    Raises CorpusError, PatternError, CountsError, ParamsError, UnitsError.
    """
    root, params, source = project.root, project.params.count, project.params.source
    spill_directory = project.params.run.spill_directory
    check_settings(root, params, spill_directory)
    refuse_groups(project.units, params.by)
    units, kept_bytes = project.units, project.memory.kept_mb * 10**6
    weights = weights_of(root, params.weights, [piece.shard.name for unit in units for piece in unit.pieces])
    filters = yield from unit_filters(project)
    samples = Samples(project.corpus.sha256)
    by_weight = {unit.name: groups_of(unit, weights) for unit in units}
    parent = root / (spill_directory or SCRATCH_DIRECTORY)
    preparation = preparation_of(project)
    tasks = _tasks(project, preparation, by_weight, filters, samples, parent)
    done = yield from do(Round("count", tasks, CountFacts, partial(_is_within_limits, source)))
    facts = [result.facts for result in done]
    check_limit(
        units, [unit_facts.left for unit_facts in facts], sum(unit_facts.n_documents for unit_facts in facts), source
    )
    parts = [
        PartialCounts(task.key, result.folder / part_name(i), weight, task.key)
        for i, weight, _, task, result in _files(tasks, done, by_weight)
    ]
    sums = yield from sums_of(parts, params.partitions, parent, kept_bytes)
    if params.partitions == 1:
        runs, dropped = [Run.of_parquet(part.path, part.weight) for part in sums], Totals()
    else:
        runs, dropped = yield from partition_sums(sums, params.partitions, params.count_min, parent, kept_bytes)
    with scratch_directory(parent, SCRATCH_PREFIX) as scratch, write_directory(output) as directory:
        total = sum_of_runs(runs, scratch, kept_bytes, params.count_min)
        with write_atomic(directory / Path(COUNTS_FILE).name) as path:
            write_batches(total, path)
        dropped += total.dropped
        report = report_of(params, facts, total.kept, dropped)
        if params.superwords is not None:
            sentences = sum_of_runs(_sentences(tasks, done, by_weight), scratch, kept_bytes)
            with write_atomic(directory / Path(SUPERWORDS_COUNTS_FILE).name) as path:
                write_batches(sentences, path)
            report["superwords"] = {"pattern": params.superwords, "pretokens_distinct": sentences.kept.n_distinct}
        with write_atomic(directory / Path(COUNTS_REPORT_FILE).name) as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        write_provenance(_provenance(project, preparation, samples), directory / Path(PROVENANCE_FILE).name)
        if params.by is not None:
            of_group: dict[str, list[Run]] = {}
            for i, weight, name, _, result in _files(tasks, done, by_weight):
                of_group.setdefault(name, []).append(Run.of_parquet(result.folder / part_name(i), weight))
            refuse_many(of_group, params.by)
            groups = directory / Path(COUNTS_GROUPS_DIRECTORY).name
            write_groups(groups, params.by, of_group, scratch, kept_bytes, params.count_min)
    if dropped.n_distinct:
        say(
            f"count: {dropped.n_distinct:,} of {total.kept.n_distinct + dropped.n_distinct:,} distinct pre-tokens "
            f"counted less than {params.count_min}: {report['dropped']['text_share']:.2%} of the text."
        )
    return StageSummary(
        "count",
        "run",
        n_units=len(units),
        n_documents=report["documents"],
        file_mb=project.corpus.n_bytes / 1e6,
        text_mb=report["text_bytes"] / 1e6,
    )


def preparation_of(project: Project) -> Preparation:
    """What the tokenizer to extend or to trim does to a text before it splits it, and so what is done before counting."""
    base = project.params.train_vocab.base
    return Preparation() if base is None else Tokenizer.load(project.root / base[1]).preparation


def _files(
    tasks: Sequence[CountTask],
    done: Sequence[Done[CountFacts]],
    by_weight: Mapping[str, Mapping[Fraction, list[int]]],
) -> Iterator[tuple[int, Fraction, str, CountTask, Done[CountFacts]]]:
    """The files of counts with a weight above 0: their number in the task, weight, group of documents, task and result."""
    for task, result in zip(tasks, done, strict=True):
        weights = list(by_weight[task.name])
        for i, (pieces, name) in enumerate(result.facts.groups):
            if weights[pieces]:
                yield i, weights[pieces], name, task, result


def _sentences(
    tasks: Sequence[CountTask], done: Sequence[Done[CountFacts]], by_weight: Mapping[str, Mapping[Fraction, list[int]]]
) -> list[Run]:
    """The counts of count.superwords with a weight above 0."""
    return [
        Run.of_parquet(one.folder / superwords_name(i), weight)
        for task, one in zip(tasks, done, strict=True)
        for i, weight in enumerate(by_weight[task.name])
        if weight
    ]


def _tasks(
    project: Project,
    preparation: Preparation,
    by_weight: Mapping[str, Mapping[Fraction, list[int]]],
    filters: Mapping[str, Filters],
    samples: Samples,
    scratch: Path,
) -> list[CountTask]:
    """The task of each unit. `by_weight`: the groups of its pieces, by the name of the unit. `scratch`: the folder where counters
    spill."""
    keys = count_keys(project.units, project.params.count, preparation, by_weight, filters)
    return [
        CountTask(
            name=unit.name,
            key=keys[unit.name],
            unit=unit,
            seen=project.seen(unit),
            source=project.params.source,
            params=project.params.count,
            preparation=preparation,
            groups=list(by_weight[unit.name].values()),
            filters=filters[unit.name],
            samples=samples,
            limits=project.memory.limits,
            kept_mb=project.memory.kept_mb,
            scratch=scratch,
        )
        for unit in project.units
    ]


def _is_within_limits(source: Source, facts: CountFacts) -> bool:
    return facts.left.fits(source)


def _provenance(project: Project, preparation: Preparation, samples: Samples) -> Provenance:
    source = project.params.source
    return Provenance(
        source.text_column,
        source.id_column,
        source.text_separator,
        [
            CountedShard(shard.name, shard.n_bytes, sha256, shard.named_source)
            for shard, sha256 in project.corpus.sha256.items()
        ],
        samples.texts(source, project.memory.limits, project.read_filters()),
        {name: counted_source(shard) for name, shard in project.sources.items() if name is not None},
        source.conversations,
        source.format,
        preparation if preparation != Preparation() else None,
    )


def count_nothing(root: Path) -> StageSummary:
    """Writes an empty table of counts. With an imported tokenizer, nothing is learned from counts."""
    with write_directory((root / COUNTS_FILE).parent) as directory:
        write_counts(merge([]), directory / Path(COUNTS_FILE).name)
    return StageSummary("count", "not needed")


def check_settings(root: Path, params: Count, spill_directory: str | None) -> None:
    """Raises PatternError for a pattern that does not compile or that other libraries read differently, and ParamsError or
    CorpusError for a folder to spill to that is missing, and for wrong weights."""
    for key, pattern in (("pattern", params.pattern), ("superwords", params.superwords)):
        try:
            pre_tokenizer_of(steps_of(pattern))
        except PatternError as error:
            raise PatternError(f"params.yaml: count.{key}", f"{str(error).removeprefix('pattern: ')}") from None
    if params.superwords is not None and _cuts_between_words(steps_of(params.superwords)):
        raise ParamsError(
            "params.yaml: count.superwords",
            f"found {params.superwords!r}, which cuts text between words.",
            "Take superbpe, or a regex that does not cut there, for tokens of several words.",
        )
    if spill_directory is not None and not (root / spill_directory).is_dir():
        raise ParamsError(
            f"run.spill_directory: {root / spill_directory}",
            "expected a folder; none is there.",
            "Make it, mount its disk, or set null.",
        )


def _cuts_between_words(steps: Sequence[str]) -> bool:
    """Whether it is a named pattern for words. It is not known which text a regex of a user is for."""
    return name_of(steps) is not None and len(_core.split(list(steps), "two words")) > 1


def weights_of(root: Path, weights: Mapping[str, Any], names: Sequence[str]) -> dict[str, Fraction]:
    """The weight of each shard that a glob matches, by the shard's name.

    Raises ParamsError for a shard that two globs match, and CorpusError for a glob that matches nothing.
    """
    glob_of: dict[str, str] = {}
    for glob in weights:
        for name in matching_names(root, glob, "count.weights"):
            if name in glob_of:
                raise ParamsError(
                    "count.weights",
                    f"{name} is matched by {glob_of[name]!r} and by {glob!r}; allowed: one glob for a shard.",
                )
            glob_of[name] = glob
    return {name: weight_of(weights[glob_of[name]]) for name in names if name in glob_of}


def report_of(params: Count, facts: Sequence[CountFacts], kept: Totals, dropped: Totals) -> dict[str, Any]:
    """The report of a count. The same input gives the same report on every machine.

    `pretokens`, `text_bytes_counted` and `dropped` are sums of counts, so they include weights.
    """
    return {
        "documents": sum(unit_facts.n_documents for unit_facts in facts),
        "text_bytes": sum(unit_facts.text_bytes for unit_facts in facts),
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
    }
