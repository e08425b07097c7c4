"""Checks what an .arrow file decodes to before pyarrow decodes it.

pyarrow allocates for a compressed buffer what its first 8 bytes say, and lists of nulls need no bytes at all, so a small file can
take any memory. The metadata are flatbuffers (flatbuffers.dev/internals), with the tables of github.com/apache/arrow,
format/Message.fbs and format/File.fbs.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.corpus.limits import SMALLER_BATCHES, BoundedFile, Limits

_VALUE_BYTES = 8  # a value inside another one, such as an element of a list, has no fewer when it is measured or made
_V5 = 4  # MetadataVersion: all that is written since Arrow 1.0
_DICTIONARY, _BATCH = 2, 3  # MessageHeader
_GAP_BYTES_MAX = 64  # between the last message and the footer, for an end of 8 bytes and padding


def checked_batches(
    batches: Iterator[pa.RecordBatch],
    file: BoundedFile,
    is_file: bool,
    schema: pa.Schema,
    names: Sequence[str],
    limits: Limits,
) -> Iterator[pa.RecordBatch]:
    """The record batches of a file as pyarrow reads them, each checked before it is decoded.

    `is_file`: whether the file has a footer. `names`: the columns that are read. Raises CorpusError if a record batch, or all
    dictionaries together, decode to more than a block, and pa.ArrowInvalid for damage.
    """
    n_batches, held = 0, dict[int, int]()
    try:
        for message in _messages(file, is_file):
            if message.kind == _DICTIONARY:
                id, is_delta = (
                    _number(message.data, message.header, 0, "<q"),
                    _number(message.data, message.header, 2, "<b"),
                )
                batch = message._replace(header=_table(message.data, message.header, 1))
                held[id] = _decoded_bytes(file, batch, None) + (held.get(id, 0) if is_delta else 0)
                limits.check_block(
                    sum(held.values()), f"{file.shard_name}: what the dictionaries hold, decoded,", SMALLER_BATCHES
                )
            elif message.kind == _BATCH:
                n_bytes = _decoded_bytes(file, message, [(field.type, field.name in names) for field in schema])
                limits.check_block(n_bytes, f"{file.shard_name}: record batch {n_batches}, decoded,", SMALLER_BATCHES)
                n_batches += 1
                yield from islice(batches, 1)
        yield from batches  # none is left, or raises the error of a truncated file
    except (struct.error, ValueError, IndexError) as error:
        raise pa.ArrowInvalid(f"the metadata of record batch {n_batches} cannot be read: {error}") from None


class _Message(NamedTuple):
    """A message of Arrow IPC. `data`: its metadata. `header`: where the table of this `kind` is in them. `body`: where the buffers
    begin in the file."""

    data: bytes
    version: int
    kind: int
    header: int
    body: int


def _messages(file: BoundedFile, is_file: bool) -> Iterator[_Message]:
    """The messages in the order in which pyarrow reads them. For a stream, read no further than pyarrow."""
    if is_file:
        footer_end = file.n_bytes - 10
        n_footer = struct.unpack("<i", file.peek_at(footer_end, 4))[0]
        footer = file.peek_at(footer_end - n_footer, n_footer)
        blocks = [block for number in (2, 3) for block in _structs(footer, _root(footer, 0), number, 3).tolist()]
        end = 8 + n_footer  # of the schema in front of all messages; the footer has the schema, too
        end = max([end, *(start + (n_metadata & 0xFFFFFFFF) + n_body for start, n_metadata, n_body in blocks)])
        if (n_more := footer_end - n_footer - end) > _GAP_BYTES_MAX:
            raise ValueError(
                f"{n_more:,} bytes are between the last one and the footer, as where one file is behind another"
            )
        for start, n_metadata, _ in blocks:
            yield _message(file, start, start + (n_metadata & 0xFFFFFFFF))
        return
    position = 0
    while len(head := file.peek_at(position, 8)) == 8:
        first, second = struct.unpack("<Ii", head)
        is_legacy = first != 0xFFFFFFFF
        n_metadata = first if is_legacy else second
        if not n_metadata:
            return
        message = _message(file, position, position + (4 if is_legacy else 8) + n_metadata)
        yield message
        position = message.body + _number(message.data, _root(message.data, 0), 3, "<q")


def _message(file: BoundedFile, start: int, body: int) -> _Message:
    data = file.peek_at(start, body - start)
    data = data[8:] if data[:4] == b"\xff\xff\xff\xff" else data[4:]
    root = _root(data, 0)
    kind = _number(data, root, 1, "<B")
    if (n_body := _number(data, root, 3, "<q")) > file.n_bytes - body:
        raise ValueError(f"{n_body:,} bytes of it are behind the end of the file")
    header = _table(data, root, 2) if kind in (_DICTIONARY, _BATCH) else 0
    return _Message(data, _number(data, root, 0, "<h"), kind, header, body)


def _decoded_bytes(file: BoundedFile, batch: _Message, fields: Sequence[tuple[pa.DataType, bool]] | None) -> int:
    """The larger of two sizes in bytes: of the decompressed buffers, and of nested values. `fields`: each column's type and whether
    it is read; None: all is read."""
    nodes = np.maximum(_structs(batch.data, batch.header, 1, 2)[:, 0], 0).astype(float)
    buffers = _structs(batch.data, batch.header, 2, 2)
    if fields is not None and batch.version >= _V5:
        n_more = iter(_structs(batch.data, batch.header, 4, 1)[:, 0].tolist())
        n_nodes, n_buffers = np.array([(0, 0), *(_extent(kind, n_more) for kind, _ in fields)])[1:].T
        is_read = np.array([one for _, one in fields], bool)
        nodes[np.cumsum(n_nodes) - n_nodes] = 0  # top-level values are taken few at a time
        nodes, buffers = (
            nodes[np.flatnonzero(is_read.repeat(n_nodes))],
            buffers[np.flatnonzero(is_read.repeat(n_buffers))],
        )
    n_bytes = 0
    if _place(batch.data, batch.header, 3) is not None:
        for start, length in buffers[buffers[:, 1] > 0].tolist():
            n_decoded = struct.unpack("<q", file.peek_at(batch.body + start, 8))[0]
            n_bytes += length if n_decoded == -1 else max(n_decoded, 0)
    return max(n_bytes, int(nodes.sum() * _VALUE_BYTES))


def _extent(kind: pa.DataType, n_more: Iterator[int]) -> tuple[int, int]:
    """The number of nodes and of buffers that a column of this type has in a message. `n_more`: the extra buffers of each column of
    views, in order."""
    kind = getattr(kind, "storage_type", kind)
    types = pa.types
    n_without = kind.num_buffers if types.is_null(kind) else int(types.is_union(kind) or types.is_run_end_encoded(kind))
    n_own = kind.num_buffers - n_without + (next(n_more, 0) if kind.has_variadic_buffers else 0)
    inside = [_extent(kind.field(i).type, n_more) for i in range(kind.num_fields)]
    return 1 + sum(n for n, _ in inside), n_own + sum(n for _, n in inside)


def _place(data: bytes, table: int, number: int) -> int | None:
    """The position of a table's field; None if it is absent."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    n_bytes = struct.unpack_from("<H", data, fields)[0]
    start = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0] if 4 + 2 * number < n_bytes else 0
    return table + start if start else None


def _number(data: bytes, table: int, number: int, form: str) -> int:
    place = _place(data, table, number)
    return 0 if place is None else int(struct.unpack_from(form, data, place)[0])


def _root(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _table(data: bytes, table: int, number: int) -> int:
    place = _place(data, table, number)
    if place is None:
        raise ValueError("a table is missing")
    return _root(data, place)


def _structs(data: bytes, table: int, number: int, n_words: int) -> npt.NDArray[np.int64]:
    """A vector of structs of 8-byte words, shape (structs, words)."""
    place = _place(data, table, number)
    if place is None:
        return np.empty((0, n_words), np.int64)
    start = _root(data, place)
    n = struct.unpack_from("<I", data, start)[0]
    return np.frombuffer(data, "<i8", n * n_words, start + 4).reshape(-1, n_words)
