"""Verifies a token dataset, wherever it is: everything that its manifest says is computed again from the files themselves."""

import random
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from tokenmill.analysis.beside import beside, check_is_dataset, tokenizer_of
from tokenmill.analysis.input_checks import check_inputs
from tokenmill.analysis.remote_dataset import RemoteDataset
from tokenmill.artifacts.golden import sample_engines
from tokenmill.chat.encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.checks.dropped_checks import list_of_dropped, not_in_list, still_there, wrong_dropped
from tokenmill.checks.file_checks import FileFacts, check_file, documents_of
from tokenmill.checks.manifest_checks import (
    files_below,
    misplaced,
    unnamed_tables,
    wrong_digest,
    wrong_file,
    wrong_files,
    wrong_in_itself,
    wrong_names,
    wrong_quarantine,
    wrong_table_files,
    wrong_with_tokenizer,
)
from tokenmill.checks.row_checks import Judge
from tokenmill.checks.set_checks import wrong_sets
from tokenmill.config.load_params import load_params
from tokenmill.config.source_params import Source
from tokenmill.console import Progress, progress
from tokenmill.corpus.drop import DropList, DroppedDocument, drop_list
from tokenmill.corpus.dropped import DROPPED_FILE, FindDropped, find_rows, read_dropped, write_dropped
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.corpus.units import Unit
from tokenmill.dataset.document_index import read_index
from tokenmill.dataset.groups import GroupKeys, Groups, KnownGroups
from tokenmill.dataset.manifest import MANIFEST_FILE, Manifest, OutputShard, TableFile, read_manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE, UNIT_INDEX_FILE, Part, has_column, write_tables, wrong_tables
from tokenmill.errors import CorpusError, ParamsError, TokenmillError, ValidationError
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.planned import documents_shape
from tokenmill.layout import PARAMS_FILE, QUARANTINE_DIRECTORY, TABLES_DIRECTORY
from tokenmill.rounds import Rounds, T, Task
from tokenmill.storage.atomic import read
from tokenmill.storage.unit_store import Done
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning.stored import TOKENIZER, folder_name

Result = Literal["right", "wrong", "not checked"]

# Bad documents are left out, as they were for the dataset, and counted.
_LENIENT = Source.model_construct(**dict[str, Any](on_bad_document="quarantine", on_bad_shard="quarantine"))


@dataclass(frozen=True)
class Finding:
    """Something that is wrong. `file`: relative to the dataset's folder, or `../tables/…` and the like beside it."""

    file: str
    what: str


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
        remote = RemoteDataset(url, Path(scratch))
        remote.fetch_beside(options.tokenizer is None, options.has_tables)
        beside = [
            Finding(f"../{name}", what)
            for name, what in remote.wrong_beside()
            if options.tokenizer is None or not name.startswith(f"{TOKENIZER}/")
        ]
        if any(one.file.startswith(f"../{TOKENIZER}/") for one in beside):
            verdict = Verdict(remote.tokens, findings=beside, not_checked=["all that needs the tokenizer"])
        else:
            verdict = _verified(remote.tokens, options, remote)
            known = {one.file for one in verdict.findings}
            verdict.findings += [one for one in beside if one.file not in known]
    verdict.dataset = url
    verdict.findings = [Finding(one.file, remote.in_words(one.what)) for one in verdict.findings]
    verdict.not_checked = [remote.in_words(one) for one in verdict.not_checked]
    return verdict


def _verified(dataset: Path, options: VerifyOptions, remote: RemoteDataset | None) -> Verdict:
    verdict = Verdict(dataset)
    try:
        manifest = read_manifest(dataset)
    except ValidationError as error:
        words = str(error).removeprefix(f"{dataset / MANIFEST_FILE}: ")
        verdict.findings.append(Finding(MANIFEST_FILE, words))
        return verdict
    loaded = tokenizer_of(dataset, options.tokenizer)
    if remote is not None:
        remote.keeps = bool(manifest.sets)
        verdict.findings += [Finding(f"../{name}", "not a file of an upload. Delete it.") for name in remote.strays]
    _Verification(verdict, manifest, *loaded, dataset, options, remote).run()
    return verdict


class _Verification:
    """One run of `verify`: the steps in order, each of which adds to the verdict."""

    def __init__(
        self,
        verdict: Verdict,
        manifest: Manifest,
        directory: Path,
        tokenizer: Tokenizer,
        dataset: Path,
        options: VerifyOptions,
        remote: RemoteDataset | None,
    ) -> None:
        self._verdict, self._manifest, self._tokenizer = verdict, manifest, tokenizer
        self._dataset, self._options, self._remote = dataset, options, remote
        may_sample = options.source is not None or not tokenizer.prepares_text
        chat = None
        if manifest.chat is not None:
            chat = ChatEncoder(tokenizer, ChatSettings(**manifest.chat.encoding), MANIFEST_FILE)
        self._policies = manifest.policies()
        self._judges = {
            policy: Judge(
                tokenizer=tokenizer,
                begin_id=manifest.begin_of_document_id,
                end_id=manifest.end_of_document_id,
                special_in_text=policy == "allow",
                has_source=options.source is not None,
                engines=sample_engines(directory, tokenizer, policy == "allow" or chat is not None)
                if may_sample
                else {},
                chat=chat,
                rejects_special=policy == "reject" and chat is None,
            )
            for policy in sorted(set(self._policies.values()) or {"as_text"})
        }
        self._source_names = manifest.source_names()
        self._sample = _sample(manifest, options.sample_documents, options.seed)
        self._stop = threading.Event()

    def run(self) -> None:
        manifest = self._manifest
        self._find(MANIFEST_FILE, wrong_with_tokenizer(manifest, self._tokenizer))
        self._find(MANIFEST_FILE, [*wrong_names(manifest), *misplaced(manifest)])
        if any(
            one.file == MANIFEST_FILE for one in self._verdict.findings
        ):  # every row would be wrong, or files elsewhere would be read
            return
        self._find(MANIFEST_FILE, wrong_digest(manifest, read(self._dataset / MANIFEST_FILE)))
        self._find(MANIFEST_FILE, wrong_in_itself(manifest))
        if self._remote is not None and not self._remote.folder.endswith(f"/{folder_name(manifest)}"):
            self._find(
                MANIFEST_FILE, [f"is of the dataset {folder_name(manifest)}, not of that its folder is named after."]
            )
        names = [MANIFEST_FILE, *manifest.names()]
        there = set(self._remote.names if self._remote else files_below(self._dataset))
        self._verdict.findings += [Finding(*wrong) for wrong in wrong_files(names, there)]
        n_bytes = sum(shard.n_bytes for shard in manifest.shards)
        _ = self._find_dropped  # read before the threads need it
        with (
            tempfile.TemporaryDirectory(prefix="tokenmill-verify-") as scratch,
            ThreadPoolExecutor(self._options.threads, thread_name_prefix="verify") as pool,
            progress("verify", n_bytes, "bytes") as now,
        ):
            try:
                units = self._units(pool)
                entries = [shard for shard in manifest.shards if shard.name in there]
                jobs = [(entry, Path(scratch) / f"{i}", units.get(entry.name)) for i, entry in enumerate(entries)]
                done = []
                for (entry, *_), (facts, wrong) in zip(
                    jobs, pool.map(lambda job: self._file(now, *job), jobs), strict=True
                ):
                    self._find(entry.name, wrong)
                    done.append(facts)
            finally:
                self._stop.set()
            parts = [
                Part(
                    entry.name,
                    entry.pieces,
                    folder,
                    self._source_names.get(entry.rows[0].name, ""),
                )
                for (entry, folder, _), facts in zip(jobs, done, strict=True)
                if facts
            ]
            self._tables(parts, Path(scratch))
            self._sets(parts, Path(scratch))
            self._dropped(Path(scratch) / "tables" / DOCUMENTS_FILE)
        self._quarantine()
        self._verdict.checked = {
            "files": len(parts),
            "files_in_all": len(manifest.shards),
            "documents": sum(facts.n_documents for facts in done if facts),
            "tokens": sum(facts.n_tokens for facts in done if facts),
            "text_bytes": sum(facts.text_bytes for facts in done if facts),
            "files_of_sets": len(manifest.set_files()),
            "with_documents": self._options.source is not None,
            "sample": {
                "documents": sum(facts.n_sampled for facts in done if facts),
                "seed": self._options.seed,
                "engines": list(dict.fromkeys(name for one in self._judges.values() for name in one.engines)),
            },
        }

    def _find(self, file: str, wrong: Iterable[str]) -> None:
        self._verdict.findings += [Finding(file, what) for what in wrong]

    def _units(self, pool: ThreadPoolExecutor) -> Mapping[str, Unit]:
        """The documents of each file of the dataset, as far as they are there."""
        if self._options.source is None:
            return {}
        found = check_inputs(self._manifest, self._options.source, pool, self._stop.is_set)
        self._find(MANIFEST_FILE, found.wrong)
        self._verdict.not_checked += found.not_checked
        return found.units

    def _at_hand(self, name: str, ended: threading.Event) -> AbstractContextManager[None]:
        """Has a file of the dataset on this machine while the block runs."""
        return nullcontext() if self._remote is None else self._remote.at_hand(name, ended)

    def _file(
        self, now: Progress, entry: OutputShard, folder: Path, unit: Unit | None
    ) -> tuple[FileFacts | None, list[str]]:
        """Checks one file, once it is on this machine, unless another file has ended the work with an error."""
        if self._stop.is_set():
            return None, []
        with self._at_hand(entry.name, self._stop):
            return self._local_file(now, entry, folder, unit)

    def _local_file(
        self, now: Progress, entry: OutputShard, folder: Path, unit: Unit | None
    ) -> tuple[FileFacts | None, list[str]]:
        """Checks one file; its sums, or None if it is wrong or could not be checked, and what is wrong. Raises OSError if the
        machine fails, such as for a full disk, because this says nothing of the file."""
        path = self._dataset / entry.name
        wrong: list[str] = []
        folder.mkdir()
        try:
            wrong += wrong_file(path, entry.n_bytes, entry.sha256)
            has_dropped = any(rows.n_dropped for rows in entry.rows)
            if self._options.source is not None and (unit is None or (has_dropped and self._dropped_documents is None)):
                return None, wrong
            documents = None
            if unit is not None:
                documents = documents_of(
                    unit, entry, _LENIENT, UNBOUNDED, lambda _bytes, _tokens: None, self._find_dropped
                )
            judge = self._judge_of(entry)
            sample = self._sample.get(entry.name, set())
            groups = self._groups(entry, unit)
            facts = check_file(entry, path, documents, judge, sample, lambda _bytes, n: now.add(0, n), folder, groups)
            return facts, wrong
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 — a damaged file makes pyarrow raise errors of many kinds
            words = "; ".join(error.lines) if isinstance(error, TokenmillError) else str(error)
            return None, [*wrong, words or type(error).__name__]
        finally:
            now.add(entry.n_bytes)

    def _judge_of(self, entry: OutputShard) -> Judge:
        # None: the manifest contradicts itself, which is found elsewhere.
        policy = self._policies.get(entry.rows[0].name)
        return next(iter(self._judges.values())) if policy is None else self._judges[policy]

    def _groups(self, entry: OutputShard, unit: Unit | None) -> Groups | None:
        """The groups of a file's documents, if they decide the splits: from the documents, else from the document index."""
        files = self._manifest.files
        if files is None or files.split_group is None:
            return None
        if unit is not None:
            return GroupKeys(unit, files.split_group, UNBOUNDED)
        index = beside(self._dataset, TABLES_DIRECTORY) / DOCUMENTS_FILE
        if not self._options.has_tables or not index.exists():
            return None
        found = read_index(index, [("file", "=", entry.name)], ["group"])
        return KnownGroups(found["group"].combine_chunks())

    def _sets(self, parts: list[Part], scratch: Path) -> None:
        """Checks the file sets, once the documents' own files are found right."""
        manifest = self._manifest
        files = manifest.set_files()
        with ThreadPoolExecutor(self._options.threads, thread_name_prefix="verify") as pool:
            ended = threading.Event()
            try:
                wrong = pool.map(lambda file: self._set_file(file, ended), files)
                for file, found in zip(files, wrong, strict=True):
                    self._find(file.name, found)
            finally:
                ended.set()
        if len(parts) < len(manifest.shards) or not (manifest.files or manifest.sets):
            return
        if manifest.files and manifest.files.split_group and not has_column(parts, "group"):
            self._verdict.not_checked.append(
                "the file sets: their splits follow from groups, which the tables beside hold"
            )
            return
        begin_id, end_id = manifest.begin_of_document_id, manifest.end_of_document_id
        shape = documents_shape(self._tokenizer, begin_id, end_id, manifest.has_ids, manifest.chat is not None)
        units = [
            EncodedUnit(
                name,
                self._dataset / entry.name,
                part.folder / UNIT_INDEX_FILE,
                entry.pieces,
                [entry.name],
                part.source if manifest.sources else "",
            )
            for (name, entry), part in zip(manifest.outputs(), parts, strict=True)
        ]
        threads = self._options.threads
        try:
            checks = wrong_sets(manifest, self._dataset, units, shape, lambda _: False, lambda _: None, threads, "")
            self._verdict.findings += [Finding(*one) for one in _drive(checks, scratch / "sets", threads)]
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 — a damaged file makes pyarrow raise errors of many kinds
            self._find(MANIFEST_FILE, [f"the file sets cannot be read: {error or type(error).__name__}"])

    def _set_file(self, file: TableFile, ended: threading.Event) -> list[str]:
        if ended.is_set():
            return []
        with self._at_hand(file.name, ended):
            return wrong_file(self._dataset / file.name, file.n_bytes, file.sha256)

    def _tables(self, parts: list[Part], scratch: Path) -> None:
        manifest = self._manifest
        found = beside(self._dataset, TABLES_DIRECTORY)
        if (manifest.format_version < 4 and not manifest.tables) or not self._options.has_tables:
            return
        if not found.is_dir():
            self._verdict.not_checked.append(f"the tables: {found} is not there; copy it beside the dataset")
            return
        place = f"../{found.name}"
        for name, wrong in wrong_table_files(manifest, found):
            self._find(f"{place}/{name}", [wrong])
        if len(parts) < len(manifest.shards):
            return  # what is missing is named already
        made = scratch / "tables"
        made.mkdir()
        write_tables(parts, manifest.has_ids, self._tokenizer, made, manifest.files.splits if manifest.files else {})
        if self._options.source:
            write_dropped(made / DROPPED_FILE, ((part.pieces, part.folder) for part in parts))
        without: set[str] = set()
        if not self._options.source:
            has_digests = manifest.chat is not None or not self._tokenizer.prepares_text
            has_left_out = any(rows.n_dropped or rows.n_bad != 0 for entry in manifest.shards for rows in entry.rows)
            without = {"row"} if has_left_out else set()  # only documents tell which rows were left out
            without |= (set() if has_digests else {"sha256"}) | ({"n_messages"} if manifest.chat else set())
        self._find(MANIFEST_FILE, unnamed_tables(manifest, files_below(made)))
        for name, wrong in wrong_tables(made, found, without):
            self._find(f"{place}/{name}", [wrong])

    @cached_property
    def _dropped_documents(self) -> dict[str, list[DroppedDocument]] | None:
        """The content of dropped.parquet; None if it is not there or cannot be read."""
        path = beside(self._dataset, TABLES_DIRECTORY) / DROPPED_FILE
        if not self._options.has_tables or not path.exists():
            if not self._manifest.n_dropped or not (self._options.source or self._options.has_tables):
                return {}
            self._verdict.not_checked.append(f"the dropped documents: {path} is not there; copy it beside the dataset")
            return None
        try:
            return read_dropped(path)
        except ValidationError as error:
            self._find(f"../{path.parent.name}/{path.name}", [str(error)])
            return None

    @cached_property
    def _find_dropped(self) -> FindDropped:
        return find_rows(self._dropped_documents or {})

    def _dropped(self, made: Path) -> None:
        """Checks the dropped documents against the manifest, and that none is in the dataset. `made`: the document index derived
        from the tokens, if it exists."""
        dropped = self._dropped_documents
        if dropped is None or not self._options.has_tables:
            return
        self._find(f"../{Path(TABLES_DIRECTORY).name}/{DROPPED_FILE}", wrong_dropped(self._manifest, dropped))
        found = beside(self._dataset, TABLES_DIRECTORY) / DOCUMENTS_FILE
        index = made if self._options.source and made.exists() else found
        lists = [(DROPPED_FILE, list_of_dropped(dropped))]
        asked, name = self._project_drop
        if asked is not None:
            lists.append((name, asked))
            self._find(f"../{Path(TABLES_DIRECTORY).name}/{DROPPED_FILE}", not_in_list(name, asked, dropped))
        if not index.exists() or not any(some.lines for _, some in lists):
            return
        try:
            self._verdict.findings += [Finding(*one) for one in still_there(index, lists)]
        except ValidationError as error:
            self._find(f"../{found.parent.name}/{found.name}", [str(error)])

    @cached_property
    def _project_drop(self) -> tuple[DropList | None, str]:
        """The list that source.drop of the project names, and its name; None if there is no project."""
        path = None if self._options.source is None else self._options.source / PARAMS_FILE
        if path is None or not path.exists():
            return None, ""
        try:
            params = load_params(path)
            drop = params.source.drop
            return drop_list(path.parent, drop, params.has_ids), drop or "source.drop: null"
        except (CorpusError, ParamsError) as error:
            self._verdict.not_checked.append(f"whether all documents of source.drop are gone: {error}")
            return None, ""

    def _quarantine(self) -> None:
        path = beside(self._dataset, QUARANTINE_DIRECTORY) / QUARANTINE_FILE
        n_bad = self._manifest.n_bad
        if not path.exists():
            if n_bad or any(rows.n_bad is None for entry in self._manifest.shards for rows in entry.rows):
                self._verdict.not_checked.append(f"the quarantine: {path} is not there; copy it beside the dataset")
            return
        self._find(f"../{path.parent.name}/{path.name}", wrong_quarantine(self._manifest, path))


def _drive(rounds: Rounds[T], scratch: Path, threads: int) -> T:
    """Runs rounds of tasks in threads, in folders below `scratch`, and gives what the generator returns."""
    scratch.mkdir(exist_ok=True)

    def run(task: Task[Any]) -> Done[Any]:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        return Done(folder, task.run(folder, lambda n_bytes, n_tokens: None), {})

    results: Any = None
    with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
        while True:
            try:
                round = rounds.send(results)
            except StopIteration as end:
                returned: T = end.value
                return returned
            results = list(pool.map(run, round.tasks))


def _sample(manifest: Manifest, n_documents: int, seed: int) -> dict[str, set[int]]:
    """The rows of each file that are drawn from all documents of the dataset."""
    ends = list(accumulate(max(shard.n_documents, 0) for shard in manifest.shards))
    drawn = random.Random(seed).sample(range(ends[-1]), min(n_documents, ends[-1])) if ends else []
    found: dict[str, set[int]] = {}
    for at in drawn:
        i = bisect_right(ends, at)
        found.setdefault(manifest.shards[i].name, set()).add(at - (ends[i - 1] if i else 0))
    return found


def lines_of(verdict: Verdict, shown_max: int) -> Iterator[str]:
    """The verdict for a person."""
    checked = verdict.checked
    if checked:
        against = "against" if checked["with_documents"] else "without"
        yield (
            f"{verdict.dataset}: {checked['documents']:,} documents, {checked['tokens']:,} tokens and {checked['files']:,} of "
            f"{checked['files_in_all']:,} files checked {against} their documents"
        )
        if n_sampled := checked["sample"]["documents"]:
            yield f"  {n_sampled:,} documents, drawn at random, were also encoded by {' and '.join(checked['sample']['engines'])}"
    for finding in verdict.findings[:shown_max]:
        yield f"  wrong: {finding.file}: {finding.what}"
    if (n := len(verdict.findings) - shown_max) > 0:
        yield f"  and {n:,} more"
    for one in verdict.not_checked:
        yield f"  not checked: {one}"
    yield verdict.result
