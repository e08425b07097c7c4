"""Opens shards, be they files of this machine or objects in object storage."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenmill.corpus.shards import Shard
from tokenmill.storage.atomic import open_regular
from tokenmill.storage.object_file import ObjectFile
from tokenmill.storage.urls import StoredObject

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER_BYTES = 1 << 16


@contextmanager
def held(shard: Shard) -> Iterator[Shard]:
    """The shard, opened once: a file that replaces it meanwhile is not read, and OSError is the system's own. An object needs
    none of that, because each request is for the content that was listed."""
    if isinstance(shard.path, StoredObject):
        yield shard
        return
    with open(shard.path, "rb", opener=open_regular) as file:
        yield replace(shard, path=Path(f"/proc/self/fd/{file.fileno()}"))


def open_raw(shard: Shard) -> io.RawIOBase:
    """The bytes of a shard, without a buffer. Raises OSError."""
    if isinstance(shard.path, StoredObject):
        return ObjectFile(shard.path)
    return io.FileIO(shard.path, opener=open_regular)


def open_shard(shard: Shard) -> BinaryIO:
    """The bytes of a shard. Raises OSError."""
    return cast(BinaryIO, io.BufferedReader(open_raw(shard), _BUFFER_BYTES))


def open_arrow(shard: Shard, stop: int | None = None) -> "pa.NativeFile":
    """The bytes of a shard for pyarrow. `stop`: of an object, what lies behind is not fetched ahead. Raises OSError."""
    import pyarrow as pa

    if isinstance(shard.path, StoredObject):
        return pa.PythonFile(ObjectFile(shard.path, stop), mode="r")
    return pa.OSFile(str(shard.path))
