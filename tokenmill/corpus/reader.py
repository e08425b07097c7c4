"""Reads the documents of shards in batches of bounded size."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.sources import Conversations
from tokenmill.corpus.bad_documents import BadDocument, ColumnError, whom
from tokenmill.corpus.formats import Columns, read_columns
from tokenmill.corpus.limits import BATCH_BYTES, UNBOUNDED, Limits
from tokenmill.corpus.shard_files import held, open_shard
from tokenmill.corpus.shards import Shard, ShardRange, find_shards
from tokenmill.corpus.zstd_frames import later_window
from tokenmill.errors import CorpusError, DamagedError, unreadable
from tokenmill.storage.pointers import POINTER_BYTES_MAX, refuse_pointer

__all__ = ["BadDocument", "Batch", "Shard", "ShardRange", "find_shards", "read_batches"]

_BATCH_ROWS_MAX = 1 << 18  # bounds batches of empty documents, which still need offsets and ids
_TOO_LARGE_A_WINDOW = "Frame requires too much memory"  # zstd's error
_NOT_COMPRESSED = ("incorrect header check", "Unknown frame descriptor")  # errors of zlib and zstd

OnBad = Callable[[BadDocument], None]
Drop = Callable[[int, pa.LargeStringArray, pa.LargeStringArray | None], pa.LargeStringArray]


@dataclass(frozen=True)
class Batch:
    """Consecutive documents of a shard.

    `first_row`: the row of the first document in the shard, from 0. `texts`: large_string, no nulls, valid UTF-8. `ids`: one per
    document, of the same type, or None. `file_bytes`: bytes of the file that were read since the previous batch, for a progress
    bar; over all batches they add up to the file's size. `positions`: each document's row in the shard, int64; None: rows are
    consecutive. `messages`: the canonical JSON of each conversation, with the type of `texts`; None: documents are texts. The text
    of a conversation is the contents of its messages, joined by line ends.
    """

    first_row: int
    texts: pa.LargeStringArray
    ids: pa.LargeStringArray | None
    file_bytes: int = 0
    positions: pa.Int64Array | None = None
    messages: pa.LargeStringArray | None = None

    @property
    def digested(self) -> pa.LargeStringArray:
        """The strings whose sha256 is a document's digest: conversations' canonical JSON, or else the texts."""
        return self.texts if self.messages is None else self.messages

    @property
    def text_bytes(self) -> int:
        """The size of the texts in UTF-8, in bytes."""
        offsets = _offsets(self.texts)
        return offsets[-1] - offsets[0]

    def slice(self, start: int, n_documents: int | None = None) -> "Batch":
        """The documents from `start` on, without a copy; its `file_bytes` is 0."""
        ids = None if self.ids is None else self.ids.slice(start, n_documents)
        texts = self.texts.slice(start, n_documents)
        messages = None if self.messages is None else self.messages.slice(start, n_documents)
        if self.positions is None:
            return Batch(self.first_row + start, texts, ids, messages=messages)
        positions = self.positions.slice(start, n_documents)
        behind = self.positions[-1].as_py() + 1 if len(self.positions) else self.first_row
        first_row = positions[0].as_py() if len(positions) else behind
        return Batch(first_row, texts, ids, positions=positions, messages=messages)

    def rows(self) -> pa.Int64Array:
        """Each document's row in the shard, from 0."""
        if self.positions is not None:
            return self.positions
        return pa.array(np.arange(self.first_row, self.first_row + len(self.texts)))


def read_batches(
    shard: Shard,
    text_column: str,
    id_column: str | None,
    separator: str | None,
    conversations: Conversations | None = None,
    batch_bytes: int = BATCH_BYTES,
    part: ShardRange | None = None,
    on_bad: OnBad | None = None,
    limits: Limits = UNBOUNDED,
    drop: Drop | None = None,
) -> Iterator[Batch]:
    """The shard's documents in order, in batches of at most `batch_bytes` of text. A larger document is a batch of its own.

    `conversations`: how rows become conversations, which are measured and limited by their canonical JSON; None: documents are the
    texts of `text_column`. `part`: read only this range; rows still count from the start of the shard. `on_bad`: called with each
    bad document (null, not UTF-8, not JSON, no conversation), which is then left out. Without it, a bad document is an error.
    `drop`: called with the row, texts (or canonical JSON) and ids of consecutive documents; gives the texts with a null for each
    document to leave out. The batches are then those of a shard without these documents.

    The file's name decides its format, unless its source says it. `separator` splits plain text into documents; None: the file is
    one document. An empty file has no documents. Plain text has no ids, so with `id_column` the id is the row in decimal; where its
    source says that it is text, the id is the file's path, and with a separator the path and the row. Integer ids become
    decimal text. Memory grows with the longest document, up to `limits`, and not with the file.

    Raises CorpusError, which names the file and the line or row, for bad or too long documents, wrong columns, and a file that
    tokenmill cannot read though it is whole: an encrypted one, a pointer, or one with a large zstd window. Raises DamagedError, a
    CorpusError, for a damaged or truncated file.
    """
    assert batch_bytes > 0 and separator != ""
    _refuse_equal_columns(shard.section, text_column, id_column, conversations)
    try:
        with held(shard) as opened:
            if shard.n_bytes <= POINTER_BYTES_MAX and isinstance(
                shard.path, Path
            ):  # objects were checked for pointers before
                with open_shard(opened) as file:
                    refuse_pointer(shard.name, file)
            first_row, n_bytes = (part.first_row, part.n_bytes) if part else (0, shard.n_bytes)
            columns = read_columns(
                opened, text_column, id_column, separator, conversations, part, on_bad is not None, limits
            )
            numbered = _numbered(shard, text_column, id_column, columns, first_row, on_bad, drop)
            yield from _in_batches(numbered, batch_bytes, n_bytes, limits, shard.name)
    except OSError as error:
        if error.errno is not None:
            raise unreadable(f"{shard.name}: {shard.path}", error) from None
        if _TOO_LARGE_A_WINDOW in str(error):
            raise later_window(shard.name) from None
        reason = f"the file is damaged or truncated: {_first_line(error)}. Copy or make it again."
        if any(word in str(error) for word in _NOT_COMPRESSED):
            reason = f"the file is damaged, or not compressed as its name says: {_first_line(error)}. Copy, make or rename it."
        raise DamagedError(f"{shard.name}: {reason}") from None
    except (pa.ArrowException, NotImplementedError) as error:
        raise DamagedError(
            f"{shard.name}: expected a whole {shard.kind.suffix} file; it is damaged, truncated or of another kind: "
            f"{_first_line(error)}. Copy or make it again."
        ) from None


def _refuse_equal_columns(
    section: str, text_column: str, id_column: str | None, conversations: Conversations | None
) -> None:
    named = {"text_column": text_column}
    if conversations is not None:
        named = {"messages_column": conversations.column or "", "tools_column": conversations.tools_column or ""}
        if named["messages_column"] and len(set(named.values())) == 1:
            raise CorpusError(
                f"{section}.messages_column and {section}.tools_column: both are {conversations.column!r}. Set tools_column to "
                "null, or to the column that holds the tools."
            )
    for param, column in named.items():
        if column == id_column:
            raise CorpusError(
                f"{section}.{param} and {section}.id_column: both are {column!r}. Set id_column to null (ids are then rows), "
                "or to the column that holds the ids."
            )


class _Strings(NamedTuple):
    """Consecutive documents as large_string. `row`: the first one's row in the shard. `position`: see Columns. `messages`: null
    where texts are null; None if documents are texts."""

    row: int
    texts: pa.LargeStringArray
    ids: pa.LargeStringArray | None
    position: int
    messages: pa.LargeStringArray | None

    @property
    def digested(self) -> pa.LargeStringArray:
        """The strings whose sha256 is a document's digest."""
        return self.texts if self.messages is None else self.messages

    def slice(self, start: int, n_documents: int) -> "_Strings":
        """The documents from `start` on, without a copy."""
        some = (None if one is None else one.slice(start, n_documents) for one in (self.texts, self.ids, self.messages))
        texts, ids, messages = some
        return _Strings(self.row + start, texts, ids, self.position, messages)


def _numbered(
    shard: Shard,
    text_column: str,
    id_column: str | None,
    columns: Iterable[Columns],
    row: int,
    on_bad: OnBad | None,
    drop: Drop | None,
) -> Iterator[_Strings]:
    """The checked columns with their rows. Rows are counted only here. `row`: the row of the first document."""
    for one in columns:
        if on_bad and shard.kind.format not in ("jsonl", "json"):
            one = _with_nulls_for_bad(shard, text_column, id_column, one)
        for bad in one.bad:
            if on_bad is None:
                words = f"{shard.name}, row {row + (bad.row or 0)}: {bad.reason}"
                if bad.setting:
                    raise ColumnError(
                        words,
                        f"Set {bad.setting} in params.yaml, {whom(bad.setting)}, to a key that they have.",
                        bad.setting,
                    )
                raise CorpusError(f"{words} Correct the row, or delete it.", code="TM201")
            on_bad(bad.moved(row, 0))
        texts = _strings(shard, text_column, one.texts, row, has_nulls=on_bad is not None)
        ids, messages = one.ids, one.messages
        if id_column is not None:
            ids = _strings(shard, id_column, ids, row, has_nulls=on_bad is not None)
        if drop is not None and messages is not None:
            messages = drop(row, messages, ids)
            texts = pc.if_else(messages.is_valid(), texts, None)
        elif drop is not None:
            texts = drop(row, texts, ids)
        yield _Strings(row, texts, ids, one.position, messages)
        row += len(texts)


def _strings(shard: Shard, column: str, array: pa.Array, first_row: int, has_nulls: bool) -> pa.LargeStringArray:
    try:
        array.validate(full=True)
        strings = array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        raise _invalid_utf8(shard, column, array, first_row) from None
    if strings.null_count and not has_nulls:
        row = first_row + pc.index(strings.is_null(), True).as_py()
        raise CorpusError(
            f"{shard.name}, row {row}: column {column!r}: expected a value; found null. Give it one, or delete the row.",
            code="TM201",
        )
    return strings


def _invalid_utf8(shard: Shard, column: str, array: pa.Array, first_row: int) -> CorpusError:
    what = "the text" if not shard.kind.has_columns else f"column {column!r}"
    for row, value in enumerate(array.cast(pa.large_binary()), first_row):
        try:
            (value.as_py() or b"").decode()
        except UnicodeDecodeError as error:
            return CorpusError(
                f"{shard.name}, row {row}: {what}: expected UTF-8; found {error.object[error.start]:#04x} at byte "
                f"{error.start} of the document. Convert the file to UTF-8, or delete the row.",
                code="TM201",
            )
    # A dictionary may hold a value that no row uses.
    return CorpusError(
        f"{shard.name}: {what}: expected UTF-8; found other bytes. Convert the file to UTF-8.", code="TM201"
    )


def _with_nulls_for_bad(shard: Shard, text_column: str, id_column: str | None, columns: Columns) -> Columns:
    """The columns of a table or a .txt file, with null for each bad document."""
    texts, ids, position, known, messages = columns
    bad = {one.row: one.reason for one in known if one.row is not None}
    if messages is None:
        bad = dict(_bad_values(shard, text_column, texts))
    bad_ids = {} if id_column is None else dict(_bad_values(shard, id_column, ids))
    if not bad_ids and len(bad) == len(known):
        return columns
    bad = bad_ids | bad  # if both are bad, the reason is the text's or messages'
    raw = (texts if messages is None else messages).cast(pa.large_binary())
    is_good = pa.array([i not in bad for i in range(len(texts))])
    raws = {one.row: one.raw for one in known}
    return Columns(
        pc.if_else(is_good, texts if messages is not None else raw, None),
        None if ids is None else pc.if_else(is_good, _as_bytes(ids), None),
        position,
        [BadDocument(i, None, bad[i], raws.get(i) or raw[i].as_py()) for i in sorted(bad)],
        None if messages is None else pc.if_else(is_good, messages, None),
    )


def _bad_values(shard: Shard, column: str, array: pa.Array) -> Iterator[tuple[int, str]]:
    """The indexes of values that are null or not UTF-8, each with a reason for the message."""
    try:
        array.validate(full=True)
        if not array.cast(pa.large_string()).null_count:
            return
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
    what = "the text" if not shard.kind.has_columns else f"column {column!r}"
    for i, value in enumerate(_as_bytes(array)):
        found = value.as_py()
        if found is None:
            yield i, f"{what}: expected a value; found null"
        elif isinstance(found, bytes):
            try:
                found.decode()
            except UnicodeDecodeError as error:
                yield (
                    i,
                    f"{what}: expected UTF-8; found {found[error.start]:#04x} at byte {error.start} of the document",
                )


def _as_bytes(array: pa.Array) -> pa.Array:
    """Strings of any type as large_binary. Integers stay as they are."""
    return array if pa.types.is_integer(array.type) else array.cast(pa.large_binary())


def _in_batches(
    columns: Iterable[_Strings], batch_bytes: int, n_bytes: int, limits: Limits, name: str
) -> Iterator[Batch]:
    """Cuts and joins columns so that batches depend only on the documents, not on the file's blocks."""
    held: list[_Strings] = []
    held_rows = held_bytes = position_before = 0
    for one in columns:
        offsets = _offsets(one.digested)
        start = 0
        while start < len(one.texts):
            bytes_end = bisect_right(offsets, offsets[start] + batch_bytes - held_bytes) - 1
            end = min(bytes_end, start + _BATCH_ROWS_MAX - held_rows)
            if end <= start and held:
                yield _join(held, one.position - position_before)
                held, held_rows, held_bytes, position_before = [], 0, 0, one.position
                continue
            if end <= start:
                limits.check_document(offsets[start + 1] - offsets[start], f"{name}, row {one.row + start}")
                end = start + 1
            held.append(one.slice(start, end - start))
            held_rows, held_bytes = held_rows + end - start, held_bytes + offsets[end] - offsets[start]
            start = end
    if held:
        yield _join(held, n_bytes - position_before)


def _join(held: Sequence[_Strings], file_bytes: int) -> Batch:
    first_row = held[0].row
    texts = pa.concat_arrays([one.texts for one in held])
    ids, messages = _joined([one.ids for one in held]), _joined([one.messages for one in held])
    if not texts.null_count:
        return Batch(first_row, texts, ids, file_bytes, messages=messages)
    is_there = texts.is_valid()
    rows = pa.array(range(first_row, first_row + len(texts)), pa.int64()).filter(is_there)
    ids, messages = ids and ids.filter(is_there), messages and messages.filter(is_there)
    return Batch(first_row, texts.filter(is_there), ids, file_bytes, rows, messages)


def _joined(some: Sequence[pa.LargeStringArray | None]) -> pa.LargeStringArray | None:
    found = [one for one in some if one is not None]
    return pa.concat_arrays(found) if found else None


def _offsets(texts: pa.LargeStringArray) -> Sequence[int]:
    """The int64 offsets of the texts in the array's bytes: each start, then the end of the last text."""
    buffer = texts.buffers()[1]
    if not len(texts) or buffer is None:
        return memoryview(bytes(8)).cast("q")
    return memoryview(buffer).cast("b").cast("q")[texts.offset : texts.offset + len(texts) + 1]


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
