"""Reads the documents of shards in batches of bounded size."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.bad_documents import BadDocument, ColumnError, whom
from tokenmill.corpus.column_kinds import kind_of
from tokenmill.corpus.formats import Columns, advice_for, read_columns
from tokenmill.corpus.kept_values import json_values
from tokenmill.corpus.limits import BATCH_BYTES, UNBOUNDED, VALUE_BYTES_MAX, Limits
from tokenmill.corpus.line_faults import CONVERT, Fault, WrongValue
from tokenmill.corpus.other_kinds import refuse_other_file
from tokenmill.corpus.shard_files import held
from tokenmill.corpus.shards import Shard, ShardRange, find_shards
from tokenmill.corpus.text_digests import text_digests
from tokenmill.corpus.zstd_frames import later_window
from tokenmill.errors import CorpusError, DamagedError, unreadable

__all__ = ["BadDocument", "Batch", "Shard", "ShardRange", "find_shards", "read_batches"]

_BATCH_ROWS_MAX = 1 << 18  # bounds batches of empty documents, which still need offsets and ids
BESIDE_BYTES_MAX = 4 * BATCH_BYTES  # the most bytes of what is beside the documents of a batch: ids and columns
_TOO_LARGE_A_WINDOW = "Frame requires too much memory"  # zstd's error

OnBad = Callable[[BadDocument], None]


@dataclass(frozen=True)
class Batch:
    """Consecutive documents of a shard, or of several shards of a unit.

    `first_row`: the row of the first document in its shard, from 0. `texts`: large_string, no nulls, valid UTF-8. `ids`: one per
    document, of the same type, or None. `file_bytes`: bytes of the file that were read since the previous batch, for a progress
    bar; over all batches they add up to the file's size. `positions`: each document's row in the shard, int64; None: rows are
    consecutive. `messages`: the canonical JSON of each conversation, with the type of `texts`; None: documents are texts. The text
    of a conversation is the contents of its messages, joined by line ends. `columns`: the values of Reading.columns (see Column),
    with the type of `texts`. `pieces`: the index of each document's piece in its unit, int32; None: all are of the first piece.
    `digests`: the sha256 of the whole conversation of each sample, if these are samples of conversations (see
    tokenmill.chat.samples); None: each document's own.
    """

    first_row: int
    texts: pa.LargeStringArray
    ids: pa.LargeStringArray | None
    file_bytes: int = 0
    positions: pa.Int64Array | None = None
    messages: pa.LargeStringArray | None = None
    pieces: pa.Int32Array | None = None
    digests: pa.FixedSizeBinaryArray | None = None
    columns: Mapping[Column, pa.LargeStringArray] = field(default_factory=dict)

    @property
    def digested(self) -> pa.LargeStringArray:
        """The strings whose sha256 is a document's digest: conversations' canonical JSON, or else the texts."""
        return self.texts if self.messages is None else self.messages

    @property
    def text_bytes(self) -> int:
        """The size of the texts in UTF-8, in bytes."""
        return _n_bytes(self.texts)

    @property
    def beside_bytes(self) -> int:
        """The size of what is beside the texts in UTF-8, in bytes: ids, unless rows are the ids, and columns."""
        return sum(map(_n_bytes, self.beside))

    @property
    def beside(self) -> list[pa.LargeStringArray]:
        """The ids, unless rows are the ids, and the values of each column."""
        return [*([] if self.ids is None else [self.ids]), *self.columns.values()]

    def each(self, change: Callable[[pa.Array], pa.Array]) -> "Batch":
        """The batch with another array in place of each, such as a slice of it."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        changed = {name: change(array) for name, array in arrays.items() if array is not None}
        return replace(self, **changed, columns={column: change(array) for column, array in self.columns.items()})

    def slice(self, start: int, n_documents: int | None = None) -> "Batch":
        """The documents from `start` on, without a copy; its `file_bytes` is 0."""
        part = self.each(lambda array: array.slice(start, n_documents))
        first_row = self.first_row + start
        if self.positions is not None and part.positions is not None:
            behind = self.positions[-1].as_py() + 1 if len(self.positions) else self.first_row
            first_row = part.positions[0].as_py() if len(part.positions) else behind
        return replace(part, first_row=first_row, file_bytes=0)

    def by_piece(self) -> Iterator[tuple[int, "Batch"]]:
        """The documents of each piece, with its index."""
        if self.pieces is None:
            yield 0, self
            return
        numbers = self.pieces.to_numpy()
        ends = [*np.flatnonzero(np.diff(numbers)) + 1, len(numbers)]
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                yield int(numbers[start]), self.slice(start, end - start)

    def n_by_piece(self, n_pieces: int) -> npt.NDArray[np.int64]:
        """The number of documents of each piece of a unit with that many."""
        if self.pieces is None:
            return np.array([len(self.texts)] + [0] * (n_pieces - 1), np.int64)
        return np.bincount(self.pieces.to_numpy(), minlength=n_pieces)

    def piece(self, i: int) -> int:
        """The index of the i-th document's piece."""
        return 0 if self.pieces is None else int(self.pieces[i].as_py())

    def rows(self) -> pa.Int64Array:
        """Each document's row in the shard, from 0."""
        if self.positions is not None:
            return self.positions
        return pa.array(np.arange(self.first_row, self.first_row + len(self.texts)))


_ARRAYS = ("texts", "ids", "positions", "messages", "pieces", "digests")

LeaveOut = Callable[[Batch], Sequence[int] | npt.NDArray[np.int64]]


def read_batches(
    shard: Shard,
    reading: Reading,
    part: ShardRange | None = None,
    on_bad: OnBad | None = None,
    limits: Limits = UNBOUNDED,
    leave_out: LeaveOut | None = None,
) -> Iterator[Batch]:
    """The shard's documents in order, in batches of at most `limits.batch_bytes` of text. A larger document is a batch of its own.

    Conversations are measured and limited by their canonical JSON. `part`: read only this range; rows still count from the start of
    the shard. `on_bad`: called with each bad document (null, not UTF-8, not JSON, no conversation), which is then left out. Without
    it, a bad document is an error. `leave_out`: called with consecutive documents, of which bad ones are null; says by their
    indices which of them to leave out. The batches are then those of a shard without these documents.

    The file's name decides its format, unless its source says it. An empty file has no documents. Plain text has no ids, so with
    an id column the id is the row in decimal; where its source says that it is text, the id is the file's path, and with a
    separator the path and the row. Integer ids become decimal text. Memory grows with the longest document, up to `limits`, and not
    with the file.

    Raises CorpusError, which names the file and the line or row, for bad or too long documents, wrong columns, and a file that
    tokenmill cannot read though it is whole: an encrypted one, a pointer, or one with a large zstd window. Raises DamagedError, a
    CorpusError, for a damaged or truncated file.
    """
    assert limits.batch_bytes > 0 and reading.text_separator != ""
    _refuse_equal_columns(shard, reading)
    try:
        with held(shard) as opened:
            first_row, n_bytes = (part.first_row, part.n_bytes) if part else (0, shard.n_bytes)
            columns = read_columns(opened, reading, part, on_bad is not None, limits)
            numbered = _numbered(shard, reading, columns, first_row, on_bad, leave_out)
            yield from _in_batches(numbered, n_bytes, limits, shard.name)
    except OSError as error:
        if error.errno is not None:
            raise unreadable(f"{shard.name}: {shard.path}", error) from None
        if _TOO_LARGE_A_WINDOW in str(error):
            raise later_window(shard.name) from None
        refuse_other_file(shard)
        what = f"the file is damaged or truncated: {_first_line(error)}."
        raise DamagedError(shard.name, what, "Copy or make it again.") from None
    except (pa.ArrowException, NotImplementedError) as error:
        refuse_other_file(shard)
        raise DamagedError(
            shard.name,
            f"expected a whole {shard.kind.suffix} file; it is damaged, truncated or of another kind: "
            f"{_first_line(error)}.",
            "Copy or make it again.",
        ) from None


def _refuse_equal_columns(shard: Shard, reading: Reading) -> None:
    named, conversations = {"text_column": reading.text_column}, reading.conversations
    if conversations is not None:
        named = {"messages_column": conversations.column or "", "tools_column": conversations.tools_column or ""}
        if named["messages_column"] and len(set(named.values())) == 1:
            raise CorpusError(
                f"{shard.setting('messages_column')} and {shard.setting('tools_column')}",
                f"both are {conversations.column!r}.",
                "Set tools_column to null, or to the column that holds the tools.",
            )
    for param, name in named.items():
        for column in reading.beside:
            if column.name == name and kind_of(column).is_part:
                raise CorpusError(
                    f"{shard.setting(param)} and {shard.setting(column.param)}",
                    f"both are {name!r}.",
                    f"Set {column.param} to null, or to another column.",
                )


def _numbered(
    shard: Shard,
    reading: Reading,
    blocks: Iterable[Columns],
    row: int,
    on_bad: OnBad | None,
    leave_out: LeaveOut | None,
) -> Iterator[Batch]:
    """The documents with their rows, with null for each that is left out. `file_bytes` is how many bytes were read up to there.
    `row`: the row of the first document."""
    for block in blocks:
        checked = _checked(shard, reading, block, row, on_bad is not None)
        for each in checked.bad:
            if on_bad is None:
                raise _refused(shard, row, each)
            on_bad(each.moved(row, 0))
        beside, texts = list(checked.beside), checked.texts
        ids = None if reading.id_column is None else beside.pop(0)
        columns = dict(zip(reading.columns, beside, strict=True))
        batch = Batch(row, texts, ids, checked.position, messages=checked.messages, columns=columns)
        if leave_out is not None:
            batch = _without(batch, leave_out(batch))
        for i, (column, fault) in sorted(checked.wrong.items()):
            if batch.texts[i].is_valid:
                where = f"{shard.name}, row {row + i}: column {column.name!r}"
                words = fault.words.removeprefix(f"column {column.name!r}: ").rstrip(".")
                raise CorpusError(where, f"{words}.", advice_for(shard, column))
        yield batch
        row += len(texts)


def _without(batch: Batch, indices: Sequence[int] | npt.NDArray[np.int64]) -> Batch:
    """The batch with null for each of these documents."""
    if not len(indices):
        return batch
    is_kept = np.ones(len(batch.texts), bool)
    is_kept[np.asarray(indices)] = False
    mask, messages = pa.array(is_kept), batch.messages
    messages = None if messages is None else pc.if_else(mask, messages, None)
    return replace(batch, texts=pc.if_else(mask, batch.texts, None), messages=messages)


def _refused(shard: Shard, row: int, bad: BadDocument) -> CorpusError:
    words = f"{shard.name}, row {row + (bad.row or 0)}: {bad.reason}"
    if bad.setting:
        advice = f"Set {bad.setting} in params.yaml, {whom(bad.setting)}, to a key that they have."
        return ColumnError(words, advice, bad.setting)
    return CorpusError(f"{words} Correct the row, or delete it.", code="TM201")


def _checked(shard: Shard, reading: Reading, block: Columns, row: int, may_be_bad: bool) -> Columns:
    """The documents as large_string, with null for each bad one: null, not UTF-8, or with such an id or other part, or with
    one that is too long. Raises CorpusError for the first bad one unless `may_be_bad`. `row`: the row of the first document."""
    texts, beside, faults, wrong_values = block.texts, list(block.beside), dict[int, Fault](), {**block.wrong}
    is_read_already = shard.kind.format in ("jsonl", "json")  # their readers have checked all but lengths
    if not is_read_already and block.messages is None:
        texts, faults = _strings(shard, reading.text_column, texts)
    for i, column in enumerate(reading.beside):
        wrong: dict[int, Fault] = {}
        kind = kind_of(column)
        if not is_read_already and kind.is_json:
            beside[i], wrong = json_values(column.name, beside[i])
        elif not is_read_already:
            beside[i], wrong = _strings(shard, column.name, beside[i])
        if not kind.is_json:
            wrong = _too_long(column.name, beside[i]) | wrong
        if kind.is_part:
            faults = wrong | faults  # if several are bad, the reason is the text's
        else:
            wrong_values |= {at: WrongValue(column, fault) for at, fault in wrong.items()}
    if not faults:
        return block._replace(texts=texts, beside=beside, wrong=wrong_values)
    if not may_be_bad:
        first = min(faults)
        raise CorpusError(
            f"{shard.name}, row {row + first}", f"{faults[first].words}.", faults[first].advice, code="TM201"
        )
    raw = (block.texts if block.messages is None else block.messages).cast(pa.large_binary())
    known = {bad_document.row: bad_document for bad_document in block.bad if bad_document.row is not None}
    bad = [known.get(i) or BadDocument(i, None, faults[i].words, raw[i].as_py()) for i in sorted({*known, *faults})]
    is_good = pa.array([i not in faults for i in range(len(texts))])
    messages = None if block.messages is None else pc.if_else(is_good, block.messages, None)
    beside = [pc.if_else(is_good, values, None) for values in beside]
    return Columns(pc.if_else(is_good, texts, None), beside, block.position, bad, messages, wrong_values)


def _too_long(column: str, values: pa.LargeStringArray) -> dict[int, Fault]:
    """What is wrong with ids and other values that are too long, by index."""
    if values.nbytes <= VALUE_BYTES_MAX:
        return {}
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    return {
        int(i): Fault(
            f"column {column!r}: expected at most {VALUE_BYTES_MAX:,} bytes; found {lengths[i]:,}",
            "Shorten it, or delete the row.",
        )
        for i in np.flatnonzero(lengths > VALUE_BYTES_MAX)
    }


def _strings(shard: Shard, column: str, array: pa.Array) -> tuple[pa.LargeStringArray, dict[int, Fault]]:
    """Values of any type of string or integer as large_string, with null for each that is not UTF-8; and what is wrong with these
    and with nulls, by index."""
    try:
        array.validate(full=True)
        strings = array.cast(pa.large_string())
        if not strings.null_count:
            return strings, {}
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
    what = "the text" if not shard.kind.has_columns else f"column {column!r}"
    values = array if pa.types.is_integer(array.type) else array.cast(pa.large_binary())
    faults: dict[int, Fault] = {}
    for i, value in enumerate(values.to_pylist()):
        if value is None:
            faults[i] = Fault(f"{what}: expected a value; found null", "Give it one, or delete the row.")
        elif isinstance(value, bytes) and (at := _first_wrong_byte(value)) is not None:
            words = f"{what}: expected UTF-8; found {value[at]:#04x} at byte {at} of the document"
            faults[i] = Fault(words, f"{CONVERT}{', or delete the row' if shard.kind.has_columns else ''}.")
    is_good = pa.array([i not in faults for i in range(len(values))])
    return pc.if_else(is_good, values, None).cast(pa.large_string()), faults


def _first_wrong_byte(text: bytes) -> int | None:
    """Where a text stops being UTF-8; None if it is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _in_batches(batches: Iterable[Batch], n_bytes: int, limits: Limits, name: str) -> Iterator[Batch]:
    """Cuts and joins what was found so that batches depend only on the documents, not on the file's blocks."""
    held: list[Batch] = []
    held_rows = held_bytes = held_beside = position_before = 0
    for batch in batches:
        limits.check_process(f"{name}, row {batch.first_row}")
        offsets = _offsets(batch.digested)
        beside_offsets = np.zeros(len(batch.texts) + 1, np.int64)
        for values in batch.beside:
            beside_offsets += _offsets(values)
        start = 0
        while start < len(batch.texts):
            bytes_end = bisect_right(offsets, offsets[start] + limits.batch_bytes - held_bytes) - 1
            beside_end = bisect_right(beside_offsets, beside_offsets[start] + BESIDE_BYTES_MAX - held_beside) - 1
            end = min(bytes_end, beside_end, start + _BATCH_ROWS_MAX - held_rows)
            if end <= start and held:
                yield _join(held, batch.file_bytes - position_before)
                held, held_rows, held_bytes, held_beside, position_before = [], 0, 0, 0, batch.file_bytes
                continue
            if end <= start:
                limits.check_document(offsets[start + 1] - offsets[start], f"{name}, row {batch.first_row + start}")
                end = start + 1
            held.append(batch.slice(start, end - start))
            held_rows, held_bytes = held_rows + end - start, held_bytes + offsets[end] - offsets[start]
            held_beside += beside_offsets[end] - beside_offsets[start]
            start = end
    if held:
        yield _join(held, n_bytes - position_before)


def _join(held: Sequence[Batch], file_bytes: int) -> Batch:
    whole = replace(_concatenated(held), file_bytes=file_bytes)
    if not whole.texts.null_count:
        return whole
    is_there = whole.texts.is_valid()
    return replace(whole, positions=whole.rows()).each(lambda array: array.filter(is_there))


def digests_of(batch: Batch) -> pa.FixedSizeBinaryArray:
    """The sha256 of each document of a batch; that of the whole conversation, if it is a sample of one."""
    return text_digests(batch.digested) if batch.digests is None else batch.digests


def put_together(batches: Sequence[Batch]) -> Batch:
    """One batch of the documents of several, which all have `pieces`."""
    if len(batches) == 1:
        return batches[0]
    with_rows = [replace(batch, positions=batch.rows()) for batch in batches]
    return replace(_concatenated(with_rows), file_bytes=sum(batch.file_bytes for batch in batches))


def _concatenated(batches: Sequence[Batch]) -> Batch:
    """The first batch with the arrays of all. They all have the same arrays."""
    arrays = {name: [getattr(batch, name) for batch in batches] for name in _ARRAYS}
    joined = {name: pa.concat_arrays(of_name) for name, of_name in arrays.items() if of_name[0] is not None}
    columns = {column: pa.concat_arrays([batch.columns[column] for batch in batches]) for column in batches[0].columns}
    return replace(batches[0], **joined, columns=columns)


def _n_bytes(strings: pa.LargeStringArray) -> int:
    offsets = _offsets(strings)
    return offsets[-1] - offsets[0]


def _offsets(texts: pa.LargeStringArray) -> Sequence[int]:
    """The int64 offsets of the texts in the array's bytes: each start, then the end of the last text."""
    buffer = texts.buffers()[1]
    if not len(texts) or buffer is None:
        return memoryview(bytes(8)).cast("q")
    return memoryview(buffer).cast("b").cast("q")[texts.offset : texts.offset + len(texts) + 1]


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
