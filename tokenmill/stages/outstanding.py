"""Finds what a build would still have to do, and why."""

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.sources import find_documents
from tokenmill.corpus.units import UNREAD, Corpus, Unit, cut
from tokenmill.dataset.manifest import read_manifest
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.errors import TokenmillError
from tokenmill.layout import (
    DOCUMENT_STAGES,
    OBJECTS_FILE,
    STAGES,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.pipeline.causes import NEVER, Cause, as_words, causes_of, follows, in_order
from tokenmill.pipeline.code_pins import code_changes
from tokenmill.pipeline.dvc_sight import refuse_unseen
from tokenmill.pipeline.estimate import EarlierTotals, Finished, StageWork
from tokenmill.pipeline.input_changes import earlier_inputs, input_changes
from tokenmill.pipeline.memory import n_workers
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.pipeline.unit_drops import known_drops
from tokenmill.stages.count import weights_of
from tokenmill.stages.count_units import CountFacts, count_keys, groups_of
from tokenmill.stages.encode_chat import chat_entry
from tokenmill.stages.encode_units import encode_keys
from tokenmill.stages.encoder import encoder_of
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import UnitStore
from tokenmill.storage.urls import StoredObject
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.versioning import dvc_stage

_HASHED_BYTES_MAX = (
    256_000_000  # of files without a stored digest, such as files that were written just before the last build
)


@dataclass(frozen=True)
class Outstanding:
    """The stages in order, and what is finished of the dataset. `tokenizer`: the present one, if it predicts the dataset's length:
    the build encodes with it or with one learned by the same parameters; else None. `read`: totals of the files to encode that an
    earlier build read."""

    shards: list[Shard]
    stages: dict[str, StageWork]
    finished: Finished
    tokenizer: Tokenizer | None
    read: dict[Shard, EarlierTotals]

    @property
    def would_run(self) -> bool:
        """Whether a build would run any stage."""
        return any(one.would_run for one in self.stages.values())


def outstanding(root: Path, params: Params) -> Outstanding:
    """What a build of the project at `root` would do. Files with unchanged length and times count as unchanged. Of the others, the
    smallest are hashed, up to 256 MB; the rest count as changed. Raises CorpusError, ParamsError, VersionsError."""
    source = params.source
    shards = find_documents(root, params)
    corpus = cut(
        shards,
        Digests(root),
        source.unit_bytes_min,
        source.unit_bytes_max,
        n_workers(params.run.workers),
        _HASHED_BYTES_MAX,
    )
    reasons = _reasons(root, params, shards, corpus)
    stages = {name: StageWork(name, bool(why), as_words(why)) for name, why in reasons.items()}
    store = UnitStore(root)
    counted: dict[str, CountFacts] = {}
    if params.tokenizer is None:  # otherwise count has no units
        counted = _counted(root, params, corpus, store)
        stages["count"] = _with_units(stages["count"], corpus, set(counted))
    tokenizer = _tokenizer(root, reasons["train-vocab"])
    finished = Finished()
    found: dict[str, str] = {}
    if not reasons["encode"]:
        finished = _of_the_dataset(root)
    elif tokenizer is not None and not reasons["train-vocab"]:
        found, finished = _encoded(root, params, corpus, store, tokenizer)
    stages["encode"] = _with_units(stages["encode"], corpus, set(found))
    checked = _keys_of_the_dataset(root) if found else set()
    again = {name for name, key in found.items() if key in checked}
    stages["validate"] = _with_units(stages["validate"], corpus, again)
    read = _read(root, params, corpus, set(found), counted, reasons["encode"])
    return Outstanding(shards, stages, finished, tokenizer, read)


def _reasons(root: Path, params: Params, shards: Sequence[Shard], corpus: Corpus) -> dict[str, list[Cause]]:
    """The causes for which each stage of dvc.yaml would run; empty if it would not. Raises what a build raises for inputs that DVC
    would not see."""
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
            words = str(input_changes(earlier_inputs(root, name), shards, lambda _: corpus.sha256))
            why = in_order([*why, Cause("documents", words)]) if words else why
        after = [one for one in before if found[one]]
        found[name] = why + follows(name, as_words(why), after)
    return found


def _with_units(work: StageWork, corpus: Corpus, finished: set[str]) -> StageWork:
    """The stage's work with its numbers of units and bytes. `finished`: the names of units that need no work."""
    todo = [unit for unit in corpus.units if unit.name not in finished] if work.would_run else []
    by_shard: Tally[Shard] = Tally()
    for unit in todo:
        for piece in unit.pieces:
            by_shard[piece.shard] += piece.n_bytes
    return StageWork(work.stage, work.would_run, work.reasons, len(corpus.units), len(todo), dict(by_shard))


def _is_read(unit: Unit) -> bool:
    return all(piece.digest != UNREAD for piece in unit.pieces)


def keys_of_counts(root: Path, params: Params) -> set[str]:
    """The unit store's keys of the counts of the present files. Reads files without a stored digest. Raises CorpusError and
    ParamsError."""
    if params.tokenizer is not None:
        return set()
    source, threads = params.source, n_workers(params.run.workers)
    corpus = cut(find_documents(root, params), Digests(root), source.unit_bytes_min, source.unit_bytes_max, threads)
    return set(_count_keys(root, params, corpus, UnitStore(root)).values())


def _counted(root: Path, params: Params, corpus: Corpus, store: UnitStore) -> dict[str, CountFacts]:
    """The facts of the counted units, by unit name."""
    found = {name: store.find(key, CountFacts) for name, key in _count_keys(root, params, corpus, store).items()}
    return {name: one.facts for name, one in found.items() if one is not None}


def _count_keys(root: Path, params: Params, corpus: Corpus, store: UnitStore) -> dict[str, str]:
    units = [unit for unit in corpus.units if _is_read(unit)]
    weights = weights_of(root, params.count.weights, [piece.shard.name for unit in units for piece in unit.pieces])
    by_weight = {unit.name: groups_of(unit, weights) for unit in units}
    drops = known_drops(root, params, units, store)
    return count_keys(units, params.count, by_weight, drops)


def _read(
    root: Path,
    params: Params,
    corpus: Corpus,
    finished: set[str],
    counted: Mapping[str, CountFacts],
    reasons: Sequence[Cause],
) -> dict[Shard, EarlierTotals]:
    """Totals of the files to encode, from the facts of `counted` units and from the dataset. Empty for conversations, whose text
    depends on the template."""
    if params.encode.chat is not None or not reasons:
        return {}
    before = {} if any(one.decides_documents for one in reasons) else _units_of_the_dataset(root, corpus)
    found: dict[Shard, EarlierTotals] = {}
    for unit in corpus.units:
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


def _units_of_the_dataset(root: Path, corpus: Corpus) -> dict[tuple[tuple[str, int], ...], tuple[int, int]]:
    """The number of documents and the text bytes of each unit of data/tokens with unchanged files, by its pieces."""
    try:
        manifest = read_manifest(root / TOKENS_DIRECTORY)
    except (TokenmillError, OSError):
        return {}
    now = {shard.name: sha256 for shard, sha256 in corpus.sha256.items()}
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


def _encoded(
    root: Path, params: Params, corpus: Corpus, store: UnitStore, tokenizer: Tokenizer
) -> tuple[dict[str, str], Finished]:
    """The keys of the encoded units, by unit name, and the sums over these units."""
    units = [unit for unit in corpus.units if _is_read(unit)]
    drops = known_drops(root, params, units, store)
    entry = None if params.encode.chat is None else chat_entry(root, params.encode.chat)
    keys = encode_keys(units, params.encode, encoder_of(tokenizer, params.encode, None)._replace(entry=entry), drops)
    done = {name: found for name, key in keys.items() if (found := store.find(key, EncodeFacts)) is not None}
    facts = [one.facts for one in done.values()]
    return {name: keys[name] for name in done}, Finished(
        sum(sum(one.piece_documents) for one in facts),
        sum(one.n_tokens for one in facts),
        sum(one.text_bytes for one in facts),
        sum(one.files[TOKENS_FILE].n_bytes for one in done.values()),
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
