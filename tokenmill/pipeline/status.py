"""Finds what a build would do now and why, without running anything."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.source_shards import find_documents, reads_objects, unread_files
from tokenmill.corpus.units import sha256_of_shards
from tokenmill.errors import CorpusError
from tokenmill.layout import DOCUMENT_STAGES
from tokenmill.pipeline.causes import Cause, as_words, causes_of, follows, inputs_that_stay, stages_to_follow
from tokenmill.pipeline.code_pins import code_changes
from tokenmill.pipeline.dvc_sight import refuse_unseen_objects, refuse_unseen_parameters
from tokenmill.pipeline.input_changes import changes_since, earlier_inputs, input_changes, last_manifest
from tokenmill.pipeline.input_changes import lines_of as lines_of_changes
from tokenmill.pipeline.memory import n_workers
from tokenmill.pipeline.object_list import changes_of_objects
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.storage.file_facts import Digests
from tokenmill.versioning import dvc_stage
from tokenmill.versioning.dvc_files import Known


@dataclass(frozen=True)
class StageStatus:
    """The status of one stage. `changes`: texts of what changed since it ran. `after`: the earlier stages that would run, whose
    outputs it reads and which may change them. `reasons`: why it would run, as a line says it."""

    stage: str
    state: dvc_stage.StageState
    changes: list[str]
    after: list[str]
    reasons: list[str]

    @property
    def would_run(self) -> bool:
        """Whether a build would run or restore the stage, or may have to once the earlier stages have run."""
        return bool(self.reasons)


def status_of(root: Path, params: Params) -> list[StageStatus]:
    """The status of each stage of the project at `root`, in order. Raises VersionsError, and ParamsError for what DVC would not
    see. Where documents are in object storage, which is asked for their list, also StorageError, PassingError and CorpusError."""
    statuses: list[StageStatus] = []
    causes: dict[str, list[Cause]] = {}
    known: Known = {}
    of_code = code_changes(root, params.source)
    shards = find_documents(root, params) if reads_objects(params) else []  # DVC looks at files, and does not open them
    of_objects = changes_of_objects(root, shards)
    for name, before in stages_of(root).items():
        with dvc_stage.opened(root, name, known) as opened:
            refuse_unseen_parameters(root, params, opened, name)
            if name in DOCUMENT_STAGES:
                refuse_unseen_objects(root, shards, opened, name)
            state, changes = opened.state(), inputs_that_stay(opened.changes(), causes)
            objects = of_objects if name in DOCUMENT_STAGES and opened.was_built else []
        of_documents = [Cause("documents", words) for words in objects]
        documents = partial(_documents_in, root, params, name)
        own = causes_of(name, changes, root, params, of_code.get(name), documents, of_documents)
        if own and state == "current":
            state = "stale"
        after = stages_to_follow(before, causes)
        causes[name] = [] if state == "frozen" else [*own, *follows(name, own, after)]
        statuses.append(StageStatus(name, state, as_words(own), after, as_words(causes[name])))
    return statuses


def _documents_in(root: Path, params: Params, stage: str, path: Path) -> str | None:
    """Says how the documents below an input changed; None if it holds none or none changed."""
    try:
        shards = find_documents(root, params)
    except CorpusError:  # such as an empty folder, which the build reports
        return None
    if not any(isinstance(shard.path, Path) and shard.path.is_relative_to(path) for shard in shards):
        return None
    local = [shard for shard in shards if isinstance(shard.path, Path)]
    names = {shard.name for shard in shards if not isinstance(shard.path, Path)}
    earlier = [earlier_input for earlier_input in earlier_inputs(root, stage) if earlier_input.name not in names]
    changed = str(input_changes(earlier, local, _sha256_of(root, params)))
    if changed or not unread_files(root, params):
        return changed or None
    return "other files in data/raw alone: no file of documents changed"


def _sha256_of(root: Path, params: Params) -> Callable[[Sequence[Shard]], dict[Shard, str]]:
    """Gives the sha256 of files; those that seem unchanged are not read."""
    threads = n_workers(params.run.workers)
    return partial(
        sha256_of_shards, digests=Digests(root), unit_bytes_max=params.source.unit_bytes_max, threads=threads
    )


def files_since_the_dataset(root: Path, params: Params) -> tuple[dict[str, Any] | None, list[str]]:
    """The files that changed since the dataset in data/tokens was made, as values of JSON (None without a dataset) and as lines.

    Files that seem unchanged are not read. Raises CorpusError."""
    manifest, changes = last_manifest(root), None
    if manifest is not None:
        changes = changes_since(manifest, find_documents(root, params), _sha256_of(root, params))
    shown = ("changed", "new", "removed", "renamed", "n_unchanged")
    result = None if changes is None else {name: getattr(changes, name) for name in shown}
    return result, lines_of_changes(changes)


def lines_of(found: list[StageStatus]) -> list[str]:
    """One line per stage, for a terminal."""
    width = max(len(one.stage) for one in found)
    return [f"{one.stage:<{width}}  {_words(one)}" for one in found]


def _words(status: StageStatus) -> str:
    if status.state == "frozen":
        return "frozen"
    words = "; ".join(status.reasons)
    return f"to do: {words}" if status.changes else words or "up to date"
