"""Finds the shards of the sources that params.yaml asks for."""

from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard, look_for, whole
from tokenmill.errors import ParamsError
from tokenmill.storage.urls import is_url


def find_documents(root: Path, params: Params) -> list[Shard]:
    """The shards of the project at `root`, sorted by name, each with its source.

    Raises CorpusError as `find_shards` does, and ParamsError for a shard that two sources match.
    """
    found: dict[str, Shard] = {}
    looked = [look_for(root, one.globs, f"{one.section}.glob", one) for one in params.document_sources()]
    for shards in looked:
        for shard in shards.shards:
            source = shard.source
            assert source is not None
            other = found.get(shard.name)
            if other is not None and other.source is not None:
                raise ParamsError(
                    f"sources: {shard.name} is matched by {other.source.section}.glob and by {source.section}.glob; allowed: one "
                    "source for a shard. Make one of the globs narrower.",
                    where="sources",
                )
            found[shard.name] = shard
    whole(looked)
    return [found[name] for name in sorted(found)]


def reads_objects(params: Params) -> bool:
    """Whether some documents of the project are in object storage."""
    return any(is_url(glob) for source in params.document_sources() for glob in source.globs)
