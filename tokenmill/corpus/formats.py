"""Reads texts, or conversations, and what is beside them from a file of each format.

Parquet and Arrow files are tables, and so are .csv and .tsv files, whose first record names the columns. A .jsonl file has one JSON
object per line (jsonlines.org). A .json file has objects, one per line or one after the other, or one array of them. A .txt file
is plain text, and so is any file with format: text.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config.sources import Column, Conversations, Reading
from tokenmill.corpus.arrow_sizes import checked_batches
from tokenmill.corpus.bad_documents import BadDocument, ColumnError
from tokenmill.corpus.column_kinds import check_columns, kind_of
from tokenmill.corpus.conversation_tables import conversations_of
from tokenmill.corpus.conversations import Maker
from tokenmill.corpus.csv_records import BadRecord, names_in, other_separator, records_in
from tokenmill.corpus.decompression import decompressed
from tokenmill.corpus.json_values import as_lines, form_of, rows_at
from tokenmill.corpus.jsonl import LineReader, conversation_reader, line_reader
from tokenmill.corpus.limits import UNBOUNDED, BoundedFile, Limits
from tokenmill.corpus.line_faults import OnBadLine, WrongValue, give_up
from tokenmill.corpus.makers import maker_of
from tokenmill.corpus.other_kinds import head_of, refuse_other_bytes, refuse_other_text
from tokenmill.corpus.page_sizes import is_of, rows_within
from tokenmill.corpus.parquet_files import open_parquet
from tokenmill.corpus.record_ends import RecordEnds, header_in
from tokenmill.corpus.shard_files import open_arrow
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.value_sizes import check_values, is_shared, runs_within
from tokenmill.errors import CorpusError, DamagedError
from tokenmill.storage.contents import HEAD_BYTES

_BLOCK_BYTES = 1 << 19  # of decompressed text; jsonl.zst is read at 560 MB/s, with 128 kB at 540 and with 1 MB at 530
_TABLE_BYTES = 4 << 20  # aim for the text of one read of a Parquet file
_TABLE_ROWS_MAX = 1024  # because Parquet's sizes can mislead: a dictionary makes a column of long texts look small
_BYTES_IN_PYTHON = 16  # upper bound of Arrow bytes per byte, for a quick check


class Columns(NamedTuple):
    """Consecutive documents of a file. Those in `bad` have null texts.

    `texts`: an array of any string or binary type. `beside`: for each column of Reading.beside, an array of any string, binary or
    integer type. `position`: how many bytes of the file or range have been read. `bad`: the bad documents, with rows from 0 in
    `texts`. `messages`: the canonical JSON of each conversation, large_string; None: documents are texts. `wrong`: what is wrong
    with values beside documents that are good without them, by row.
    """

    texts: pa.Array
    beside: Sequence[pa.Array]
    position: int
    bad: Sequence[BadDocument] = ()
    messages: pa.LargeStringArray | None = None
    wrong: Mapping[int, WrongValue] = MappingProxyType({})


def read_columns(
    shard: Shard,
    reading: Reading,
    part: ShardRange | None = None,
    has_bad: bool = False,
    limits: Limits = UNBOUNDED,
) -> Iterator[Columns]:
    """The shard's documents in consecutive blocks. Texts of tables and .txt are not checked: they may be null or invalid UTF-8.

    `part`: read only this range; positions then count from its start. `has_bad`: a bad line of a .jsonl file, or a bad record of a
    .csv file, becomes null and an entry of `bad`, instead of an error. A bad conversation of a table always does.

    Raises CorpusError for a missing or wrong column, a bad line, and a document or block that is larger than `limits`. Raises
    OSError or pa.ArrowException for a damaged file.
    """
    kind, conversations = shard.kind, reading.conversations
    maker = None if conversations is None else maker_of(conversations)
    wanted = _Wanted((Column(reading.text_column, "text_column"),), reading.beside, maker)
    if maker is not None:
        wanted = wanted._replace(columns=maker.columns)
    if kind.format in ("jsonl", "json"):
        if maker is None:
            new_reader = partial(line_reader, shard, reading)
        else:
            new_reader = partial(conversation_reader, shard, maker, reading)
        return _read_json(shard, new_reader, wanted.names, has_bad, part, limits)
    if kind.format == "text":
        if conversations is not None:
            raise _no_columns(shard, conversations)
        return _read_txt(shard, reading, limits)
    if kind.format == "parquet":
        return _read_parquet(shard, wanted, part, limits)
    if kind.separator:
        return _read_csv(shard, wanted, has_bad, part, limits)
    return _read_arrow(shard, wanted, limits)


class _Wanted(NamedTuple):
    """What to read. `columns`: those that hold the documents. `beside`: those beside them. `maker`: makes conversations from rows;
    None: documents are the texts of the one column."""

    columns: tuple[Column, ...]
    beside: tuple[Column, ...]
    maker: Maker | None

    @property
    def names(self) -> list[str]:
        """The names of the columns that hold the documents."""
        return [column.name for column in self.columns]


def _no_columns(shard: Shard, conversations: Conversations) -> ColumnError:
    setting = f"{shard.section}.{'template' if conversations.column is None else 'messages_column'}"
    return ColumnError(
        f"{shard.name}: a file of plain text has no columns to make conversations of.",
        f"Narrow {shard.section}.glob to files with columns, or set {setting} in params.yaml to null.",
        setting,
    )


def _read_parquet(shard: Shard, wanted: _Wanted, part: ShardRange | None, limits: Limits) -> Iterator[Columns]:
    dictionaries: list[str] = []
    with open_parquet(shard) as file:
        metadata = file.metadata
        names = _names(shard, file.schema_arrow, wanted)
        groups = range(part.start, part.stop) if part else range(file.num_row_groups)
        n_at_once = _rows_at_once(metadata, wanted.names)
        if limits.block_bytes_max:
            n_at_once, dictionaries = rows_within(shard, metadata, groups, names, limits, n_at_once)
    n_bytes = part.n_bytes if part else shard.n_bytes
    n_rows, read_rows = sum(metadata.row_group(i).num_rows for i in groups), 0
    with open_parquet(shard, buffer_size=_BLOCK_BYTES, read_dictionary=dictionaries, metadata=metadata) as file:
        # pyarrow 26 cannot read lists of dictionaries at once where they are in different row groups.
        runs = [[group] for group in groups] if dictionaries else [list(groups)]
        options = {"columns": names, "use_threads": False}
        for batch in chain.from_iterable(file.iter_batches(n_at_once, row_groups=run, **options) for run in runs):
            first_row, read_rows = (part.first_row if part else 0) + read_rows, read_rows + len(batch)
            yield from _columns(shard, batch, wanted, n_bytes * read_rows // max(n_rows, 1), first_row, limits)


def _rows_at_once(metadata: pq.FileMetaData, names: Sequence[str]) -> int:
    """The number of rows with about _TABLE_BYTES of these columns in the row group whose texts are longest."""
    row_bytes = 1
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        wanted = (group.column(j) for j in range(group.num_columns) if is_of(metadata.schema.column(j).path, names))
        n_bytes = sum(one.total_uncompressed_size for one in wanted)
        row_bytes = max(row_bytes, n_bytes // max(group.num_rows, 1))
    return min(max(_TABLE_BYTES // row_bytes, 1), _TABLE_ROWS_MAX)


def _read_arrow(shard: Shard, wanted: _Wanted, limits: Limits) -> Iterator[Columns]:
    with BoundedFile(shard, limits) as file:  # not memory-mapped: if a mapped file is truncated, the process is killed
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = open_reader(file).schema
        names = _names(shard, schema, wanted)
        file.seek(0)
        fields = [schema.get_field_index(name) for name in names]
        reader = open_reader(file, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
        first_row = 0
        for batch in checked_batches(batches, file, is_file, schema, names, limits):
            yield from _columns(shard, batch, wanted, file.tell(), first_row, limits)
            first_row += len(batch)
            file.begin_batch()
        if not is_file and file.peek_at(file.tell(), _BLOCK_BYTES).strip(b"\0"):
            raise OSError(f"{file.n_bytes - file.tell():,} bytes are behind the end of its stream")


def _read_json(
    shard: Shard,
    new_reader: Callable[[OnBadLine | None], LineReader],
    columns: Sequence[str],
    has_bad: bool,
    part: ShardRange | None,
    limits: Limits,
) -> Iterator[Columns]:
    """Reads documents from JSON. `new_reader`: makes a reader of lines, given a function to call with bad ones. `columns`: the keys
    of a document. If a .json file does not have one value per line, bad ones have only rows, and raise no error here."""
    start, first_line = (part.start, part.first_line) if part else (0, 1)
    with open_arrow(shard, part.stop if part else None) as file:
        stream = _opened(shard, file, start, limits)
        blocks = _text_blocks(shard, stream, part)
        form, blocks = _form(blocks, columns) if shard.kind.format == "json" else ("lines", blocks)
        if is_lines := form == "lines":
            blocks = _whole_lines(blocks, limits, lambda: f"{shard.name}, line {first_line}", _last_line_end)
        else:
            around = columns if form == "wrapped" else None
            blocks = as_lines(blocks, form in ("array", "wrapped"), limits, shard.name, around)
        bad: list[BadDocument] = []
        read = new_reader(bad.append if has_bad or not is_lines else None)
        for lines in blocks:
            found = read(lines, first_line)
            first_line += found.n_line_ends
            by_row = bad if is_lines else (msgspec.structs.replace(one, line=None) for one in bad)
            yield Columns(found.texts, found.beside, file.tell() - start, [*by_row], found.messages, found.wrong)
            bad.clear()


def _read_csv(
    shard: Shard, wanted: _Wanted, has_bad: bool, part: ShardRange | None, limits: Limits
) -> Iterator[Columns]:
    separator = shard.kind.separator
    header, names = _header(shard, limits)
    if not names:
        return
    if names[0] not in wanted.names and (words := other_separator(names)):
        fix = "Name it .tsv if these are tabs, .csv if these are commas, or write it again with commas."
        raise DamagedError(shard.name, f"its first record, the header, has {words}.", fix)
    chosen = _names(shard, pa.schema([(name, pa.large_string()) for name in names]), wanted)
    indices = [names.index(name) for name in chosen]
    start, first_line, row = (part.start, part.first_line, part.first_row) if part else (0, 1, 0)
    with open_arrow(shard, part.stop if part else None) as file:
        stream = _opened(shard, file, start, limits)
        blocks = _text_blocks(shard, stream, part)
        if not start:
            blocks = _behind(blocks, len(header))
            first_line += header.count(b"\n")
        ends = RecordEnds(separator)

        def where() -> str:
            return f"{shard.name}, line {first_line}"

        def held() -> str:
            return where() + ", in which a quote opens that has not ended" * ends.is_open

        bad: list[BadDocument] = []
        for lines in _whole_lines(_closed(blocks, ends, where), limits, held, ends.last):
            for records in records_in(lines, separator, len(names), indices):
                position = file.tell() - start
                if isinstance(records, BadRecord):
                    line = first_line + records.line
                    give_up(shard, 0, line, records.raw, records.fault, bad.append if has_bad else None)
                    none = pa.nulls(1, pa.large_string())
                    yield Columns(
                        none, [none] * len(wanted.beside), position, [*bad], None if wanted.maker is None else none
                    )
                    bad.clear()
                    row += 1
                    continue
                batch = pa.RecordBatch.from_arrays(records.columns, names=chosen)
                yield from _columns(shard, batch, wanted, position, row, limits)
                row += len(batch)
            first_line += lines.count(b"\n")


def _header(shard: Shard, limits: Limits) -> tuple[bytes, list[str]]:
    """The first record of a .csv file, and the names of the columns that it has. Raises DamagedError."""
    with open_arrow(shard) as file:
        stream = _opened(shard, file, 0, limits)
        try:
            header = header_in(_text_blocks(shard, stream, None), shard.kind.separator)
            return header, names_in(header, shard.kind.separator)
        except ValueError as error:
            raise DamagedError(shard.name, f"{error}.", "Correct it, or make the file again.") from None


def _behind(blocks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """The blocks without the first bytes."""
    for block in blocks:
        if rest := block[n_bytes:]:
            yield rest
        n_bytes = max(n_bytes - len(block), 0)


def _closed(blocks: Iterator[bytes], ends: RecordEnds, where: Callable[[], str]) -> Iterator[bytes]:
    """The blocks, which `ends` takes as well. Raises DamagedError behind the last one if a quote is open then, or if it ends with
    zero bytes."""
    last = b""
    for last in blocks:
        yield last
    if last.endswith(b"\0"):
        what = "the file ends with zero bytes, as a write that did not end leaves them."
        raise DamagedError(where(), what, "Copy or make it again.")
    if ends.is_open:
        what = "a quote that opens in the record that begins here has no end."
        raise DamagedError(where(), what, "Close it, or copy or make the file again if it was cut off.")


def _form(blocks: Iterator[bytes], columns: Sequence[str]) -> tuple[str, Iterator[bytes]]:
    """The layout of a .json file ("array", "wrapped", "objects" or "lines"), and its blocks: from the array on where an object is
    wrapped around it, or else from the beginning."""
    beginning = b""
    for block in blocks:
        beginning += block
        if len(beginning) > _BLOCK_BYTES:
            break
    if (start := rows_at(beginning, columns)) is not None:
        return "wrapped", chain([beginning[start:]], blocks)
    return form_of(beginning), chain([beginning] if beginning else [], blocks)


def _read_txt(shard: Shard, reading: Reading, limits: Limits) -> Iterator[Columns]:
    first_row, separator = 0, reading.text_separator
    with open_arrow(shard) as file:
        if not separator and not shard.kind.compression:
            limits.check_document(file.size(), f"{shard.name}, row 0")
        stream = _opened(shard, file, 0, limits)
        blocks = _text_blocks(shard, stream, None)
        for texts in _split(blocks, separator.encode(), limits, shard) if separator else _whole(blocks, limits, shard):
            ids = [shard.id_of(row, is_whole=not separator) for row in range(first_row, first_row + len(texts))]
            yield Columns(pa.array(texts, pa.large_binary()), text_beside(shard, reading, ids), file.tell())
            first_row += len(texts)


def text_beside(shard: Shard, reading: Reading, ids: Sequence[str]) -> list[pa.LargeStringArray]:
    """What is beside documents of plain text: their ids, if they are asked for. Raises CorpusError if columns are, too."""
    if reading.columns:
        columns = ", ".join(repr(column.name) for column in reading.columns)
        what = f"a file of plain text has no column {columns}."
        raise CorpusError(shard.name, what, advice_for(shard, reading.columns[0]))
    return [] if reading.id_column is None else [pa.array(ids, pa.large_string())]


def advice_for(shard: Shard, column: Column) -> str:
    """What to do where a document lacks a column that is no part of it."""
    columns, nothing = ("columns", "[]") if kind_of(column).is_json else ("a column", "null")
    return f"Set {shard.setting(column.param)} to {columns} that every document has, or to {nothing}."


def _whole(blocks: Iterator[bytes], limits: Limits, shard: Shard) -> Iterator[list[bytes]]:
    """The whole file as one document; none if it is empty."""
    parts: list[bytes] = []
    n_held = 0
    for block in blocks:
        parts.append(block)
        n_held += len(block)
        limits.check_document(n_held, f"{shard.name}, row 0")
    if parts:
        yield [b"".join(parts)]


def _opened(shard: Shard, file: Any, start: int, limits: Limits) -> Any:
    """The stream of a file's text from byte `start` on. It has to outlive the use of `file`, which it closes at its end. Raises
    DamagedError for a file that is of another kind than its name says; such a file is not cut into ranges."""
    if start:
        file.seek(start)
        return file
    refuse_other_bytes(shard, head_of(file))
    return decompressed(file, shard.kind.compression, limits.window_bytes_max, shard.name)


def _text_blocks(shard: Shard, stream: Any, part: ShardRange | None) -> Iterator[bytes]:
    """The text of a file, or of a range of it, in blocks, without the byte order mark at the file's begin. Raises DamagedError for
    a file in which something else than text is compressed."""
    blocks = _blocks(stream, part.n_bytes if part else None)
    if part is not None and part.start:
        return blocks
    beginning = b""
    for block in blocks:
        beginning += block
        if len(beginning) >= HEAD_BYTES:
            break
    if shard.kind.compression:
        refuse_other_text(shard, beginning)
    beginning = beginning.removeprefix(BOM_UTF8)
    return chain([beginning] if beginning else [], blocks)


def _blocks(file: Any, n_bytes: int | None = None) -> Iterator[bytes]:
    """The next `n_bytes` of an open file in blocks; None: to its end."""
    if n_bytes is None:
        return iter(partial(file.read, _BLOCK_BYTES), b"")
    return _next_blocks(file, n_bytes)


def _next_blocks(file: Any, n_bytes: int) -> Iterator[bytes]:
    while block := file.read(min(_BLOCK_BYTES, n_bytes)):
        n_bytes -= len(block)
        yield block


def _last_line_end(block: bytes) -> int:
    return block.rfind(b"\n") + 1


def _whole_lines(
    blocks: Iterator[bytes], limits: Limits, where: Callable[[], str], last_end: Callable[[bytes], int]
) -> Iterator[bytes]:
    """Regroups the bytes into blocks of whole lines, or records. `where`: names the next line in an error message. `last_end`:
    gives the position behind the last line that ends in a block, or 0."""
    parts: list[bytes | memoryview] = []  # of the unfinished line; joined once, so that a long line takes linear time
    n_held = 0

    def check(n_more: int) -> None:
        if limits.document_bytes_max is not None and n_held + n_more > limits.document_bytes_max:
            limits.check_document(n_held + n_more, where())

    for block in blocks:
        if end := last_end(block):
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


def _split(blocks: Iterator[bytes], separator: bytes, limits: Limits, shard: Shard) -> Iterator[list[bytes]]:
    """The documents between the separators, in order. A separator at the end of the file starts no document."""
    row = 0
    n_tail = len(separator) - 1  # bytes at a block's end that may begin a separator
    parts: list[bytes] = []  # of the unfinished document; joined once, as in _whole_lines
    n_held = 0
    tail = b""
    for block in blocks:
        *whole, last = (tail + block).split(separator)
        if whole:
            limits.check_document(n_held + len(whole[0]), f"{shard.name}, row {row}")
            yield [b"".join([*parts, whole[0]]), *whole[1:]]
            row += len(whole)
            parts, n_held = [], 0
        cut = max(len(last) - n_tail, 0)
        parts.append(last[:cut])
        n_held += cut
        limits.check_document(n_held, f"{shard.name}, row {row}")
        tail = last[cut:]
    if rest := b"".join([*parts, tail]):
        yield [rest]


def _names(shard: Shard, schema: pa.Schema, wanted: _Wanted) -> list[str]:
    """The names of the columns to read. Raises ColumnError."""
    columns = [*wanted.columns, *wanted.beside]
    check_columns(shard, schema, columns)
    return list(dict.fromkeys(column.name for column in columns))


def _columns(
    shard: Shard, batch: pa.RecordBatch, wanted: _Wanted, position: int, first_row: int, limits: Limits
) -> Iterator[Columns]:
    """The documents of a record batch. `first_row`: its first row. Yields few at a time if a dictionary or view makes them larger
    than the batch, or if they become conversations or JSON, which are larger in Python than in Arrow."""
    names_beside = [column.name for column in wanted.beside]
    columns = [batch.column(name) for name in dict.fromkeys([*wanted.names, *names_beside])]
    runs: Iterable[tuple[int, int, int]] = [(0, len(batch), 0)]
    may_grow = any(is_shared(column.type) for column in columns)
    in_python = wanted.maker is not None or any(kind_of(column).is_json for column in wanted.beside)
    if may_grow or in_python:
        for column in columns:
            check_values(column)
    if may_grow or (in_python and sum(one.nbytes for one in columns) * _BYTES_IN_PYTHON > _TABLE_BYTES):
        runs = runs_within(columns, _TABLE_BYTES, _TABLE_ROWS_MAX)
    for start, n_rows, n_bytes in runs:
        if n_rows == 1:
            limits.check_block(n_bytes, f"{shard.name}, row {first_row + start}: the document", "cut the document")
        run = batch.slice(start, n_rows)
        beside = [run.column(name) for name in names_beside]
        if wanted.maker is None:
            yield Columns(run.column(wanted.names[0]), beside, position)
        else:
            made = conversations_of([run.column(name) for name in wanted.names], wanted.maker)
            yield Columns(made.texts, beside, position, made.bad, made.messages)
