"""Checks the first documents of some files, so that a build need not fail on them after hours."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from tokenmill import _core
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.library_memory import check_encoding
from tokenmill.config.source_params import Source
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.bad_documents import (
    N_FOUND_MAX,
    N_LISTED_MAX,
    Bad,
    BadDocument,
    BadInputError,
    ColumnError,
    EnoughFound,
    joined,
)
from tokenmill.corpus.filter import Filters, leaving_out
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch, LeaveOut, read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.dataset.group_keys import group_column
from tokenmill.errors import (
    ChatError,
    CorpusError,
    DamagedError,
    ParamsError,
    PassingError,
    SpecialTokenError,
    UnitTimeoutError,
)
from tokenmill.stages.refusals import refused_in
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_FILES_MIN, _N_FILES_MAX = 5, 100
_SECONDS_MAX = 1.0
_BATCH_BYTES = 1 << 16
_N_BATCHES_MAX = 64  # reads up to this much of a file that begins with a bad document
_N_ENCODED = 16
_DOCUMENT_BYTES_MAX, _BLOCK_BYTES_MAX = 1 << 24, 1 << 26  # larger ones are left to the build


@dataclass(frozen=True)
class Requirements:
    """What the documents are checked against. `tokenizer`, `chat`: the encoders; None if unknown yet. `group_column`,
    `language_column`: encode.split_group and validate.language_column. `filters`: say which documents are left out. `limits`: the
    largest document and block of a worker. `seconds_max`: run.unit_timeout_s, here for the first conversations of a file."""

    tokenizer: Tokenizer | None
    chat: ChatEncoder | None
    group_column: str | None
    language_column: str | None
    filters: Filters
    limits: Limits
    seconds_max: float | None = None


@dataclass
class FirstRows:
    """The findings in `n_files` files. `wrong`: the errors that a build would raise. `left_out`: the first document of each file,
    or the file, that a build would leave out. `looked`: each file with the parameter to blame for its bad documents; None if none
    is bad, "" if no parameter is to blame."""

    n_files: int = 0
    wrong: list[CorpusError | ParamsError] = field(default_factory=list)
    left_out: list[Bad] = field(default_factory=list)
    looked: list[tuple[Shard, str | None]] = field(default_factory=list)


def first_rows(shards: Sequence[Shard], source: Source, wanted: Requirements) -> FirstRows:
    """Checks the first documents of up to 100 evenly chosen files. Stops after a second, but not before 5 files."""
    if wanted.chat is not None:
        wanted.chat.hold_to(wanted.limits)
    wanted = replace(wanted, limits=_smaller(wanted.limits))
    seen, bad = FirstRows(), _BadRows(source, wanted)
    checks = [_check_chat, _check_rejected]
    without_language: list[str] = []
    column, is_column_found = wanted.language_column, wanted.language_column is None
    end_s = time.monotonic() + _SECONDS_MAX
    for shard in shards[:: -(-len(shards) // _N_FILES_MAX)] if shards else ():
        seen.n_files += 1
        batch = bad.first_batch(shard)
        seen.looked.append((shard, bad.setting))
        for check in list(checks) if batch is not None else ():
            assert batch is not None
            try:
                check(shard, batch, wanted)
            except (CorpusError, SpecialTokenError) as error:
                seen.wrong.append(error)
                checks.remove(check)  # one error of a kind is enough
        if column is not None and not is_column_found:
            why = _why_not_there(shard, column, wanted.limits)
            is_column_found = why is None
            without_language += [why] if why else []
        if seen.n_files >= _N_FILES_MIN and time.monotonic() > end_s:
            break
    if not is_column_found and seen.n_files == len(shards) > 0:
        seen.wrong.append(
            ParamsError(
                "validate.language_column",
                f"{column!r} was found in no file ({without_language[0]}).",
                "Name the column or key that holds a document's language, or set it to null.",
            )
        )
    if (of_all := bad.error()) is not None:
        seen.wrong.insert(0, _of_one_file(of_all, seen.looked))
    seen.left_out = bad.left_out
    return seen


def _of_one_file(error: CorpusError, looked: Sequence[tuple[Shard, str | None]]) -> CorpusError:
    """The error; if one file lacks a column that all others of its source have, with advice for that file. `looked`: see
    FirstRows."""
    blamed = [shard for shard, setting in looked if setting is not None]
    others = [shard for shard, _ in looked if blamed and shard.source == blamed[0].source and shard is not blamed[0]]
    bad = [one for some in error.first.values() for one in some] if isinstance(error, BadInputError) else []
    if isinstance(error, ColumnError):
        bad = [Bad(error.words, setting=error.setting)]
    if len(blamed) != 1 or not others or len(bad) != 1 or bad[0].setting is None or " missing; " not in str(bad[0]):
        return error
    advice = (
        f"The other files that were looked at have it: rename it in {blamed[0].name}, or give this file a source of its own (see "
        "`sources`)."
    )
    return ColumnError(str(bad[0]), advice, bad[0].setting)


def _smaller(limits: Limits) -> Limits:
    """The limits, lowered to what a quick look may cost."""
    return replace(
        limits,
        document_bytes_max=min(limits.document_bytes_max or _DOCUMENT_BYTES_MAX, _DOCUMENT_BYTES_MAX),
        block_bytes_max=min(limits.block_bytes_max or _BLOCK_BYTES_MAX, _BLOCK_BYTES_MAX),
        batch_bytes=_BATCH_BYTES,
    )


class _BadRows:
    """Collects bad documents and files while reading. `left_out`: the first of each file that `source` lets pass."""

    def __init__(self, source: Source, wanted: Requirements) -> None:
        self._source, self._wanted = source, wanted
        self._n, self._is_all = 0, True
        self.setting: str | None = None  # for the last file, see FirstRows.looked
        self._n_here = 0  # bad ones in the present file, also those that may be left out
        self._shown: dict[str, list[Bad]] = {}
        self._alone: CorpusError | None = None  # the error to raise if there is only one
        self.left_out: list[Bad] = []

    def error(self) -> CorpusError | None:
        """One error for all bad documents; None if there is none."""
        return self._alone if self._n < 2 else BadInputError(self._n, self._shown, self._is_all)

    def first_batch(self, shard: Shard) -> Batch | None:
        """The first batch of good documents of a file, without those that are left out; None if there is none."""
        limits, leave_out = self._wanted.limits, leaving_out(self._wanted.filters, shard.name)
        n_before, n_read, self._n_here, self.setting = self._n, 0, 0, None
        first: Batch | None = None
        assert shard.source is not None
        reading = shard.source.reading_for_index(group_column(self._wanted.group_column))
        read = read_batches(shard, reading, on_bad=partial(self._found, shard), limits=limits, leave_out=leave_out)
        try:
            with closing(read):  # type: ignore[type-var]
                for batch in read:
                    n_read += 1
                    first = first or (batch if len(batch.texts) else None)
                    if self._n == n_before and first is not None:
                        break
                    if n_read >= _N_BATCHES_MAX:
                        raise EnoughFound
        except EnoughFound:
            self._is_all = False
        except PassingError:
            return None  # the build retries
        except ColumnError as error:
            self._add(shard, Bad(error.words, setting=error.setting), error)
        except CorpusError as error:
            if isinstance(error, DamagedError) and self._source.on_bad_shard == "quarantine":
                self.left_out.append(Bad(str(error)))
                self.setting = ""
            elif error.code != "TM206":
                self._add(shard, Bad(str(error)), error)
        if self._n == n_before + 1 and self._alone is None:
            self._alone = _alone(shard, reading, limits, leave_out)
        return first

    def _found(self, shard: Shard, bad: BadDocument) -> None:
        words = f"{shard.name}, {f'row {bad.row}' if bad.line is None else f'line {bad.line}'}: {bad.reason}"
        if self._source.on_bad_document == "fail":
            self._add(shard, Bad(words, setting=bad.setting), None)
        elif not self._n_here:
            self.left_out.append(Bad(words, setting=bad.setting))
        self.setting = self.setting or bad.setting or ""
        self._n_here += 1
        if self._n_here >= N_FOUND_MAX:
            raise EnoughFound

    def _add(self, shard: Shard, bad: Bad, error: CorpusError | None) -> None:
        self._n += 1
        self.setting = self.setting or bad.setting or ""
        self._alone = self._alone or error
        if shard.name in self._shown or len(self._shown) < N_LISTED_MAX:
            self._shown[shard.name] = joined(self._shown.get(shard.name, []), bad)[:N_LISTED_MAX]


def _alone(shard: Shard, reading: Reading, limits: Limits, leave_out: LeaveOut | None) -> CorpusError | None:
    """The error that a build raises for the first bad document of a file."""
    try:
        for _ in read_batches(shard, reading, limits=limits, leave_out=leave_out):
            pass
    except CorpusError as error:
        return error
    return None


def _check_chat(shard: Shard, batch: Batch, wanted: Requirements) -> None:
    """Raises CorpusError if the chat template refuses one of the first conversations."""
    if wanted.tokenizer is None or wanted.chat is None or batch.messages is None:
        return
    first = batch.slice(0, _N_ENCODED)
    _core.deadline(wanted.seconds_max)
    try:
        first = next(wanted.chat.samples(first)).slice(0, _N_ENCODED)
        check_encoding(wanted.tokenizer, wanted.chat, first, wanted.limits, partial(_place, shard, first))
        wanted.chat.encode_batch(first.messages)
    except ChatError as error:
        raise refused_in(wanted.chat, first, shard.name, error) from None
    except UnitTimeoutError as error:
        raise CorpusError(
            shard.name,
            f"its first conversations are not rendered after {wanted.seconds_max:g} s.",
            "Look for a loop in the chat template that does not end, or raise run.unit_timeout_s.",
            code=error.code,
        ) from None
    finally:
        _core.deadline(None)


def _check_rejected(shard: Shard, batch: Batch, wanted: Requirements) -> None:
    """Raises SpecialTokenError if one of the first texts has a special token that the source rejects."""
    if wanted.tokenizer is None or shard.source is None or shard.source.special_tokens_in_text != "reject":
        return
    if batch.messages is not None:
        return
    check_encoding(wanted.tokenizer, None, batch, wanted.limits, partial(_place, shard, batch))
    try:
        wanted.tokenizer.encode_batch(batch.texts, threads=1, special="reject")
    except SpecialTokenError as error:
        row = batch.rows()[error.index].as_py()
        raise SpecialTokenError(row, error.byte_offset, error.token, _place(shard, batch, error.index)) from None


def _place(shard: Shard, batch: Batch, i: int) -> str:
    return f"{shard.name}, row {batch.rows()[i].as_py()}"


def _why_not_there(shard: Shard, column: str, limits: Limits) -> str | None:
    """Says why the first documents of a file have no value in a column; None if one has a value or reading fails."""
    source, reasons = shard.source, [f"{shard.name}: no document has a value there"]
    assert source is not None

    def on_bad(bad: BadDocument) -> None:
        reasons.append(f"{shard.name}: {bad.reason}")
        if len(reasons) > N_FOUND_MAX:
            raise EnoughFound

    if not shard.kind.has_columns:
        return f"{shard.name}: a text file has no columns"
    if source.reading.conversations is None and column == source.reading.text_column:
        return f"{shard.name}: it is the column of the documents"
    reading = replace(source.reading, id_column=None, columns=(Column(column, "validate.language_column"),))
    read = read_batches(shard, reading, on_bad=on_bad, limits=limits)
    try:
        with closing(read):  # type: ignore[type-var]
            for batch in read:
                if len(batch.texts):
                    return None
                break
    except EnoughFound:
        pass
    except ColumnError as error:
        return error.words
    except CorpusError:
        return None  # unknown
    return reasons[-1]
