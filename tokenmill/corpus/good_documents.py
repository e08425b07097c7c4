"""Reads the good documents of a unit, and tells what is bad or left out."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from tokenmill.config.source_params import Source
from tokenmill.config.sources import Reading
from tokenmill.console import Advance
from tokenmill.corpus.bad_documents import (
    N_FOUND_MAX,
    N_LISTED_MAX,
    Bad,
    BadDocument,
    BadInputError,
    ColumnError,
    EnoughFound,
    PieceDamagedError,
    joined,
)
from tokenmill.corpus.dropped import UnitDropped
from tokenmill.corpus.filter import Filters, leaving_out, left_out
from tokenmill.corpus.formats import text_beside
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.reader import BESIDE_BYTES_MAX, Batch, put_together, read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.small_texts import small_text
from tokenmill.corpus.units import Piece, Unit
from tokenmill.errors import CorpusError, DamagedError, PassingError, UnitTimeoutError
from tokenmill.process_memory import give_memory_back

_JOINED_BYTES = 1 << 20  # of text in batches that are put together
_ROW_BYTES = 256  # of a bad document, without its bytes
_BYTES_TO_GIVE_BACK = 64_000_000  # of text that has been read


class _Together:
    """Puts small batches of a unit together, because each costs the stages as much as thousands of documents. Each function returns
    the batches that are complete."""

    def __init__(self, unit: Unit, reading: Reading) -> None:
        self._unit, self._reading = unit, reading
        self._texts: list[tuple[int, str]] = []
        self._held: list[Batch] = []
        self._n_bytes = self._n_beside = 0  # of both; of what is beside the documents of files that have more than one

    def add(self, piece: int, batch: Batch) -> Sequence[Batch]:
        """Adds a batch of the piece with this index."""
        is_full = self._n_bytes + batch.text_bytes > _JOINED_BYTES
        is_full |= self._n_beside + batch.beside_bytes > BESIDE_BYTES_MAX
        before = self.rest() if is_full else []
        self._hold_texts()
        self._held.append(replace(batch, pieces=pa.repeat(pa.scalar(piece, pa.int32()), len(batch.texts))))
        self._n_bytes, self._n_beside = self._n_bytes + batch.text_bytes, self._n_beside + batch.beside_bytes
        return before

    def add_text(self, piece: int, text: str) -> Sequence[Batch]:
        """Adds the text of a file that is one document."""
        before = self.rest() if self._n_bytes + len(text) > _JOINED_BYTES else []
        self._texts.append((piece, text))
        self._n_bytes += len(text)
        return before

    def rest(self) -> Sequence[Batch]:
        """Gives what was added since the last batch that was complete."""
        self._hold_texts()
        held, self._held, self._n_bytes, self._n_beside = self._held, [], 0, 0
        return [put_together(held)] if held else []

    def _hold_texts(self) -> None:
        if not self._texts:
            return
        self._held.append(self.batch_of(self._texts))
        self._texts = []

    def batch_of(self, texts: Sequence[tuple[int, str]]) -> Batch:
        """The texts of files that are one document each, with the indices of their pieces."""
        pieces, texts = zip(*texts, strict=True)
        shards = [self._unit.pieces[i].shard for i in pieces]
        ids, *_ = *text_beside(shards[0], self._reading, [shard.id_of(0, is_whole=True) for shard in shards]), None
        file_bytes, rows = sum(shard.n_bytes for shard in shards), pa.array([0] * len(pieces), pa.int64())
        array = pa.array(texts, pa.large_string())
        return Batch(0, array, ids, file_bytes, rows, pieces=pa.array(pieces, pa.int32()))


class GoodDocuments:
    """The good documents of a unit. Iterating gives batches, in which the documents of small files are together. `left` collects
    the bad documents and damaged pieces that were left out so far, if `source` allows that. `dropped` collects the documents that
    `filters` leave out, in the `folder` of the unit; without a folder, only their numbers. `reading`: how documents are read; None:
    as the unit's source says.

    Pieces that are marked as damaged are skipped. `advance` is called with the file bytes of each finished batch. Iterating
    raises PieceDamagedError for a newly found damaged piece, and CorpusError for anything that `source` does not let pass.
    """

    def __init__(
        self,
        unit: Unit,
        source: Source,
        limits: Limits,
        advance: Advance,
        filters: Filters,
        reading: Reading | None = None,
        folder: Path | None = None,
    ) -> None:
        self.left: list[BadDocument] = []
        self.dropped: UnitDropped = UnitDropped(len(unit.pieces), folder)
        self.unit = unit
        self._source = source
        self._limits = limits
        self._advance = advance
        self._filters = filters
        self._reading = reading or unit.source.reading
        self._n_bytes = 0  # of text since memory was given back
        self._n_held = 0  # of bytes of bad documents

    def __iter__(self) -> Iterator[Batch]:
        source, reading, together = self._source, self._reading, _Together(self.unit, self._reading)
        for i, piece in enumerate(self.unit.pieces):
            text = small_text(piece, reading, self._limits)
            if text is not None:
                if self._filters and self._left_out(i, piece, together.batch_of([(i, text)])):
                    self._advance(piece.shard.n_bytes, 0)
                else:
                    yield from self._given(together.add_text(i, text))
                continue
            if piece.damage is not None:
                self.left.append(BadDocument(None, None, piece.damage, None, i))
                continue
            on_bad = partial(self._leave, i, piece) if source.on_bad_document == "quarantine" else None
            leave_out = partial(self._left_out, i, piece) if self._filters else None
            try:
                for batch in read_batches(piece.shard, reading, piece.part, on_bad, self._limits, leave_out):
                    yield from self._given(together.add(i, batch))
            except PassingError:
                raise
            except CorpusError as error:
                if not isinstance(error, DamagedError) or source.on_bad_shard == "fail":
                    raise self._error_with_all_bad(i, error) from None
                reason = str(error).removeprefix(f"{piece.shard.name}: ")
                raise PieceDamagedError(str(error), self.unit.without({i: reason})) from None
        yield from self._given(together.rest())
        self.dropped.close()

    def _given(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        """Gives the batches, and says of each that it is finished once the next is asked for."""
        for batch in batches:
            yield batch
            self._n_bytes += batch.text_bytes
            if self._n_bytes >= _BYTES_TO_GIVE_BACK:
                self._n_bytes = 0
                give_memory_back()
            self._advance(batch.file_bytes, 0)

    def _error_with_all_bad(self, first: int, error: CorpusError) -> CorpusError:
        """Gives `error`, or a BadInputError if more is bad from the piece with the index `first` on.

        Reads the rest of the unit only to list what is bad. Stops early in a file with very many bad documents, since a wrong
        text_column makes all bad.
        """
        source, reading = self._source, self._reading
        n = 0
        shown: dict[str, list[Bad]] = {}
        is_all = True

        def add(name: str, words: str, setting: str | None) -> None:
            nonlocal n
            n += 1
            if name in shown or len(shown) < N_LISTED_MAX:
                shown[name] = joined(shown.get(name, []), Bad(words, setting=setting))[:N_LISTED_MAX]

        for piece in self.unit.pieces[first:]:
            n_before = n

            def on_bad(bad: BadDocument, piece: Piece = piece, n_before: int = n_before) -> None:
                if source.on_bad_document == "fail":
                    add(piece.shard.name, f"{piece.shard.name}, {bad.place}: {bad.reason}", bad.setting)
                if n - n_before >= N_FOUND_MAX:
                    raise EnoughFound

            try:
                if piece.damage is None:
                    leave_out = leaving_out(self._filters, piece.shard.name)
                    deque(read_batches(piece.shard, reading, piece.part, on_bad, self._limits, leave_out), maxlen=0)
            except (EnoughFound, PassingError, UnitTimeoutError):
                is_all = False  # the error found before matters more than the time limit
            except ColumnError as other:
                add(piece.shard.name, other.words, other.setting)
            except CorpusError as other:
                if not isinstance(other, DamagedError) or source.on_bad_shard == "fail":
                    add(piece.shard.name, str(other), None)
        return error if n < 2 else BadInputError(n, shown, is_all)

    def _left_out(self, i: int, piece: Piece, batch: Batch) -> list[int]:
        """The documents of a batch that filters leave out, by their index."""
        left = left_out(self._filters, piece.shard.name, batch)
        if left:
            self.dropped.add(i, piece.first_row, batch, left)
        return list(left)

    def _leave(self, i: int, piece: Piece, bad: BadDocument) -> None:
        """Holds a bad document to the end of the unit. Raises CorpusError if they take too many bytes."""
        self._n_held += _ROW_BYTES + len(bad.raw or b"") + len(bad.reason)
        self._limits.check_held(self._n_held, f"{piece.shard.name}, {bad.place}")
        self.left.append(bad.moved(-piece.first_row, -piece.first_line, i))


def good_batches(shard: Shard, source: Source, filters: Filters, limits: Limits = UNBOUNDED) -> Iterator[Batch]:
    """The shard's good documents, for statistics, without those that filters leave out.

    Skips bad documents if `source` allows that, and ends where the shard is damaged. Raises CorpusError for anything that `source`
    does not let pass."""
    try:
        unit = Unit(shard.name, "", (Piece(shard, None, ""),))
        yield from GoodDocuments(unit, source, limits, lambda _bytes, _tokens: None, filters)
    except PieceDamagedError:
        return
