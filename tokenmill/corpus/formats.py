"""Reads the columns of texts and ids from a file of each format.

Parquet and Arrow files are tables. A .jsonl file has one JSON object per line (jsonlines.org). A .txt file is plain text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.corpus.bad_documents import BadDocument, ColumnError, whom
from tokenmill.corpus.jsonl import line_reader
from tokenmill.corpus.limits import UNBOUNDED, BoundedFile, Limits
from tokenmill.corpus.page_sizes import rows_within
from tokenmill.corpus.shards import Shard, ShardRange

_BLOCK_BYTES = 1 << 19  # of decompressed text; jsonl.zst is read at 560 MB/s, with 128 kB at 540 and with 1 MB at 530
_TABLE_BYTES = 4 << 20  # the text that one read of a Parquet file should give
_TABLE_ROWS_MAX = 1024  # because Parquet's sizes can mislead: a dictionary makes a column of long texts look small
_COMPRESSION = {".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}
_BOM = b"\xef\xbb\xbf"


class Columns(NamedTuple):
    """Consecutive documents of a file. Those in `bad` have null texts.

    `texts`: an array of any string or binary type. `ids`: of any string, binary or integer type; None: no ids are read.
    `position`: how many bytes of the file or range have been read. `bad`: the bad documents, with rows from 0 in `texts`.
    """

    texts: pa.Array
    ids: pa.Array | None
    position: int
    bad: Sequence[BadDocument] = ()


def read_columns(
    shard: Shard,
    text_column: str,
    id_column: str | None,
    separator: str | None,
    part: ShardRange | None,
    has_bad: bool = False,
    limits: Limits = UNBOUNDED,
) -> Iterator[Columns]:
    """The shard's documents in consecutive blocks. Texts of tables and .txt are not checked: they may be null or invalid UTF-8.

    `part`: read only this range; positions then count from its start. `has_bad`: a bad line of a .jsonl file becomes null and
    an entry of `bad`, instead of an error.

    Raises CorpusError for a missing or wrong column, a bad line, and a document or block that is larger than `limits`. Raises
    OSError or pa.ArrowException for a damaged file.
    """
    if shard.name.endswith(".parquet"):
        return _read_parquet(shard, text_column, id_column, part, limits)
    assert part is None or shard.name.endswith(".jsonl")
    if shard.name.endswith(".arrow"):
        return _read_arrow(shard, text_column, id_column, limits)
    if shard.name.endswith(".txt"):
        return _read_txt(shard, id_column is not None, separator, limits)
    return _read_jsonl(shard, text_column, id_column, part, has_bad, limits)


def _read_parquet(
    shard: Shard, text_column: str, id_column: str | None, part: ShardRange | None, limits: Limits
) -> Iterator[Columns]:
    with pq.ParquetFile(shard.path, pre_buffer=False, buffer_size=_BLOCK_BYTES) as file:
        names = _check_columns(shard, file.schema_arrow, text_column, id_column)
        groups = range(part.start, part.stop) if part else range(file.num_row_groups)
        n_bytes = part.n_bytes if part else shard.n_bytes
        n_rows, read_rows = sum(file.metadata.row_group(i).num_rows for i in groups), 0
        n_at_once = _rows_at_once(file.metadata, text_column)
        if limits.block_bytes_max:
            n_at_once = rows_within(shard, file.metadata, groups, names, limits, n_at_once)
        for batch in file.iter_batches(n_at_once, row_groups=list(groups), columns=names, use_threads=False):
            read_rows += len(batch)
            yield _columns(batch, text_column, id_column, n_bytes * read_rows // max(n_rows, 1))


def _rows_at_once(metadata: pq.FileMetaData, text_column: str) -> int:
    """The number of rows with about _TABLE_BYTES of text in the row group whose texts are longest."""
    row_bytes = 1
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        n_bytes = [
            group.column(j).total_uncompressed_size
            for j in range(group.num_columns)
            if group.column(j).path_in_schema == text_column
        ]
        row_bytes = max(row_bytes, *(n // max(group.num_rows, 1) for n in n_bytes))
    return min(max(_TABLE_BYTES // row_bytes, 1), _TABLE_ROWS_MAX)


def _read_arrow(shard: Shard, text_column: str, id_column: str | None, limits: Limits) -> Iterator[Columns]:
    with BoundedFile(shard, limits) as file:  # not memory-mapped: if a mapped file is truncated, the process is killed
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = open_reader(file).schema
        names = _check_columns(shard, schema, text_column, id_column)
        file.seek(0)
        fields = [schema.get_field_index(name) for name in names]
        reader = open_reader(file, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield _columns(batch, text_column, id_column, file.tell())
            file.begin_batch()


def _read_jsonl(
    shard: Shard,
    text_column: str,
    id_column: str | None,
    part: ShardRange | None,
    has_bad: bool,
    limits: Limits,
) -> Iterator[Columns]:
    bad: list[BadDocument] = []
    read = line_reader(shard, text_column, id_column, bad.append if has_bad else None)
    compression = next((name for suffix, name in _COMPRESSION.items() if shard.name.endswith(suffix)), None)
    start, first_line = (part.start, part.first_line) if part else (0, 1)
    with pa.OSFile(str(shard.path)) as file:
        file.seek(start)
        stream = pa.CompressedInputStream(file, compression) if compression else file
        blocks = _blocks(stream, part.n_bytes if part else None)
        blocks = _whole_lines(blocks, limits, lambda: f"{shard.name}, line {first_line}")
        for lines in blocks:
            texts, ids, n_lines = read(lines.removeprefix(_BOM) if first_line == 1 else lines, first_line)
            first_line += n_lines
            yield Columns(texts, ids, file.tell() - start, [*bad])
            bad.clear()


def _read_txt(shard: Shard, has_ids: bool, separator: str | None, limits: Limits) -> Iterator[Columns]:
    first_row = 0
    with pa.OSFile(str(shard.path)) as file:
        if not separator:
            limits.check_document(file.size(), f"{shard.name}, row 0")
        cut = _split(_blocks(file), (separator or "").encode(), limits, f"{shard.name}, row", 0)
        for texts in cut if separator else filter(any, ([file.read()],)):
            ids = [str(row) for row in range(first_row, first_row + len(texts))]
            yield Columns(
                pa.array(texts, pa.large_binary()), pa.array(ids, pa.large_string()) if has_ids else None, file.tell()
            )
            first_row += len(texts)


def _blocks(file: pa.NativeFile, n_bytes: int | None = None) -> Iterator[bytes]:
    """The next `n_bytes` of the file, or all of the rest for None, in blocks."""
    while block := file.read(_BLOCK_BYTES if n_bytes is None else min(_BLOCK_BYTES, n_bytes)):
        n_bytes = None if n_bytes is None else n_bytes - len(block)
        yield block


def _whole_lines(blocks: Iterator[bytes], limits: Limits, where: Callable[[], str]) -> Iterator[bytes]:
    """The same bytes in blocks of whole lines. `where` names the next line in an error message."""
    parts: list[
        bytes | memoryview
    ] = []  # the line that has not ended yet; joining its parts once keeps a long line linear in time
    n_held = 0

    def check(n_more: int) -> None:
        if limits.document_bytes_max is not None and n_held + n_more > limits.document_bytes_max:
            limits.check_document(n_held + n_more, where())

    for block in blocks:
        if end := block.rfind(b"\n") + 1:
            check(block.find(b"\n"))
            view = memoryview(block)
            parts.append(view[:end])
            yield _joined(parts)
            block, n_held = block[end:], 0
        check(len(block))
        parts.append(block)
        n_held += len(block)
    if n_held:
        yield _joined(parts)


def _joined(parts: list[bytes | memoryview]) -> bytes:
    """The parts as one bytes object. Clears the list, so that the parts are freed."""
    whole = b"".join(parts)
    parts.clear()
    return whole


def _split(blocks: Iterator[bytes], separator: bytes, limits: Limits, where: str, first: int) -> Iterator[list[bytes]]:
    """The documents between the separators, in order. A separator at the end of the file starts no document.

    `where`, `first`: the words before a document's number in an error message, and the number of the first document.
    """
    n_tail = len(separator) - 1  # bytes at a block's end that may begin a separator
    parts: list[bytes] = []  # the document that has not ended yet; joined once, as in _whole_lines
    n_held = 0
    tail = b""
    for block in blocks:
        *whole, last = (tail + block).split(separator)
        if whole:
            limits.check_document(n_held + len(whole[0]), f"{where} {first}")
            yield [b"".join([*parts, whole[0]]), *whole[1:]]
            first += len(whole)
            parts, n_held = [], 0
        cut = max(len(last) - n_tail, 0)
        parts.append(last[:cut])
        n_held += cut
        limits.check_document(n_held, f"{where} {first}")
        tail = last[cut:]
    if rest := b"".join([*parts, tail]):
        yield [rest]


def _columns(batch: pa.RecordBatch, text_column: str, id_column: str | None, position: int) -> Columns:
    return Columns(batch.column(text_column), None if id_column is None else batch.column(id_column), position)


def _check_columns(shard: Shard, schema: pa.Schema, text_column: str, id_column: str | None) -> list[str]:
    """The names of the columns to read. Raises ColumnError for a column that is missing, duplicated, or of a wrong type."""
    names = [text_column] if id_column is None else [text_column, id_column]
    try:
        _ = schema.names
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not UTF-8") from None
    for name, param in zip(names, ("text_column", "id_column"), strict=False):
        setting = f"{shard.section}.{param}"
        if schema.names.count(name) != 1:
            problem = "is missing" if name not in schema.names else "is there more than once"
            raise ColumnError(
                f"{shard.name}: the column {name!r} {problem}; found the columns {', '.join(schema.names) or '(none)'}.",
                f"Set {setting} in params.yaml, {whom(setting)}, to one of them{' or to null' if param == 'id_column' else ''}.",
                setting,
            )
        found = schema.field(name).type
        is_id = param == "id_column"
        if not (_is_text(found) or (is_id and pa.types.is_integer(found))):
            raise ColumnError(
                f"{shard.name}: column {name!r}: expected {'strings or integers' if is_id else 'strings'}; found {found}.",
                f"Set {setting} in params.yaml to another of {', '.join(schema.names)}, or convert the column.",
                setting,
            )
    return names


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    is_views = types.is_string_view(kind) or types.is_binary_view(kind)
    if types.is_dictionary(kind):
        kind = kind.value_type  # is_views stays false here: pyarrow 26 cannot cast dictionaries of views
    is_plain = types.is_string(kind) or types.is_binary(kind)
    return bool(is_views or is_plain or types.is_large_string(kind) or types.is_large_binary(kind))
