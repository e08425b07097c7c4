"""Opens shards: local files, or objects in object storage."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenmill.corpus.shards import Shard
from tokenmill.storage.object_file import ObjectFile
from tokenmill.storage.urls import StoredObject
from tokenmill_reader.regular_files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

_BUFFER_BYTES = 1 << 16


@contextmanager
def held(shard: Shard) -> Iterator[Shard]:
    """Yields the shard with its file held open, so that a replaced file is not read. Raises OSError. Objects come as they are,
    because each request asks for the listed content."""
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
    """The bytes of a shard for pyarrow. `stop`: where reading ahead of an object ends. Raises OSError."""
    import pyarrow as pa

    if isinstance(shard.path, StoredObject):
        return pa.PythonFile(ObjectFile(shard.path, stop), mode="r")
    return pa.OSFile(str(shard.path))
