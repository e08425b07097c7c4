"""validate: token dataset, tokenizer and documents → report, or an error for the first thing that is wrong."""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill.artifacts.golden import Encode, check_golden, checked_tokenizer
from tokenmill.checks.dataset_checks import CheckedFiles, wrong_identity, wrong_manifest, wrong_rest, wrong_stored
from tokenmill.checks.dropped_checks import dropped_documents
from tokenmill.checks.file_checks import DocumentRules, FileCheck, FileFacts, FileTask, check_sums, judges_of
from tokenmill.checks.findings import Finding, NotChecked, in_manifest, raise_first
from tokenmill.checks.manifest_checks import wrong_inputs, wrong_sources
from tokenmill.checks.row_checks import n_sampled
from tokenmill.checks.subject import Inputs, RightFile, Subject
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.filter import Filters, as_key
from tokenmill.corpus.units import Unit
from tokenmill.dataset.entries import OutputShard, TableFile
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.dataset.tables import UNIT_INDEX_FILE
from tokenmill.filters import asked_values
from tokenmill.layout import (
    PARAMS_FILE,
    QUARANTINE_DIRECTORY,
    SCRATCH_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    VOCAB_SIZES_DIRECTORY,
)
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.unit_content import content
from tokenmill.pipeline.unit_filters import unit_filters
from tokenmill.process_memory import give_memory_back
from tokenmill.report import drawing
from tokenmill.report.collect import Reported
from tokenmill.report.write import write_report
from tokenmill.rounds import Round, Stage, do
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import Done, unit_key
from tokenmill.summary import StageSummary
from tokenmill.versioning.published_report import published_report
from tokenmill_reader.copy_check import files_below

_SEED = 0


def validate(project: Project) -> Stage:
    """Checks data/tokens against its manifest, the tokenizer and the documents, and writes the report in data/report.

    For every document: it is in its place, its ids are in range and decode to its bytes, and the tokens around it are there and
    nowhere else. For every file: the digests and sums match the manifest, and a sample of documents has the ids that other engines
    give. The tables are derived again and must be equal, so no file holds a document that filters leave out. A file that passed
    with the same documents and tokenizer is not checked again. Raises ValidationError, also for a gate that does not hold,
    CorpusError and UnitsError.
    """
    root, params, units = project.root, project.params.validate_, project.units
    subject = _subject(project)
    manifest, tokenizer = subject.manifest, subject.tokenizer
    golden_engines = check_golden(subject.tokenizer_folder, tokenizer)
    raise_first(wrong_identity(subject), TOKENS_DIRECTORY)
    raise_first(wrong_manifest(subject), TOKENS_DIRECTORY)
    raise_first(_wrong_documents(manifest, project), TOKENS_DIRECTORY)
    stored: list[OutputShard | TableFile] = [*manifest.shards, *manifest.set_files()]
    for stored_file in stored:
        raise_first(wrong_stored(subject, stored_file), TOKENS_DIRECTORY)
    filters = yield from unit_filters(project)
    tasks = _tasks(subject, project, filters, golden_engines)
    done = yield from do(Round("validate", tasks, FileFacts))
    right = []
    for task, result in zip(tasks, done, strict=True):
        check_sums(task.file.entry, result.facts)
        right.append(RightFile(task.file.entry, result.folder, result.files[UNIT_INDEX_FILE].sha256))
    with scratch_directory(root / SCRATCH_DIRECTORY, "validate-") as scratch:
        dropped, wrong = dropped_documents(subject)
        raise_first(wrong, TOKENS_DIRECTORY)
        checked = CheckedFiles(right, dropped, scratch, project.memory.own_threads, code_digest("validate"))
        raise_first((yield from wrong_rest(subject, checked)), TOKENS_DIRECTORY)
    _check_sizes(project)
    decodes = tokenizer.model is not None
    again = manifest.chat is not None or not decodes
    facts = {
        "documents_equal_after_decoding": manifest.n_documents if decodes else 0,
        "documents_equal_when_encoded_again": manifest.n_documents if again else 0,
        **_compared([(task.file, result) for task, result in zip(tasks, done, strict=True)]),
        "sample_per_64_mb": params.sample_documents,
        "sample_seed": _SEED,
        "ids_in_range": manifest.n_tokens,
        "golden_vectors_equal_in": ", ".join(golden_engines),
    }
    if project.params.run.report_page:
        drawing.begin()
    give_memory_back()
    files = [task.file for task in tasks]
    reported = Reported(root, manifest, tokenizer, units, project.memory.limits, files, facts)
    write_report(reported, params, partial(published_report, root))
    return StageSummary(
        "validate",
        "run",
        n_units=len(units),
        n_documents=manifest.n_documents,
        file_mb=project.corpus.n_bytes / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
    )


def _subject(project: Project) -> Subject:
    """The dataset of the project, with its documents. Raises ValidationError without a manifest, TokenizerError and CorpusError."""
    root = project.root
    folder, quarantine = root / TOKENS_DIRECTORY, root / QUARANTINE_DIRECTORY
    manifest = read_manifest(folder)
    entries = dict(manifest.outputs())
    units = {entries[unit.output].name: unit for unit in project.units if unit.output in entries}
    return Subject(
        folder=folder,
        names=files_below(folder),
        tables=root / TABLES_DIRECTORY,
        quarantine=quarantine if quarantine.is_dir() else None,  # the stage does not depend on it
        manifest=manifest,
        tokenizer=checked_tokenizer(root / TOKENIZER_DIRECTORY, project.cache_mb_max),
        tokenizer_folder=root / TOKENIZER_DIRECTORY,
        inputs=Inputs(units, [*project.read_lists().values()]),
        digests=project.digests,
    )


def _wrong_documents(manifest: Manifest, project: Project) -> Iterator[Finding]:
    """Checks that the dataset is of the project's documents, as they are cut into units here."""
    yield from wrong_inputs(manifest, {shard.name: sha256 for shard, sha256 in project.corpus.sha256.items()})
    yield from wrong_sources(manifest, project.corpus.sha256)
    if manifest.filters != (asked := asked_values(project.params.source)):
        yield in_manifest(f"filters: expected {asked}, as in {PARAMS_FILE}; found {manifest.filters}.")
    entries = dict(manifest.outputs())
    for unit in project.units:
        named = entries[unit.output].pieces if unit.output in entries else None
        if named != (expected := starts_of(unit)):
            yield in_manifest(f"{unit.output}: expected the documents from {expected}; found {named}.")


def _tasks(
    subject: Subject, project: Project, filters: Mapping[str, Filters], engines: Mapping[str, Encode]
) -> list[FileTask]:
    """The checks of the units' files. `filters`: those of each unit, by its name. `engines`: what `check_golden`
    gave."""
    import tiktoken
    import tokenizers

    manifest, judges = subject.manifest, judges_of(subject, engines)
    entries = dict(manifest.outputs())
    decides = {
        "code": code_digest("validate"),
        "references": [tokenizers.__version__, tiktoken.__version__],
        "chat": None if manifest.chat is None else manifest.chat.encoding,
        "sample": [project.params.validate_.sample_documents, _SEED],
    }
    tasks = []
    for unit in project.units:
        entry = entries[unit.output]
        file = FileCheck(
            entry=entry,
            tokens=subject.folder / entry.name,
            unit=unit,
            rules=DocumentRules(project.params.source, project.memory.limits, filters[unit.name]),
            judge=judges[entry.name],
            sample=_sample(unit, entry, project.params.validate_.sample_documents),
            group_column=None if manifest.files is None else manifest.files.split_group,
            tables=None,
        )
        key = _key(unit, file, decides)
        tasks.append(FileTask(name=unit.name, key=key, unit=unit, seen=project.seen(unit), file=file))
    return tasks


def _sample(unit: Unit, entry: OutputShard, sample_documents: int) -> set[int]:
    """The rows of a file that other engines encode, too."""
    n_drawn = min(n_sampled(sample_documents, entry.text_bytes), entry.n_documents)
    return set(random.Random(f"{_SEED} {unit.output}").sample(range(entry.n_documents), n_drawn))


def _key(unit: Unit, file: FileCheck, decides: Mapping[str, Any]) -> str:
    """The key of a file's check: everything that decides what it finds and derives. `decides`: what decides it in every file."""
    judge, source = file.judge, file.rules.source
    return unit_key(
        stage="validate",
        content=content(unit, with_rows=unit.source.reading.id_column is None),
        tokens=file.entry.sha256,
        bad=[rows.n_bad for rows in file.entry.rows],
        source=unit.source.reading.as_key(),
        on_bad=[source.on_bad_document, source.on_bad_shard],
        tokenizer=[judge.tokenizer.digest, judge.tokenizer.engine],
        framing=[judge.begin_id, judge.end_id],
        special_in_text=[judge.special_in_text, judge.rejects_special],
        group=file.group_column,
        **({"keep": unit.source.keep_columns} if unit.source.keep_columns else {}),
        engines=list(judge.engines),
        **as_key(file.rules.filters),
        **decides,
    )


def _check_sizes(project: Project) -> None:
    """Verifies the datasets of `encode.vocab_sizes`. Raises ValidationError."""
    root, n_sample = project.root, project.params.validate_.sample_documents
    folder = root / VOCAB_SIZES_DIRECTORY
    for below in sorted(folder.iterdir()) if folder.is_dir() else ():
        from tokenmill.analysis.verify import VerifyOptions, verify

        dataset = below / Path(TOKENS_DIRECTORY).name
        found = verify(dataset, VerifyOptions(None, root, n_sample, _SEED, project.memory.own_threads))
        raise_first([*map(NotChecked, found.not_checked), *found.findings], str(dataset.relative_to(root)))


def _compared(checked: Sequence[tuple[FileCheck, Done[FileFacts]]]) -> dict[str, int]:
    """The number of documents that were compared with each engine, for the report."""
    n_compared: dict[str, int] = {}
    for file, result in checked:
        for name in file.judge.engines:
            n_compared[name] = n_compared.get(name, 0) + result.facts.n_sampled
    return {f"documents_equal_to_{name}": n for name, n in n_compared.items()}
