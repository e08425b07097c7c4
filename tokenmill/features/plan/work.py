"""Finds what a build would still have to do, and why."""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tokenmill.config.params import Params
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.provenance import read_provenance
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.counts.spill import open_parquet
from tokenmill.dataset.entries import OutputShard
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.errors import CountsError, TokenmillError
from tokenmill.layout import (
    COUNTS_FILE,
    DOCUMENT_STAGES,
    OBJECTS_FILE,
    PROVENANCE_FILE,
    STAGES,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.pipeline.causes import Cause, as_words, causes_of, follows, inputs_that_stay, stages_to_follow
from tokenmill.pipeline.code_pins import code_changes
from tokenmill.pipeline.dvc_sight import refuse_unseen
from tokenmill.pipeline.input_changes import earlier_inputs, input_changes, last_manifest
from tokenmill.pipeline.last_plan import sets_bytes_of
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.rates import StageRate, read_rates
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.stages.count_units import CountFacts
from tokenmill.stages.dry_run import Looked, look_at_count, look_at_encode, project_now
from tokenmill.storage.unit_store import Done
from tokenmill.storage.urls import StoredObject
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_stage
from tokenmill.versioning.import_tokenizer import import_asked

_HASHED_BYTES_MAX = (
    256_000_000  # of files without a stored digest, such as files that were written just before the last build
)
_LENGTH_BYTES = 4  # before each value of a Parquet column of bytes


@dataclass(frozen=True)
class StageWork:
    """What one stage would do. `reasons`: texts, empty if it is up to date. `n_units`: None for a stage without units. `todo`: the
    file bytes that it would read of each shard, without finished units."""

    stage: str
    would_run: bool
    reasons: list[str]
    n_units: int | None = None
    n_units_todo: int | None = None
    todo: dict[Shard, int] = field(default_factory=dict)

    @property
    def file_bytes(self) -> int:
        """The size of the documents that it would read, in file bytes."""
        return sum(self.todo.values())


class Finished(NamedTuple):
    """Sums over the finished units of `encode` that stay valid, named like the dataset's quantities."""

    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    output_bytes: int = 0

    def plus(self, other: "Finished") -> "Finished":
        """Adds another record field by field."""
        return Finished(*(one + more for one, more in zip(self, other, strict=True)))


class EarlierTotals(NamedTuple):
    """Totals of document files that an earlier build read; a file has a share of its unit by bytes."""

    file_bytes: float = 0
    documents: float = 0
    text_bytes: float = 0

    def plus(self, other: "EarlierTotals") -> "EarlierTotals":
        """Adds another record field by field."""
        return EarlierTotals(*(one + more for one, more in zip(self, other, strict=True)))


class Distinct(NamedTuple):
    """The number of distinct pre-tokens in `text_bytes` of text, and their total bytes."""

    text_bytes: int
    n: int
    n_bytes: int


@dataclass(frozen=True)
class Work:
    """What a build of a project would do. `stages`: in order. `finished`: sums of the units that stay in the dataset. `tokenizer`:
    the present one, if it predicts the dataset's length: the build encodes with it or with one learned by the same parameters; else
    None. `earlier`: totals of the files to encode that an earlier build read. `counted`: the distinct pre-tokens of the counts if
    these stay valid, else None. `counted_before`: those of counts to which further documents are added, else None. `manifest`: that
    of the present dataset, or None. `rates`: what the stages took when a build last ran them."""

    project: Project
    stages: dict[str, StageWork]
    finished: Finished
    tokenizer: Tokenizer | None
    earlier: dict[Shard, EarlierTotals]
    counted: Distinct | None
    counted_before: Distinct | None
    manifest: Manifest | None
    rates: Mapping[str, StageRate]

    @property
    def would_run(self) -> bool:
        """Whether a build would run any stage."""
        return any(stage.would_run for stage in self.stages.values())

    @property
    def counts(self) -> bool:
        """Whether the build counts pre-tokens."""
        return self.project.params.tokenizer is None and self.stages["count"].would_run

    @property
    def learns(self) -> bool:
        """Whether the build learns a vocabulary."""
        return self.project.params.tokenizer is None and self.stages["train-vocab"].would_run

    @property
    def shards(self) -> list[Shard]:
        """The files of documents."""
        return list(self.project.corpus.sha256)

    @property
    def built(self) -> Mapping[str | None, int]:
        """The tokens of each named source in the present dataset, or of its only source under None; empty without a dataset."""
        if self.manifest is None:
            return {}
        return {source.name: source.n_tokens for source in self.manifest.sources} or {None: self.manifest.n_tokens}

    @property
    def sets_bytes(self) -> int:
        """The bytes of the file sets in the present dataset."""
        return 0 if self.manifest is None else sets_bytes_of(self.manifest)

    @property
    def id_max(self) -> int:
        """The largest id of the tokenizer, or of the vocabulary that params.yaml asks for."""
        if self.tokenizer is not None:
            return self.tokenizer.id_max
        return max(self.project.params.train_vocab.vocab_size - 1, 0)

    def share(self, stage: str) -> float:
        """The share of the documents' files that a stage would read."""
        return self.stages[stage].file_bytes / max(sum(shard.n_bytes for shard in self.shards), 1)


def find_work(root: Path, params: Params) -> Work:
    """What a build of the project at `root` would do. Files with unchanged length and times count as unchanged. Of the others, the
    smallest are hashed, up to 256 MB; the rest count as changed. Raises CorpusError, ParamsError, TokenizerError, VersionsError."""
    project = project_now(root, params, _HASHED_BYTES_MAX)
    reasons = _reasons(project)
    stages = {name: StageWork(name, bool(why), as_words(why)) for name, why in reasons.items()}
    counted: dict[str, CountFacts] = {}
    if params.tokenizer is None:  # otherwise count has no units
        counted = {
            looked_at.task.name: looked_at.done.facts
            for looked_at in look_at_count(project)
            if looked_at.done is not None
        }
        stages["count"] = _with_units(stages["count"], project.units, set(counted))
    why_replaced = [why for why in reasons["train-vocab"] if why.has_effect or why.kind == "output"]
    tokenizer = _tokenizer(root, params, why_replaced)
    manifest = last_manifest(root)
    finished = Finished()
    encoded: dict[str, Looked] = {}
    taken_over: dict[str, OutputShard] = {}
    if not reasons["encode"]:
        finished = _of_shards((manifest or read_manifest(root / TOKENS_DIRECTORY)).shards)
    elif tokenizer is not None and (not why_replaced or (params.tokenizer is not None and params.encode.chat is None)):
        looked = look_at_encode(project)
        encoded = {looked_at.task.name: looked_at for looked_at in looked if looked_at.done is not None}
        finished = _sums([looked_at.done for looked_at in encoded.values() if looked_at.done is not None])
        if manifest is not None:
            taken_over = _taken_over(
                manifest, {looked_at.task.key: looked_at.task.name for looked_at in looked if looked_at.done is None}
            )
            finished = finished.plus(_of_shards(taken_over.values()))
    finished_names = encoded.keys() | taken_over.keys()
    stages["encode"] = _with_units(stages["encode"], project.units, finished_names)
    checked = {shard.unit for shard in manifest.shards} if manifest else set()  # by validate
    again = {name for name, looked_at in encoded.items() if looked_at.task.key in checked}
    stages["validate"] = _with_units(stages["validate"], project.units, again)
    return Work(
        project,
        stages,
        finished,
        tokenizer,
        _earlier(project, reasons["encode"], manifest, finished_names, counted) if reasons["encode"] else {},
        None if stages["count"].would_run else _distinct(root / COUNTS_FILE),
        _distinct(root / COUNTS_FILE) if _only_added(project, reasons["count"]) else None,
        manifest,
        read_rates(root, params),
    )


def _reasons(project: Project) -> dict[str, list[Cause]]:
    """The causes for which each stage of dvc.yaml would run; empty if it would not. Raises what a build raises for inputs that DVC
    would not see."""
    root, params, shards = project.root, project.params, list(project.corpus.sha256)
    causes: dict[str, list[Cause]] = {}
    paths = [
        (root / OBJECTS_FILE if isinstance(shard.path, StoredObject) else shard.path).absolute() for shard in shards
    ]
    of_code = code_changes(root, params.source)
    before_each = stages_of(root)
    for name in STAGES:
        if name not in before_each:
            with dvc_stage.opened(root, name, {}):  # raises the error of a build
                pass
    for name, before in before_each.items():
        reads = name in DOCUMENT_STAGES
        with dvc_stage.opened(root, name, {}) as stage:
            refuse_unseen(root, params, shards, stage, name)
            if stage.is_frozen:
                causes[name] = []
                continue
            changes = inputs_that_stay(stage.changes(paths if reads else ()), causes)
        of_documents = []
        if reads:
            words = str(input_changes(earlier_inputs(root, name), shards, lambda _: project.corpus.sha256))
            of_documents = [Cause("documents", words)] if words else []
        why = causes_of(name, changes, root, params, of_code.get(name), lambda _: None, of_documents)
        causes[name] = why + follows(name, why, stages_to_follow(before, causes))
    return causes


def _with_units(work: StageWork, units: Sequence[Unit], finished: Set[str]) -> StageWork:
    """The stage's work with its numbers of units and bytes. `finished`: the names of units that need no work."""
    todo = [unit for unit in units if unit.name not in finished] if work.would_run else []
    by_shard: Tally[Shard] = Tally()
    for unit in todo:
        for piece in unit.pieces:
            by_shard[piece.shard] += piece.n_bytes
    return StageWork(work.stage, work.would_run, work.reasons, len(units), len(todo), dict(by_shard))


def _earlier(
    project: Project,
    reasons: Sequence[Cause],
    manifest: Manifest | None,
    finished: Set[str],
    counted: Mapping[str, CountFacts],
) -> dict[Shard, EarlierTotals]:
    """Totals of the files to encode, from the facts of `counted` units and from the dataset. Empty for conversations, whose text
    depends on the template. `reasons`: why encode would run. `finished`: the names of encoded units."""
    if project.params.encode.chat is not None:
        return {}
    is_known = manifest is not None and not any(reason.decides_documents for reason in reasons)
    before = _units_of_the_dataset(project, manifest) if manifest is not None and is_known else {}
    totals: dict[Shard, EarlierTotals] = {}
    for unit in project.units:
        facts = counted.get(unit.name)
        known = before.get(tuple(starts_of(unit))) if facts is None else (facts.n_documents, facts.text_bytes)
        if unit.name in finished or known is None:
            continue
        n_documents, text_bytes = known
        for piece in unit.pieces:
            share = piece.n_bytes / max(unit.n_bytes, 1)
            read = EarlierTotals(piece.n_bytes, n_documents * share, text_bytes * share)
            totals[piece.shard] = totals.get(piece.shard, EarlierTotals()).plus(read)
    return totals


def _units_of_the_dataset(project: Project, manifest: Manifest) -> dict[tuple[tuple[str, int], ...], tuple[int, int]]:
    """The number of documents and the text bytes of each unit of data/tokens with unchanged files, by its pieces."""
    now = {shard.name: sha256 for shard, sha256 in project.corpus.sha256.items()}
    same = {input_file.name for input_file in manifest.inputs if now.get(input_file.name) == input_file.sha256}
    return {
        tuple(one.pieces): (one.n_documents, one.text_bytes)
        for one in manifest.shards
        if all(rows.name in same for rows in one.rows)
    }


def _tokenizer(root: Path, params: Params, reasons: Sequence[Cause]) -> Tokenizer | None:
    """The tokenizer in data/tokenizer; None if it will be replaced: by an import of another one, or for another reason than new
    counts or another chat template. `reasons`: those why train-vocab writes another or writes it again."""
    if params.tokenizer is None and any(
        why.kind not in ("follows", "counts") and not why.key.startswith("encode.chat") for why in reasons
    ):
        return None
    try:
        present = Tokenizer.load(root / TOKENIZER_DIRECTORY)
    except (TokenmillError, OSError):
        return None
    if params.tokenizer is not None and reasons:
        with TemporaryDirectory(prefix="tokenmill-") as folder:
            imported = import_asked(root, params.tokenizer, Path(folder) / "tokenizer")
        return present if imported.digest == present.digest else None
    return present


def _sums(encoded: Sequence[Done[EncodeFacts]]) -> Finished:
    """The sums over encoded units."""
    facts = [result.facts for result in encoded]
    return Finished(
        sum(sum(unit_facts.piece_rows) for unit_facts in facts),
        sum(unit_facts.n_tokens for unit_facts in facts),
        sum(unit_facts.text_bytes for unit_facts in facts),
        sum(result.files[TOKENS_FILE].n_bytes for result in encoded),
    )


def _of_shards(shards: Iterable[OutputShard]) -> Finished:
    """The sums over files of data/tokens."""
    rows = [(shard.n_documents, shard.n_tokens, shard.text_bytes, shard.n_bytes) for shard in shards]
    return Finished(*(sum(column) for column in zip(*rows, strict=True)))


def _taken_over(manifest: Manifest, names: Mapping[str, str]) -> dict[str, OutputShard]:
    """The files of data/tokens that a build takes over as units, by the unit's name. `names`: by the keys of units that the store
    lacks."""
    whole = [shard for shard in manifest.shards if all(rows.n_bad is not None for rows in shard.rows)]
    return {names[one.unit]: one for one in whole if one.unit in names}


def _only_added(project: Project, reasons: Sequence[Cause]) -> bool:
    """Whether count adds documents to those that were counted exactly, all of which stay. `reasons`: why it would run."""
    path = project.root / PROVENANCE_FILE
    if {cause.kind for cause in reasons} != {"documents"} or not path.exists():
        return False
    there = {(shard.name, sha256) for shard, sha256 in project.corpus.sha256.items()}
    return {(shard.name, shard.sha256) for shard in read_provenance(path).shards} <= there


def _distinct(path: Path) -> Distinct | None:
    """The distinct pre-tokens in the present counts; None without counts."""
    try:
        with open_parquet(path) as file:
            metadata = file.metadata
    except CountsError:
        return None
    n_bytes = sum(metadata.row_group(i).column(0).total_uncompressed_size for i in range(metadata.num_row_groups))
    return Distinct(0, metadata.num_rows, n_bytes - _LENGTH_BYTES * metadata.num_rows)
