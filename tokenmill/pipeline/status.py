"""What a build would do now and why, found without running anything."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill.config.params import Params
from tokenmill.corpus.sources import find_documents, reads_objects
from tokenmill.corpus.units import sha256_of_shards
from tokenmill.layout import DOCUMENT_STAGES
from tokenmill.pipeline.build import refuse_unseen_objects
from tokenmill.pipeline.code_pins import stages_of_other_code
from tokenmill.pipeline.executor import n_workers
from tokenmill.pipeline.input_changes import as_text as input_changes_as_text
from tokenmill.pipeline.input_changes import input_changes, last_manifest
from tokenmill.pipeline.object_list import changes_of_objects
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.storage.file_facts import Digests
from tokenmill.versioning import dvc_stage
from tokenmill.versioning.dvc_files import Known


@dataclass(frozen=True)
class StageStatus:
    """The status of one stage. `changes`: what has changed since it ran. `after`: the earlier stages whose outputs it reads and
    that would run."""

    stage: str
    state: dvc_stage.State
    changes: list[str]
    after: list[str]

    @property
    def would_run(self) -> bool:
        """Whether a build would run or restore the stage, or may have to once the earlier stages have run."""
        return self.state != "frozen" and bool(self.changes or self.after)


def status_of(root: Path, params: Params) -> list[StageStatus]:
    """The status of each stage of the project at `root`, in order. Raises VersionsError; and where documents are in object storage,
    which is asked for their list, StorageError, PassingError and CorpusError."""
    found: list[StageStatus] = []
    known: Known = {}
    of_other_code = stages_of_other_code(root)
    shards = find_documents(root, params) if reads_objects(params) else []  # DVC looks at files, and does not open them
    of_objects = changes_of_objects(root, shards)
    for name, before in stages_of(root).items():
        with dvc_stage.opened(root, name, known) as opened:
            if name in DOCUMENT_STAGES:
                refuse_unseen_objects(root, shards, opened, name)
            state, changes = opened.state(), opened.changes()
            if name in DOCUMENT_STAGES and opened.was_built:
                changes += of_objects
        if changes and state == "current":
            state = "stale"
        if name in of_other_code:
            state = "stale" if state == "current" else state
            changes.append("its code differs in this version of tokenmill")
        found.append(
            StageStatus(name, state, changes, [one.stage for one in found if one.would_run and one.stage in before])
        )
    return found


def files_since_the_dataset(root: Path, params: Params) -> tuple[dict[str, Any] | None, str]:
    """The files that changed since the dataset in data/tokens was made, as values of JSON (None without a dataset) and as text.

    Files that seem unchanged are not read. Raises CorpusError."""
    manifest, found = last_manifest(root), None
    if manifest is not None:
        threads = n_workers(params.run.workers)
        sha256_of = partial(
            sha256_of_shards, digests=Digests(root), unit_bytes_max=params.source.unit_bytes_max, threads=threads
        )
        found = input_changes(manifest, find_documents(root, params), sha256_of)
    shown = ("changed", "new", "removed", "renamed", "n_unchanged")
    result = None if found is None else {name: getattr(found, name) for name in shown}
    return result, input_changes_as_text(found)


def as_text(found: list[StageStatus]) -> str:
    """One line per stage, for a terminal."""
    width = max(len(one.stage) for one in found)
    return "\n".join(f"{one.stage:<{width}}  {_words(one)}" for one in found)


def _words(one: StageStatus) -> str:
    if one.state == "frozen":
        return "frozen"
    if one.changes:
        return f"to do: {', '.join(one.changes)}"
    return f"follows {one.after[0]}" if one.after else "up to date"
