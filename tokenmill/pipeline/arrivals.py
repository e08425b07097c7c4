"""The documents of one build are those that were there when it began: what arrives or changes meanwhile."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.source_shards import find_documents, reads_objects
from tokenmill.errors import TokenmillError
from tokenmill.pipeline.alone import under_dvc
from tokenmill.pipeline.stage_order import inputs_of
from tokenmill.storage import file_facts
from tokenmill.storage.file_facts import signature_of
from tokenmill.storage.urls import StoredObject
from tokenmill.versioning import dvc_view

ShardSignature = tuple[str, file_facts.Signature]
"""A shard's name and its file's signature. The ctime is 0, so making a hard link is no change."""


@dataclass(frozen=True)
class BuildShards:
    """The shards of a build, with their signatures when its first stage began."""

    root: Path
    params: Params
    shards: list[Shard]
    signatures: list[ShardSignature]

    def changed(self) -> list[str]:
        """The names of the shards that changed since then. Files that arrived count only under `dvc repro`, because DVC would
        count them among the stage's inputs."""
        if under_dvc():
            now = _signatures(find_documents(self.root, self.params))
        else:
            now = _signatures(self._listed_again())
        return [] if now == self.signatures else sorted({shard for shard, _ in set(self.signatures) ^ set(now)})

    def new(self) -> list[Shard]:
        """The shards that arrived since then; empty if listing fails, an error that the next build reports."""
        names = {shard.name for shard in self.shards}
        try:
            return find_documents(self.root, self.params, known=names)
        except TokenmillError:
            return []

    def _listed_again(self) -> list[Shard]:
        """The shards of this build, and new ones that DVC would record. Objects are listed again, because the listing says whether
        they changed."""
        names = {shard.name for shard in self.shards}
        if reads_objects(self.params):
            return [shard for shard in find_documents(self.root, self.params) if shard.name in names]
        return [*self.shards, *(shard for shard in self.new() if not _has_arrived(self.root, shard))]


def list_inputs(root: Path) -> None:
    """Fixes the list of input files: a build reads those that exist now, and DVC sees no others while it runs."""
    if not under_dvc():
        dvc_view.see(root, inputs_of(root))


def find_shards_now(root: Path, params: Params) -> BuildShards:
    """Finds the shards that were there when the inputs were listed; those that are there now, if there were none. Raises
    CorpusError."""
    shards = [shard for shard in find_documents(root, params) if not _has_arrived(root, shard)]
    if not shards:  # the first ones arrived just now
        list_inputs(root)
        shards = find_documents(root, params)
    return BuildShards(root, params, shards, _signatures(shards))


def _has_arrived(root: Path, shard: Shard) -> bool:
    return not isinstance(shard.path, StoredObject) and dvc_view.has_arrived(root, shard.path)


def _signatures(shards: Iterable[Shard]) -> list[ShardSignature]:
    """The signatures of the shards that exist."""
    signatures = []
    for shard in shards:
        with suppress(FileNotFoundError):
            signatures.append((shard.name, msgspec.structs.replace(signature_of(shard.path), ctime_ns=0)))
    return signatures
