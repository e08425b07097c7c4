"""litdata: chunks of ids for its TokensLoader, and an `index.json` for all of them.

The layout of a chunk is that of `_create_chunk` in litdata/streaming/writer.py. The loader takes the ids of a chunk for one row
of tokens and cuts it into blocks, so that where items end is for readers of other kinds.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.formats.batches import batches_of
from tokenmill.formats.files import new_file
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import checking, refuse_lists, refuse_over_int32
from tokenmill.formats.offsets32 import map_chunk, new_chunk, refuse_large_files
from tokenmill.formats.sidecar import new_sidecar
from tokenmill_reader.formats.columns import flat_of
from tokenmill_reader.formats.items import REBUILD, STARTS_SUFFIX, Flat, Shape, check_segments
from tokenmill_reader.formats.nanogpt import read_starts
from tokenmill_reader.regular_files import sha256_file

_CHUNK = ".bin"
_INDEX = "index.json"
_INT32, _UINT16 = 16, 20  # codes of torch's types in litdata/constants.py, which has none for uint32
_ITEM = '[1, {"type": null, "context": null, "children_spec": []}]'  # an item is one array


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{_CHUNK}"
    with new_chunk(path, b"") as put, new_sidecar(folder, stem, shape) as add_starts:

        def add(batch: pa.RecordBatch) -> None:
            flat = flat_of(batch)
            put(flat.ids, np.diff(flat.offsets) * flat.ids.itemsize)
            add_starts(batch)

        yield checking(add, shape, path)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_flat(folder, stem, shape)[0], shape, folder / f"{stem}{_CHUNK}")


def _flat(folder: Path, stem: str, shape: Shape) -> list[Flat]:
    path = folder / f"{stem}{_CHUNK}"
    content, offsets = map_chunk(path, b"")
    n_bytes = offsets - offsets[0]
    id_bytes = shape.ids.itemsize
    broken = n_bytes % id_bytes != 0
    if broken.any():
        row = max(0, int(np.argmax(broken)) - 1)
        raise ValidationError(path, f"item {row:,}: expected ids of {id_bytes} bytes; found a part of one.", REBUILD)
    ids = content[offsets[0] :].view("<u2" if shape.ids.itemsize == 2 else "<i4")
    flat = Flat(ids, n_bytes // id_bytes, read_starts(folder, stem, shape))
    check_segments(flat, shape, path)
    return [flat]


def _finish(folder: Path, stems: Sequence[str], shape: Shape) -> None:
    """Writes index.json. Readers keep remote chunks under its `updated_at`, which is a time in litdata; here it is a digest of the
    chunks, so that the same items give the same file and other items never those that were kept."""
    chunks = []
    chunk_bytes_max = 0
    digest = hashlib.sha256()
    for stem in stems:
        path = folder / f"{stem}{_CHUNK}"
        found, offsets = map_chunk(path, b"")
        n_ids = int(offsets[-1] - offsets[0]) // shape.ids.itemsize
        chunks.append({"chunk_bytes": found.size, "chunk_size": len(offsets) - 1, "dim": n_ids, "filename": path.name})
        chunk_bytes_max = max(chunk_bytes_max, found.size)
        digest.update(f"{sha256_file(path)}  {path.name}\n".encode())
    config = {
        "chunk_bytes": chunk_bytes_max,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{_UINT16 if shape.ids.itemsize == 2 else _INT32}"],
        "data_spec": _ITEM,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index = {"chunks": chunks, "config": config, "updated_at": digest.hexdigest()}
    with new_file(folder / _INDEX) as put:
        put(json.dumps(index, sort_keys=True).encode())


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    return (
        refuse_lists(shape, "litdata")
        or refuse_over_int32(shape, "litdata")
        or refuse_large_files(file_bytes, "litdata")
    )


LITDATA = Format(
    "litdata",
    (_CHUNK,),
    _write,
    _read,
    _flat,
    _refusal,
    _finish,
    shared=(_INDEX,),
    packed_suffixes=(STARTS_SUFFIX,),
)
