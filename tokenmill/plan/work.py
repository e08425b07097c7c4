"""Finds what a build would still have to do, and why."""

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.dataset.manifest import read_manifest
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.errors import TokenmillError
from tokenmill.layout import DOCUMENT_STAGES, OBJECTS_FILE, STAGES, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.causes import NEVER, Cause, as_words, causes_of, follows, in_order
from tokenmill.pipeline.code_pins import code_changes
from tokenmill.pipeline.dvc_sight import refuse_unseen
from tokenmill.pipeline.estimate import EarlierTotals, Finished, StageWork
from tokenmill.pipeline.input_changes import earlier_inputs, input_changes
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.plan.dry_run import Looked, look_at_count, look_at_encode, project_now
from tokenmill.stages.count_units import CountFacts
from tokenmill.storage.unit_store import Done
from tokenmill.storage.urls import StoredObject
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_stage

_HASHED_BYTES_MAX = (
    256_000_000  # of files without a stored digest, such as files that were written just before the last build
)


@dataclass(frozen=True)
class Work:
    """What a build of a project would do. `stages`: in order. `finished`: sums of the units that stay in the dataset. `tokenizer`:
    the present one, if it predicts the dataset's length: the build encodes with it or with one learned by the same parameters; else
    None. `read`: totals of the files to encode that an earlier build read."""

    project: Project
    stages: dict[str, StageWork]
    finished: Finished
    tokenizer: Tokenizer | None
    read: dict[Shard, EarlierTotals]

    @property
    def would_run(self) -> bool:
        """Whether a build would run any stage."""
        return any(one.would_run for one in self.stages.values())

    @property
    def shards(self) -> list[Shard]:
        """The files of documents."""
        return list(self.project.corpus.sha256)


def find_work(root: Path, params: Params) -> Work:
    """What a build of the project at `root` would do. Files with unchanged length and times count as unchanged. Of the others, the
    smallest are hashed, up to 256 MB; the rest count as changed. Raises CorpusError, ParamsError, TokenizerError, VersionsError."""
    project = project_now(root, params, _HASHED_BYTES_MAX)
    reasons = _reasons(project)
    stages = {name: StageWork(name, bool(why), as_words(why)) for name, why in reasons.items()}
    counted: dict[str, CountFacts] = {}
    if params.tokenizer is None:  # otherwise count has no units
        counted = {one.task.name: one.done.facts for one in look_at_count(project) if one.done is not None}
        stages["count"] = _with_units(stages["count"], project.units, set(counted))
    tokenizer = _tokenizer(root, reasons["train-vocab"])
    finished = Finished()
    encoded: dict[str, Looked] = {}
    if not reasons["encode"]:
        finished = _of_the_dataset(root)
    elif tokenizer is not None and not reasons["train-vocab"]:
        encoded = {one.task.name: one for one in look_at_encode(project) if one.done is not None}
        finished = _sums([one.done for one in encoded.values() if one.done is not None])
    stages["encode"] = _with_units(stages["encode"], project.units, set(encoded))
    checked = _keys_of_the_dataset(root) if encoded else set()
    again = {name for name, one in encoded.items() if one.task.key in checked}
    stages["validate"] = _with_units(stages["validate"], project.units, again)
    read = _read(project, set(encoded), counted, reasons["encode"])
    return Work(project, stages, finished, tokenizer, read)


def _reasons(project: Project) -> dict[str, list[Cause]]:
    """The causes for which each stage of dvc.yaml would run; empty if it would not. Raises what a build raises for inputs that DVC
    would not see."""
    root, params, shards = project.root, project.params, list(project.corpus.sha256)
    found: dict[str, list[Cause]] = {}
    paths = [(root / OBJECTS_FILE if isinstance(one.path, StoredObject) else one.path).absolute() for one in shards]
    of_code = code_changes(root)
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
                found[name] = []
                continue
            changes = stage.changes(paths if reads else ())
        why = causes_of(name, changes, root, params, of_code.get(name), lambda _: None)
        if reads and NEVER not in why:
            words = str(input_changes(earlier_inputs(root, name), shards, lambda _: project.corpus.sha256))
            why = in_order([*why, Cause("documents", words)]) if words else why
        after = [one for one in before if found[one]]
        found[name] = why + follows(name, as_words(why), after)
    return found


def _with_units(work: StageWork, units: Sequence[Unit], finished: set[str]) -> StageWork:
    """The stage's work with its numbers of units and bytes. `finished`: the names of units that need no work."""
    todo = [unit for unit in units if unit.name not in finished] if work.would_run else []
    by_shard: Tally[Shard] = Tally()
    for unit in todo:
        for piece in unit.pieces:
            by_shard[piece.shard] += piece.n_bytes
    return StageWork(work.stage, work.would_run, work.reasons, len(units), len(todo), dict(by_shard))


def _read(
    project: Project,
    finished: set[str],
    counted: Mapping[str, CountFacts],
    reasons: Sequence[Cause],
) -> dict[Shard, EarlierTotals]:
    """Totals of the files to encode, from the facts of `counted` units and from the dataset. Empty for conversations, whose text
    depends on the template."""
    if project.params.encode.chat is not None or not reasons:
        return {}
    before = {} if any(one.decides_documents for one in reasons) else _units_of_the_dataset(project)
    found: dict[Shard, EarlierTotals] = {}
    for unit in project.units:
        facts = counted.get(unit.name)
        known = before.get(tuple(starts_of(unit))) if facts is None else (facts.n_documents, facts.text_bytes)
        if unit.name in finished or known is None:
            continue
        n_documents, text_bytes = known
        for piece in unit.pieces:
            share = piece.n_bytes / max(unit.n_bytes, 1)
            read = EarlierTotals(piece.n_bytes, n_documents * share, text_bytes * share)
            found[piece.shard] = found.get(piece.shard, EarlierTotals()).plus(read)
    return found


def _units_of_the_dataset(project: Project) -> dict[tuple[tuple[str, int], ...], tuple[int, int]]:
    """The number of documents and the text bytes of each unit of data/tokens with unchanged files, by its pieces."""
    try:
        manifest = read_manifest(project.root / TOKENS_DIRECTORY)
    except (TokenmillError, OSError):
        return {}
    now = {shard.name: sha256 for shard, sha256 in project.corpus.sha256.items()}
    same = {one.name for one in manifest.inputs if now.get(one.name) == one.sha256}
    return {
        tuple(one.pieces): (one.n_documents, one.text_bytes)
        for one in manifest.shards
        if all(rows.name in same for rows in one.rows)
    }


def _tokenizer(root: Path, reasons: Sequence[Cause]) -> Tokenizer | None:
    """The tokenizer in data/tokenizer; None if it will be replaced for another reason than new counts or another chat template."""
    if any(why.kind not in ("follows", "counts") and not why.key.startswith("encode.chat") for why in reasons):
        return None
    try:
        return Tokenizer.load(root / TOKENIZER_DIRECTORY)
    except (TokenmillError, OSError):
        return None


def _sums(encoded: Sequence[Done[EncodeFacts]]) -> Finished:
    """The sums over encoded units."""
    facts = [one.facts for one in encoded]
    return Finished(
        sum(sum(one.piece_documents) for one in facts),
        sum(one.n_tokens for one in facts),
        sum(one.text_bytes for one in facts),
        sum(one.files[TOKENS_FILE].n_bytes for one in encoded),
    )


def _of_the_dataset(root: Path) -> Finished:
    """The sums over data/tokens. Raises ValidationError."""
    manifest = read_manifest(root / TOKENS_DIRECTORY)
    n_bytes = sum(shard.n_bytes for shard in manifest.shards)
    return Finished(manifest.n_documents, manifest.n_tokens, manifest.text_bytes, n_bytes)


def _keys_of_the_dataset(root: Path) -> set[str]:
    """The keys of the units that data/tokens holds, which validate has checked."""
    try:
        return {shard.unit for shard in read_manifest(root / TOKENS_DIRECTORY).shards}
    except (TokenmillError, OSError):
        return set()
