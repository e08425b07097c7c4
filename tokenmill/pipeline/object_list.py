"""The list of the objects that a build reads, data/objects.json: DVC sees by it that documents in object storage changed."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenmill.corpus.shards import Shard
from tokenmill.errors import VersionsError
from tokenmill.layout import OBJECTS_FILE
from tokenmill.storage.atomic import write_atomic
from tokenmill.storage.urls import StoredObject


class _Listed(msgspec.Struct, frozen=True):
    url: str
    bytes: int
    etag: str


def write_object_list(root: Path, shards: Sequence[Shard]) -> None:
    """Writes the url, bytes and etag of each object among the shards, sorted by url. Writes nothing if the file holds that list
    already or no shard is an object."""
    content = _content(shards)
    path = root / OBJECTS_FILE
    if content is not None and not _is(path, content):
        with write_atomic(path) as partial:
            partial.write_bytes(content)


def check_object_list(root: Path, shards: Sequence[Shard]) -> None:
    """Raises VersionsError if the file is not the list of these shards: DVC has looked at it, and would record a wrong state."""
    content = _content(shards)
    if content is not None and not _is(root / OBJECTS_FILE, content):
        raise VersionsError(
            root / OBJECTS_FILE,
            "the objects in storage are not those that it lists, so DVC does not know what the stage reads.",
            "Run `tokenmill build` instead of `dvc repro`: it writes the list first.",
        )


def changes_of_objects(root: Path, shards: Sequence[Shard]) -> list[str]:
    """Says in one line how the objects differ from the listed ones; empty if they do not, or if there are none."""
    content = _content(shards)
    if content is None or _is(root / OBJECTS_FILE, content):
        return []
    now = _etags(content)
    try:
        before = _etags((root / OBJECTS_FILE).read_bytes())
    except (OSError, msgspec.DecodeError):
        before = {}
    tally = {
        "new": len(now.keys() - before.keys()),
        "changed": sum(now[url] != before[url] for url in now.keys() & before.keys()),
        "removed": len(before.keys() - now.keys()),
    }
    told = ", ".join(f"{n:,} {what}" for what, n in tally.items() if n)
    return [f"objects of documents: {told}"] if told else []


def _etags(content: bytes) -> dict[str, tuple[int, str]]:
    return {one.url: (one.bytes, one.etag) for one in msgspec.json.decode(content, type=list[_Listed])}


def _content(shards: Sequence[Shard]) -> bytes | None:
    stored = [shard.path for shard in shards if isinstance(shard.path, StoredObject)]
    if not stored:
        return None
    stored.sort(key=lambda one: one.url)
    lines = (msgspec.json.encode(_Listed(one.url, one.n_bytes, one.e_tag or str(one.modified_ns))) for one in stored)
    return b"[\n" + b",\n".join(lines) + b"\n]\n"


def _is(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False
