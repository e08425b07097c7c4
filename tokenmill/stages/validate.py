"""validate: token dataset, tokenizer and documents → report, or an error for the first thing that is wrong."""

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tokenmill.artifacts.golden import check_golden, checked_tokenizer, sample_engines
from tokenmill.chat.encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.checks.file_checks import FileFacts, check_file, check_sums, documents_of
from tokenmill.checks.manifest_checks import (
    files_below,
    misplaced,
    raise_first,
    wrong_digest,
    wrong_files,
    wrong_in_itself,
    wrong_inputs,
    wrong_names,
    wrong_sources,
    wrong_with_tokenizer,
)
from tokenmill.checks.row_checks import Judge, n_sampled
from tokenmill.config.params import Validate
from tokenmill.config.source_params import Source
from tokenmill.corpus.drop import DropList
from tokenmill.corpus.dropped import DROPPED_FILE, starts_of, write_dropped
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.units import Unit, source_name
from tokenmill.dataset.groups import GroupKeys
from tokenmill.dataset.manifest import MANIFEST_FILE, Manifest, OutputShard, read_manifest
from tokenmill.dataset.tables import UNIT_INDEX_FILE, Part, write_tables, wrong_tables
from tokenmill.errors import ValidationError
from tokenmill.file_sets.arrangement import SetFacts
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.planned import documents_shape
from tokenmill.layout import (
    REPORT_FILE,
    SCRATCH_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    VOCAB_SIZES_DIRECTORY,
)
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.pools import Pool
from tokenmill.pipeline.unit_content import content
from tokenmill.pipeline.unit_drops import drop_lists
from tokenmill.pipeline.unit_runner import Job, UnitRunner
from tokenmill.report.collect import Checked
from tokenmill.report.write import write_report
from tokenmill.storage.atomic import read, sha256_file
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import Done, unit_key
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning.published_report import published_report

_SEED = 0
_MANIFEST = f"{TOKENS_DIRECTORY}/{MANIFEST_FILE}"


def validate(source: Source, params: Validate, runner: UnitRunner, run_units: Pool) -> StageSummary:
    """Checks data/tokens against its manifest, the tokenizer and the documents, and writes the report in data/report.

    For every document: it is in its place, its ids are in range and decode to its bytes, and the tokens around it are there and
    nowhere else. For every file: the digests and sums match the manifest, and a sample of documents has the ids that other engines
    give. The tables are derived again and must be equal, so no file holds a document that source.drop names. A file that passed
    with the same documents and tokenizer is not checked again. report.json is deleted when validation starts. Raises
    ValidationError, also for a gate that does not hold, CorpusError, UnitsError.
    """
    start_s = time.monotonic()
    (runner.root / REPORT_FILE).unlink(missing_ok=True)  # so that a failed check never leaves an old "all good"
    directory, tables = runner.root / TOKENS_DIRECTORY, runner.root / TABLES_DIRECTORY
    manifest = read_manifest(directory)
    corpus = runner.corpus
    tokenizer = checked_tokenizer(runner.root / TOKENIZER_DIRECTORY, runner.cache_mb_max)
    golden_engines = check_golden(runner.root / TOKENIZER_DIRECTORY, tokenizer)
    raise_first(wrong_with_tokenizer(manifest, tokenizer), _MANIFEST)
    for below, names in (
        (directory, [MANIFEST_FILE, *manifest.names()]),
        (tables, [table.name for table in manifest.tables]),
    ):
        for name, wrong in wrong_files(names, files_below(below)):
            raise ValidationError(f"{below.relative_to(runner.root)}/{name}", f"{wrong}")
    raise_first([*wrong_names(manifest), *misplaced(manifest)], _MANIFEST)
    raise_first(wrong_in_itself(manifest), _MANIFEST)
    raise_first(wrong_digest(manifest, read(directory / MANIFEST_FILE)), _MANIFEST)
    raise_first(wrong_inputs(manifest, {shard.name: sha256 for shard, sha256 in corpus.sha256.items()}), _MANIFEST)
    raise_first(wrong_sources(manifest, runner.shards), _MANIFEST)
    _check_digests(manifest, runner)
    entries = dict(manifest.outputs())
    for unit in corpus.units:
        _check_rows(unit, entries.get(unit.output))
    chat = None if manifest.chat is None else ChatEncoder(tokenizer, ChatSettings(**manifest.chat.encoding), _MANIFEST)
    policies = manifest.policies()
    allows = {unit.name: policies[unit.pieces[0].shard.name] == "allow" for unit in corpus.units}
    made = {
        special_in_text: Judge(
            tokenizer=tokenizer,
            begin_id=manifest.begin_of_document_id,
            end_id=manifest.end_of_document_id,
            special_in_text=special_in_text,
            has_source=True,
            engines=sample_engines(runner.root / TOKENIZER_DIRECTORY, tokenizer, special_in_text or chat is not None),
            chat=chat,
        )
        for special_in_text in sorted(set(allows.values()))
    }
    judges = {name: made[special_in_text] for name, special_in_text in allows.items()}
    drops = runner.drive(drop_lists(runner.project), run_units)
    splits, group_column = ({}, None) if manifest.files is None else (manifest.files.splits, manifest.files.split_group)
    keys = _keys(corpus.units, source, judges, manifest, params.sample_documents, entries, drops, group_column)
    do = partial(
        validate_unit,
        tokens=directory,
        source=source,
        judges=made,
        sample_documents=params.sample_documents,
        group_column=group_column,
        limits=runner.memory.limits,
    )
    own = {unit.name: (entries[unit.output], drops[unit.name], allows[unit.name]) for unit in corpus.units}
    done = runner.finish("validate", do, corpus.units, keys, FileFacts, run_units, own)
    parts = []
    for unit, one in zip(corpus.units, done, strict=True):
        check_sums(entries[unit.output], one.facts)
        parts.append(Part(entries[unit.output].name, starts_of(unit), one.folder, source_name(unit.pieces[0].shard)))
    with scratch_directory(runner.root / SCRATCH_DIRECTORY, "validate-") as scratch:
        write_dropped(
            scratch / DROPPED_FILE,
            ((starts_of(unit), one.folder) for unit, one in zip(corpus.units, done, strict=True)),
        )
        write_tables(parts, runner.has_ids, tokenizer, scratch, splits)
        for name, wrong in wrong_tables(scratch, tables):
            raise ValidationError(f"{TABLES_DIRECTORY}/{name}", f"{wrong}.", "Run `tokenmill build --force`.")
    _check_sets(manifest, directory, corpus.units, done, tokenizer, runner, run_units)
    _check_sizes(runner, params.sample_documents)
    decodes = tokenizer.model is not None
    again = chat is not None or not decodes
    facts = {
        "documents_equal_after_decoding": manifest.n_documents if decodes else 0,
        "documents_equal_when_encoded_again": manifest.n_documents if again else 0,
        **_compared(judges, corpus.units, [one.facts for one in done]),
        "sample_per_64_mb": params.sample_documents,
        "sample_seed": _SEED,
        "ids_in_range": manifest.n_tokens,
        "golden_vectors_equal_in": ", ".join(golden_engines),
    }
    checked = Checked(runner.root, manifest, tokenizer, corpus.units, runner.memory.limits, facts)
    write_report(checked, params, partial(published_report, runner.root))
    return StageSummary(
        "validate",
        "run",
        n_units=len(corpus.units),
        n_documents=manifest.n_documents,
        file_mb=corpus.n_bytes / 1e6,
        done_mb=runner.driver.done_bytes["validate"] / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def validate_unit(
    job: Job,
    tokens: Path,
    source: Source,
    judges: Mapping[bool, Judge],
    sample_documents: int,
    group_column: str | None,
    limits: Limits,
) -> FileFacts:
    """Checks the file of one unit, and gives its sums; its part of the tables goes to the job's folder. `job.own`: its entry in the
    manifest, the documents to leave out, and whether texts of special tokens became ids, which selects one of `judges`."""
    unit, (entry, drops, allows) = job.unit, job.own
    documents = documents_of(unit, entry, source, limits, job.advance, drops.find)
    draw = random.Random(f"{_SEED} {unit.output}")
    n_drawn = min(n_sampled(sample_documents, entry.text_bytes), entry.n_documents)
    sample = set(draw.sample(range(entry.n_documents), n_drawn))
    groups = None if group_column is None else GroupKeys(unit, group_column, limits)
    path = tokens / entry.name
    return check_file(entry, path, documents, judges[allows], sample, job.advance, job.folder, groups)


def _check_sizes(runner: UnitRunner, sample_documents: int) -> None:
    """Verifies the datasets of `encode.vocab_sizes`. Raises ValidationError."""
    folder = runner.root / VOCAB_SIZES_DIRECTORY
    for below in sorted(folder.iterdir()) if folder.is_dir() else ():
        from tokenmill.analysis.verify import VerifyOptions, verify

        dataset = below / Path(TOKENS_DIRECTORY).name
        found = verify(dataset, VerifyOptions(None, runner.root, sample_documents, _SEED, runner.memory.own_threads))
        for reason in found.not_checked:
            raise ValidationError(dataset.relative_to(runner.root), f"cannot be checked: {reason}")
        for finding in found.findings:
            raise ValidationError(f"{dataset.relative_to(runner.root)}/{finding.file}", f"{finding.what}")


def _check_sets(
    manifest: Manifest,
    directory: Path,
    units: Sequence[Unit],
    done: Sequence[Done[FileFacts]],
    tokenizer: Tokenizer,
    runner: UnitRunner,
    run_units: Pool,
) -> None:
    """Checks that the file sets hold the documents that were checked, as their parameters say. Raises ValidationError."""
    if manifest.files is None and not manifest.sets:
        return
    from tokenmill.checks.set_checks import wrong_sets

    entries = dict(manifest.outputs())
    encoded = [
        EncodedUnit(
            unit.output,
            directory / entries[unit.output].name,
            one.folder / UNIT_INDEX_FILE,
            starts_of(unit),
            [entries[unit.output].sha256, one.files[UNIT_INDEX_FILE].sha256],
            unit.source.name or "",
        )
        for unit, one in zip(units, done, strict=True)
    ]
    begin_id, end_id = manifest.begin_of_document_id, manifest.end_of_document_id
    shape = documents_shape(tokenizer, begin_id, end_id, runner.has_ids, manifest.chat is not None)
    workers, code = runner.memory.own_threads, code_digest("validate")
    store = runner.store
    checks = wrong_sets(
        manifest,
        directory,
        encoded,
        shape,
        lambda key: not runner.anew and store.find(key, SetFacts) is not None,
        store.remove,
        workers,
        code,
    )
    for name, wrong in runner.drive(checks, run_units):
        raise ValidationError(f"{TOKENS_DIRECTORY}/{name}", wrong)


def _keys(
    units: Sequence[Unit],
    source: Source,
    judges: Mapping[str, Judge],
    manifest: Manifest,
    sample_documents: int,
    entries: dict[str, OutputShard],
    drops: Mapping[str, DropList],
    group_column: str | None,
) -> dict[str, str]:
    import tiktoken
    import tokenizers

    any_judge = next(iter(judges.values()))
    versions = [tokenizers.__version__, tiktoken.__version__]
    decides = {
        "code": code_digest("validate"),
        "tokenizer": any_judge.tokenizer.digest,
        "engine": any_judge.tokenizer.engine,
        "framing": [any_judge.begin_id, any_judge.end_id],
        "sample": [sample_documents, _SEED],
        "group": group_column,
        "on_bad": [source.on_bad_document, source.on_bad_shard],
        **({} if manifest.chat is None else {"chat": manifest.chat.encoding}),
    }
    return {
        unit.name: unit_key(
            stage="validate",
            content=content(unit, with_rows=unit.source.id_column is None),
            tokens=entries[unit.output].sha256,
            bad=[rows.n_bad for rows in entries[unit.output].rows],
            drop=drops[unit.name].as_key(),
            source=unit.source.reading.as_key(),
            special_in_text=judges[unit.name].special_in_text,
            references=[*versions, list(judges[unit.name].engines)],
            **decides,
        )
        for unit in units
    }


def _compared(judges: Mapping[str, Judge], units: Sequence[Unit], facts: Sequence[FileFacts]) -> dict[str, int]:
    """The number of documents that were compared with each engine, for the report."""
    found: dict[str, int] = {}
    for unit, one in zip(units, facts, strict=True):
        for name in judges[unit.name].engines:
            found[name] = found.get(name, 0) + one.n_sampled
    return {f"documents_equal_to_{name}": n for name, n in found.items()}


def _check_digests(manifest: Manifest, runner: UnitRunner) -> None:
    """Checks that every file of the dataset and its tables has the digest in the manifest."""
    files = [(TOKENS_DIRECTORY, shard.name, shard.sha256) for shard in manifest.shards]
    files += [(TOKENS_DIRECTORY, file.name, file.sha256) for file in manifest.set_files()]
    files += [(TABLES_DIRECTORY, table.name, table.sha256) for table in manifest.tables]
    for folder, name, sha256 in files:
        path = runner.root / folder / name
        if runner.digests.fact(path, "sha256", str, partial(sha256_file, path)) != sha256:
            raise ValidationError(
                path, f"not the file that the manifest names (sha256 {sha256[:16]}…).", "Run `tokenmill build --force`."
            )


def _check_rows(unit: Unit, entry: OutputShard | None) -> None:
    """Checks that the manifest names a file for the unit, and the origin of each of its pieces."""
    named, expected = None if entry is None else entry.pieces, starts_of(unit)
    if named != expected:
        raise ValidationError(
            f"{_MANIFEST}: {unit.output}",
            f"expected the documents from {expected}; found {named}.",
            "Run `tokenmill build --force`.",
        )
