"""Objects in object storage: listed, read, written, copied and deleted.

A URL is s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY. Every function raises StorageError (a wrong name, no credentials,
no permission) or PassingError (an outage, after some tries), with the URL and without credentials.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.errors import CorpusError
from tokenmill.storage.object_errors import changed, storage_error
from tokenmill.storage.urls import StoredObject, bounded_listing
from tokenmill_reader.object_clients import bounded_bytes, client
from tokenmill_reader.regular_files import READ_BYTES_MAX, words_of_large
from tokenmill_reader.urls import place

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PART_BYTES = 16 << 20
_N_PARTS_MAX = 10_000  # of S3
_PARTS_AT_ONCE = 4
_DELETED_AT_ONCE = 1000


def list_objects(prefix: str) -> list[StoredObject]:
    """The objects below a folder, at any depth, in no certain order. `prefix`: the folder's URL; an object of that very name is not
    among them."""
    where = place(prefix)
    with _at(prefix) as (store, key):
        import obstore

        entries = bounded_listing(prefix, chain.from_iterable(obstore.list(store, key or None)))
        return [_stored(f"{where.scheme}://{where.bucket}/{entry['path']}", entry) for entry in entries]


def list_folders(prefix: str) -> list[str]:
    """The names of the folders right below a folder, sorted: the parts of keys that a slash ends. Raises StorageError for too many
    names."""
    with _at(prefix) as (store, key):
        names = bounded_listing(prefix, _folders(store, f"{key}/" if key else ""))
        return sorted(name for name in names if name)


def _folders(store: "ObjectStore", above: str) -> Iterator[str]:
    """The names of the folders below keys with this beginning, and "" for what else it gets. It asks for some keys, then for those
    behind their last folder: obstore's listing of folders loads a whole answer, which a server can make endless."""
    import obstore

    offset: str | None = ""
    while offset is not None:
        behind, offset = offset, None
        for entries in obstore.list(store, above.rstrip("/") or None, offset=behind or None):
            yield ""
            keys = sorted(key for entry in entries if (key := entry["path"]) > behind)
            if keys:  # else the server does not heed the offset
                parts = [key[len(above) :].partition("/") for key in keys]
                yield from dict.fromkeys(name if slash else "" for name, slash, _ in parts)
                last, slash, _ = parts[-1]
                offset = f"{above}{last}/\U0010ffff" if slash else keys[-1]
                break


def head(url: str) -> StoredObject | None:
    """The storage's entry of an object; None if there is no object."""
    with _at(url) as (store, key), suppress(FileNotFoundError):
        import obstore

        return _stored(url, obstore.head(store, key))
    return None


def metadata(url: str) -> dict[str, str]:
    """The metadata that `put_file` gave an object. Raises CorpusError if there is no object."""
    with _at(url) as (store, key):
        import obstore

        found = obstore.get(store, key, options={"head": True})
        return {str(name).lower(): value for name, value in found.attributes.items()}


def get(url: str) -> bytes:
    """The bytes of a small object. Raises CorpusError if there is no object."""
    with _at(url) as (store, key):
        import obstore

        found = obstore.get(store, key)
        if (n_bytes := found.meta["size"]) > READ_BYTES_MAX:
            raise CorpusError(url, f"cannot be read: {words_of_large(n_bytes)}.", "Delete it if it is not yours.")
        return bounded_bytes(url, found, n_bytes)


def get_range(stored: StoredObject, start: int, stop: int) -> memoryview:
    """The bytes of an object from `start` up to but without `stop`, at least one and all in the object. Raises CorpusError if it is
    not the object that was listed: another, or deleted."""
    options: Any = {"range": (start, stop)}
    if stored.e_tag is not None:
        options["if_match"] = stored.e_tag

    with _at(stored.url) as (store, key):
        import obstore

        answer = obstore.get(store, key, options=options)
        if not _is_same(stored, _stored(stored.url, answer.meta)):
            raise changed(stored.url)
        found = memoryview(bounded_bytes(stored.url, answer, stop - start))
        if len(found) != stop - start:
            raise changed(stored.url)
        return found


def put_file(
    path: Path, url: str, attributes: dict[str, str] | None = None, on_part: Callable[[int], None] = lambda _: None
) -> None:
    """Writes a local file to an object, in parts where it is large. The object appears at once, when all of it is there.

    `attributes`: metadata for it. `on_part`: called with the bytes of each part before it is sent; an error that it raises ends
    the call, and removes the parts. A process that is killed meanwhile leaves them, so a rule of the bucket should remove parts.
    """
    n_bytes = path.stat().st_size
    part_bytes = max(_PART_BYTES, -(-n_bytes // _N_PARTS_MAX))
    given: Any = {"attributes": attributes or {}, "chunk_size": part_bytes, "max_concurrency": _PARTS_AT_ONCE}

    with _at(url) as (store, key):
        import obstore

        if n_bytes > _PART_BYTES:
            obstore.put(store, key, _parts(path, part_bytes, on_part), **given)
        else:
            on_part(n_bytes)
            obstore.put(store, key, path, **given)


def _parts(path: Path, part_bytes: int, on_part: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(part_bytes):
            on_part(len(part))
            yield part


def put_new(url: str, content: bytes) -> bool:
    """Writes a small object, unless there is one of that name: then nothing is changed and the answer is False. Of two writers at
    the same time, one gets True."""
    with _at(url) as (store, key):
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(store, key, content, mode="create")
        except AlreadyExistsError:
            return False
        return True


def copy(url: str, to_url: str) -> None:
    """Copies an object inside its bucket, on the server. Raises CorpusError if there is no object."""
    there = place(to_url)
    assert there[:2] == place(url)[:2]

    with _at(url) as (store, key):
        import obstore

        obstore.copy(store, key, there.key)


def delete(urls: Iterable[str]) -> None:
    """Deletes objects of one bucket, in any order. Objects that are not there are no error."""
    rest = list(urls)
    for start in range(0, len(rest), _DELETED_AT_ONCE):
        batch = rest[start : start + _DELETED_AT_ONCE]
        with _at(batch[0]) as (store, _):
            import obstore

            keys = [place(url).key for url in batch]
            try:
                obstore.delete(store, keys)
            except FileNotFoundError:  # S3 passes over an object that is not there; the others do not
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(store, key)


@contextmanager
def _at(url: str) -> Iterator[tuple["ObjectStore", str]]:
    """Yields the client and the key of a URL, and turns obstore's errors in the block into this module's."""
    where = place(url)
    store = client(where.scheme, where.bucket)
    from obstore.exceptions import BaseError

    try:
        yield store, where.key
    except (BaseError, FileNotFoundError, ValueError) as error:
        raise storage_error(url, error) from None


def _is_same(listed: StoredObject, now: StoredObject) -> bool:
    """Whether an answer is of the object that was listed: some servers overlook If-Match, and some list no e-tags."""
    if listed.e_tag is not None and now.e_tag is not None:
        return (listed.n_bytes, listed.e_tag) == (now.n_bytes, now.e_tag)
    seconds = [one.modified_ns // 1_000_000_000 for one in (listed, now)]  # a header has no fractions
    return listed.n_bytes == now.n_bytes and seconds[0] == seconds[1]


def _stored(url: str, facts: Any) -> StoredObject:
    modified: datetime = facts["last_modified"]
    e_tag: str | None = facts["e_tag"]
    if e_tag and not e_tag.endswith('"'):  # Azure's listings leave the quotes out, which a request with If-Match needs
        e_tag = f'"{e_tag}"'
    return StoredObject(url, facts["size"], e_tag, int(modified.timestamp() * 1e9), facts["version"])
