"""Verifies a token dataset, wherever it is: everything that its manifest says is computed again from the files themselves."""

import random
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from tokenmill.analysis.beside import beside, tokenizer_of
from tokenmill.analysis.input_checks import find_inputs
from tokenmill.analysis.remote_dataset import StoredDataset
from tokenmill.checks.dataset_checks import CheckedFiles, wrong_identity, wrong_manifest, wrong_rest, wrong_stored
from tokenmill.checks.dropped_checks import dropped_documents
from tokenmill.checks.file_checks import DocumentRules, FileCheck, FileFacts, facts_and_findings, judges_of
from tokenmill.checks.findings import Finding, NotChecked, in_manifest, of_error
from tokenmill.checks.subject import RightFile, Subject
from tokenmill.config.source_params import Source
from tokenmill.console import Progress, progress
from tokenmill.corpus.dropped import DROPPED_FILE, Dropped, RecordedRows, none_dropped
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.dataset.entries import TableFile
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.errors import ParamsError, UsageError, ValidationError
from tokenmill.filters import filters_of, packages_of
from tokenmill.layout import QUARANTINE_DIRECTORY, TABLES_DIRECTORY
from tokenmill.pipeline.pools import Threads
from tokenmill.pipeline.run import Driver
from tokenmill.quantities import number_of
from tokenmill.storage.unit_store import UnitStore
from tokenmill.versioning.stored import folder_name
from tokenmill_reader.copy_check import files_below
from tokenmill_reader.manifest import MANIFEST_FILE, check_is_dataset

Result = Literal["right", "wrong", "not checked"]

# Bad documents are left out, as they were for the dataset, and counted.
_LENIENT = Source.model_construct(**dict[str, Any](on_bad_document="quarantine", on_bad_shard="quarantine"))


@dataclass
class Verdict:
    """The result of verifying. `dataset`: its folder or URL. `not_checked`: requested checks that were impossible, and why."""

    dataset: Path | str
    checked: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    @property
    def result(self) -> Result:
        """ "wrong" if anything is; else "not checked" if something could not be checked; else "right"."""
        return "wrong" if self.findings else "not checked" if self.not_checked else "right"

    def add(self, findings: Iterable[Finding | NotChecked]) -> None:
        """Adds what checks found."""
        for finding in findings:
            if isinstance(finding, Finding):
                self.findings.append(finding)
            else:
                self.not_checked.append(finding.why)


@dataclass(frozen=True)
class VerifyOptions:
    """The options of verifying a dataset.

    `tokenizer`: a tokenizer's folder or file; None: the folder `tokenizer` beside the dataset. `source`: the folder that the
    manifest's names of input files are relative to; None: without the documents. `sample_documents`: how many documents are also
    encoded by other engines, drawn with `seed` from all. `has_tables`: whether the tables must be in the folder `tables` beside the
    dataset; otherwise they are ignored.
    """

    tokenizer: Path | None
    source: Path | None
    sample_documents: int
    seed: int
    threads: int
    has_tables: bool = True


def verify(dataset: Path | str, options: VerifyOptions) -> Verdict:
    """Checks a dataset, its tables and its quarantine against each other, against its tokenizer, and against its documents.

    `dataset`: the folder with manifest.json, or in object storage PLACE/DIGEST. Raises ValidationError if there is no dataset, and
    TokenizerError if there is no tokenizer: then nothing could be checked.
    """
    if isinstance(dataset, str):
        return _verify_remote(dataset, options)
    check_is_dataset(dataset)
    return _verified(dataset, options, None)


def _verify_remote(url: str, options: VerifyOptions) -> Verdict:
    """Checks a dataset in object storage.

    Each thread fetches a file into the folder for temporary files, checks it, and removes it. A dataset with file sets is
    fetched whole, because they are compared with the documents. Raises also StorageError, and PassingError if the storage does not
    answer for a minute.
    """
    with tempfile.TemporaryDirectory(prefix="tokenmill-verify-") as scratch:
        remote = StoredDataset(url, Path(scratch))
        remote.fetch_beside(options.tokenizer is None, options.has_tables)
        if options.tokenizer is None and (wrong := remote.wrong_tokenizer()):
            verdict = Verdict(remote.tokens, findings=wrong, not_checked=["all that needs the tokenizer"])
        else:
            verdict = _verified(remote.tokens, options, remote)
        verdict.findings = [replace(finding, what=remote.in_words(finding.what)) for finding in verdict.findings]
        verdict.not_checked = [remote.in_words(one) for one in verdict.not_checked]
    verdict.dataset = url
    return verdict


def _verified(dataset: Path, options: VerifyOptions, remote: StoredDataset | None) -> Verdict:
    verdict = Verdict(dataset)
    try:
        manifest = read_manifest(dataset)
    except ValidationError as error:
        found = of_error(MANIFEST_FILE, error)
        verdict.add([replace(found, what=found.what.removeprefix(f"{dataset / MANIFEST_FILE}: "))])
        return verdict
    tokenizer_folder, tokenizer = tokenizer_of(dataset, options.tokenizer)
    subject = Subject(
        folder=dataset,
        names=files_below(dataset) if remote is None else remote.names,
        tables=beside(dataset, TABLES_DIRECTORY) if options.has_tables else None,
        quarantine=beside(dataset, QUARANTINE_DIRECTORY),
        manifest=manifest,
        tokenizer=tokenizer,
        tokenizer_folder=tokenizer_folder,
        inputs=None,
        digests=None,
    )
    if remote is not None:
        remote.keeps = bool(manifest.sets)
        verdict.add(remote.wrong)
    verdict.add(wrong_identity(subject))
    if any(finding.file == MANIFEST_FILE for finding in verdict.findings):
        return verdict
    if remote is not None and not remote.folder.endswith(f"/{folder_name(manifest)}"):
        what = f"is of the dataset {folder_name(manifest)}, not of that its folder is named after."
        verdict.add([in_manifest(what, "")])
    verdict.add(wrong_manifest(subject))
    with tempfile.TemporaryDirectory(prefix="tokenmill-verify-") as scratch:
        _check_files(subject, options, remote, verdict, Path(scratch))
    return verdict


def _check_files(
    subject: Subject, options: VerifyOptions, remote: StoredDataset | None, verdict: Verdict, scratch: Path
) -> None:
    """Checks the files of a dataset whose manifest can be trusted, and then what follows from all of them. `scratch`: an empty
    folder."""
    manifest, ended = subject.manifest, threading.Event()
    with (
        ThreadPoolExecutor(options.threads, thread_name_prefix="verify") as pool,
        progress("verify", sum(shard.n_bytes for shard in manifest.shards), "bytes") as now,
    ):
        try:
            of_inputs: list[Finding | NotChecked] = []
            if options.source is not None:
                inputs, of_inputs = find_inputs(manifest, options.source, pool, ended.is_set)
                subject = replace(subject, inputs=inputs)
            dropped, of_dropped = dropped_documents(subject)
            verdict.add([*of_dropped, *of_inputs])
            filters: Filters = {}
            if options.source is not None:
                filters, of_filters = _recorded_filters(manifest, dropped)
                verdict.add(of_filters)
            files = _files(subject, options, filters)
            folders = [scratch / str(i) for i in range(len(files))]
            run = _FileChecks(subject, remote, dropped is not None, ended, now)
            done = []
            for facts, findings in pool.map(run.check_file, files, folders):
                verdict.add(findings)
                done.append(facts)
            for findings in pool.map(run.check_set_file, manifest.set_files()):
                verdict.add(findings)
        finally:
            ended.set()
    right = [RightFile(file.entry, folder) for file, folder, facts in zip(files, folders, done, strict=True) if facts]
    rest = wrong_rest(subject, CheckedFiles(right, dropped, scratch, options.threads, code=""))
    verdict.add(Driver(scratch, UnitStore(scratch)).run(rest, Threads(options.threads)))
    engines = dict.fromkeys(name for file in files for name in file.judge.engines)
    verdict.checked = _numbers(manifest, options, [facts for facts in done if facts], list(engines))


def _recorded_filters(manifest: Manifest, dropped: Dropped | None) -> tuple[Filters, list[NotChecked]]:
    """What left documents out of the dataset: the filters that the manifest names, judged again, and else the rows of
    dropped.parquet. Also what cannot be judged again."""
    again: Filters = {}
    not_checked = []
    try:
        if manifest.filter_packages not in ({}, installed := packages_of(manifest.filters)):
            expected, found = (", ".join(of.values()) for of in (manifest.filter_packages, installed))
            raise UsageError(f"expected the packages {expected}; installed are {found}.")
        again = filters_of(manifest.filters)
    except (ParamsError, UsageError) as error:
        not_checked.append(NotChecked(f"whether the filters of {MANIFEST_FILE} left the right documents out: {error}"))
    rest = (dropped or none_dropped()).but_by(again)
    recorded: Filters = {DROPPED_FILE: RecordedRows(rest)} if rest.shards else {}
    return {**recorded, **again}, not_checked


def _files(subject: Subject, options: VerifyOptions, filters: Filters) -> list[FileCheck]:
    """The files of documents that are there, as they are to be checked."""
    manifest, judges, there = subject.manifest, judges_of(subject), set(subject.names)
    rules = DocumentRules(_LENIENT, UNBOUNDED, filters)
    sample = _sample(manifest, options.sample_documents, options.seed)
    return [
        FileCheck(
            entry=entry,
            tokens=subject.folder / entry.name,
            unit=None if subject.inputs is None else subject.inputs.units.get(entry.name),
            rules=rules,
            judge=judges[entry.name],
            sample=sample.get(entry.name, set()),
            group_column=None if manifest.files is None else manifest.files.split_group,
            tables=subject.tables,
        )
        for entry in manifest.shards
        if entry.name in there
    ]


@dataclass(frozen=True)
class _FileChecks:
    """Checks single files in several threads. `remote`: has the files; None: they are here. `knows_dropped`: whether the dropped
    documents are known. `ended`: set once an error or Ctrl-C has ended the work."""

    subject: Subject
    remote: StoredDataset | None
    knows_dropped: bool
    ended: threading.Event
    now: Progress

    def check_file(self, file: FileCheck, folder: Path) -> tuple[FileFacts | None, list[Finding]]:
        """Checks a file of documents, once it is here; its sums, or None if it is wrong or could not be checked."""
        if self.ended.is_set():
            return None, []
        entry = file.entry
        with self._at_hand(entry.name):
            folder.mkdir()
            findings = list(wrong_stored(self.subject, entry))
            is_lacking = file.unit is None or (not self.knows_dropped and any(rows.n_dropped for rows in entry.rows))
            if self.subject.inputs is not None and is_lacking:
                facts = None
            else:
                facts, further_findings = facts_and_findings(file, self._advance, folder)
                findings += further_findings
        self.now.add(entry.n_bytes)
        return facts, findings

    def check_set_file(self, file: TableFile) -> list[Finding]:
        """Checks the length and the digest of a file of a set, once it is here."""
        if self.ended.is_set():
            return []
        with self._at_hand(file.name):
            return list(wrong_stored(self.subject, file))

    def _at_hand(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.remote is None else self.remote.at_hand(name, self.ended)

    def _advance(self, _bytes: int, n_tokens: int) -> None:
        self.now.add(0, n_tokens)


def _numbers(
    manifest: Manifest, options: VerifyOptions, facts: Sequence[FileFacts], engines: Sequence[str]
) -> dict[str, Any]:
    """How much was checked."""
    return {
        "files": len(facts),
        "files_in_all": len(manifest.shards),
        "documents": sum(file_facts.n_documents for file_facts in facts),
        "tokens": sum(file_facts.n_tokens for file_facts in facts),
        "text_bytes": sum(file_facts.text_bytes for file_facts in facts),
        "files_of_sets": len(manifest.set_files()),
        "with_documents": options.source is not None,
        "sample": {
            "documents": sum(file_facts.n_sampled for file_facts in facts),
            "seed": options.seed,
            "engines": engines,
        },
    }


def _sample(manifest: Manifest, n_documents: int, seed: int) -> dict[str, set[int]]:
    """The rows of each file that are drawn from all documents of the dataset."""
    ends = list(accumulate(max(shard.n_documents, 0) for shard in manifest.shards))
    drawn = random.Random(seed).sample(range(ends[-1]), min(n_documents, ends[-1])) if ends else []
    rows_of: dict[str, set[int]] = {}
    for number in drawn:
        i = bisect_right(ends, number)
        rows_of.setdefault(manifest.shards[i].name, set()).add(number - (ends[i - 1] if i else 0))
    return rows_of


def lines_of(verdict: Verdict, shown_max: int) -> Iterator[str]:
    """The verdict for a person."""
    checked = verdict.checked
    if checked:
        against = "against" if checked["with_documents"] else "without"
        yield (
            f"{verdict.dataset}: {number_of(checked['documents'], 'document')}, {number_of(checked['tokens'], 'token')} and "
            f"{checked['files']:,} of {number_of(checked['files_in_all'], 'file')} checked {against} their documents"
        )
        if (n_files := checked["files_of_sets"]) and not any("file sets" in words for words in verdict.not_checked):
            yield f"  {n_files:,} files of file sets were compared with the documents of the dataset"
        if n_sampled := checked["sample"]["documents"]:
            yield f"  {n_sampled:,} documents, drawn at random, were also encoded by {' and '.join(checked['sample']['engines'])}"
    for finding in verdict.findings[:shown_max]:
        yield f"  wrong: {finding.file}: {finding}"
    if (n := len(verdict.findings) - shown_max) > 0:
        yield f"  and {n:,} more"
    for words in verdict.not_checked:
        yield f"  not checked: {words}"
    yield verdict.result
