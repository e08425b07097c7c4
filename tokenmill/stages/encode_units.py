"""encode, first half: the documents of a unit → their tokens, with a document index and token counts."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.chat.isolated import Request
from tokenmill.chat.library_memory import check_encoding
from tokenmill.config.chat_params import StopToken
from tokenmill.config.encode_params import Encode
from tokenmill.config.source_params import Source
from tokenmill.console import Advance
from tokenmill.corpus.filter import Filters, as_key
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import left_out, piece_bad, write_left
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.group_keys import Groups, group_column, groups_read
from tokenmill.dataset.kept_columns import KeptColumns, kept_of
from tokenmill.dataset.tables import UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.errors import ChatError, SpecialTokenError
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.unit_content import content
from tokenmill.rounds import Task
from tokenmill.stages.encode_chat import check_stopped, is_sure
from tokenmill.stages.encoder import Encoder
from tokenmill.stages.refusals import refused_in
from tokenmill.storage.unit_store import unit_key


class _ToEncode(NamedTuple):
    """A batch to encode. `rendering`: that of its conversations, which a process does; None if its documents are texts."""

    batch: Batch
    rendering: Request | None


class EncodeTask(Task[EncodeFacts], frozen=True, kw_only=True):
    """Encodes one unit into a file, with its document index and token counts.

    `filters`: say which documents are left out. `group_column`: the column whose value decides a document's split, or None.
    `stop_token`: encode.chat.stop_token; None without chat.
    """

    encoder: Encoder
    source: Source
    filters: Filters
    group_column: str | None
    stop_token: StopToken | None
    limits: Limits

    def run(self, folder: Path, advance: Advance) -> EncodeFacts:
        """Writes the unit's files (see Task)."""
        assert self.unit is not None
        group = group_column(self.group_column)
        reading = self.unit.source.reading_for_index(group)
        documents = GoodDocuments(self.unit, self.source, self.limits, advance, self.filters, reading, folder)
        piece_documents = np.zeros(len(self.unit.pieces), np.int64)
        if self.encoder.chat is not None:
            self.encoder.chat.hold_to(self.limits)
        files = UnitFiles(self.unit, self.encoder, folder, self.limits)
        with ExitStack() as stack:
            files.open(stack, groups_read(group), kept_of(self.unit))
            for request in stack.enter_context(closing(self._requests(documents, piece_documents))):
                with self._naming(request.batch):
                    n_tokens = files.add(request.batch, request.rendering)
                advance(0, n_tokens)
        if files.answers is not None and is_sure(self.stop_token, files.answers):
            check_stopped(files.encoder.chat, self.stop_token, files.answers)  # fails before other units
        return files.finish(documents, piece_documents.tolist())

    def _requests(
        self, documents: Iterable[Batch], piece_documents: np.ndarray[Any, np.dtype[np.int64]]
    ) -> Generator[_ToEncode]:
        """The batches to encode, each with what is asked of the chat encoder: of conversations, the next batch is read and
        rendered while one is encoded. Adds the numbers of documents to `piece_documents`."""
        chat = self.encoder.chat
        held: _ToEncode | None = None
        try:
            for batch in documents:
                piece_documents += batch.n_by_piece(len(piece_documents))
                if chat is None:
                    yield _ToEncode(batch, None)
                    continue
                with self._naming(batch):
                    samples = chat.samples(batch)
                for part in samples:
                    assert part.messages is not None
                    before = held
                    if before is not None and before.rendering is not None and not before.rendering.wait():
                        yield before  # its process has more to render, and is asked for these afterwards
                        before = None
                    with self._naming(part):
                        held = _ToEncode(part, chat.ask(part.messages, self.limits.rendering_bytes_max))
                    if before is not None:
                        yield before
            if held is not None:
                yield held
        finally:
            if held is not None and held.rendering is not None:
                held.rendering.close()

    @contextmanager
    def _naming(self, batch: Batch) -> Iterator[None]:
        """Makes errors of the block name the document of the batch."""
        assert self.unit is not None
        try:
            yield
        except (SpecialTokenError, ChatError) as error:
            name, row = self.unit.pieces[batch.piece(error.index)].shard.name, batch.rows()[error.index].as_py()
            if isinstance(error, SpecialTokenError):
                raise SpecialTokenError(row, error.byte_offset, error.token, f"{name}, row {row}") from None
            assert self.encoder.chat is not None
            raise refused_in(self.encoder.chat, batch, name, error) from None


class UnitFiles:
    """The files of one unit under one encoder, while they are written."""

    def __init__(self, unit: Unit, encoder: Encoder, folder: Path, limits: Limits) -> None:
        self.encoder: Encoder = encoder
        self._limits = limits
        self._unit, self._folder = unit, folder
        has_names, has_mask = unit.source.reading.id_column is not None, encoder.chat is not None
        self.n_tokens: int = 0
        self._piece_rows = np.zeros(len(unit.pieces), np.int64)
        self.text_bytes: int = 0
        self.n_trained = 0 if has_mask else None
        self.answers = AnswerCounts() if has_mask else None
        self._special = unit.source.special_tokens_in_text
        self._shape = schema(id_type(encoder.tokenizer.id_max), has_names, has_mask)
        self._counts = TokenCounts(encoder.tokenizer.id_max)
        self._digest = TokensDigest()

    def open(self, stack: ExitStack, group_keys: Groups | None, kept: KeptColumns | None) -> None:
        """Opens the files, which end with `stack`."""
        first_rows = [piece.first_row for piece in self._unit.pieces]
        has_names, has_mask = self._unit.source.reading.id_column is not None, self.answers is not None
        self._write = stack.enter_context(write_tokens(self._folder / TOKENS_FILE, self._shape))
        self._add = stack.enter_context(
            unit_index(self._folder / UNIT_INDEX_FILE, first_rows, has_names, group_keys, has_mask, kept)
        )

    def add(self, batch: Batch, request: Request | None = None) -> int:
        """Encodes a batch of documents or samples, and gives the number of tokens. `request`: what `ChatEncoder.ask` gave for it;
        None: nobody has asked. Raises SpecialTokenError, ChatError."""
        return sum(self._add_part(*part) for part in self._encoded(batch, request))

    def _add_part(self, batch: Batch, input_ids: pa.LargeListArray, loss_mask: pa.LargeListArray | None) -> int:
        """Adds what is encoded, and gives the number of tokens."""
        self._limits.check_process(self._place(batch, 0))
        self._counts.add(input_ids.values)
        n_tokens = len(input_ids.values)
        self._piece_rows += batch.n_by_piece(len(self._piece_rows))
        self.n_tokens += n_tokens
        self.text_bytes += batch.text_bytes
        if self.n_trained is not None and loss_mask is not None:
            self.n_trained += pc.sum(loss_mask.values).as_py() or 0
        encoded_rows = rows(batch, input_ids, self._shape, loss_mask)
        del input_ids, loss_mask  # of a long document they take much memory, and so does writing it
        self._write(encoded_rows)
        self._add(batch, encoded_rows)
        self._digest.add(encoded_rows)
        return n_tokens

    def _encoded(
        self, batch: Batch, request: Request | None
    ) -> Iterator[tuple[Batch, pa.LargeListArray, pa.LargeListArray | None]]:
        """The documents of the batch, usually all at once, with the texts that were encoded, their ids, and the loss masks of
        conversations."""
        encoder = self.encoder
        check_encoding(encoder.tokenizer, encoder.chat, batch, self._limits, partial(self._place, batch))
        if encoder.chat is None:
            ids = encoder.tokenizer.encode_batch(
                batch.texts, threads=1, begin_id=encoder.begin_id, end_id=encoder.end_id, special=self._special
            )
            yield batch, ids, None
            return
        assert batch.messages is not None
        start = 0
        with closing(request or encoder.chat.ask(batch.messages, self._limits.rendering_bytes_max)) as rendering:
            for encoded in encoder.chat.encode(rendering):
                self.answers = added([self.answers or AnswerCounts(), encoded.counts])
                part = batch.slice(start, len(encoded.texts))
                start += len(encoded.texts)
                yield replace(part, texts=encoded.texts), encoded.input_ids, encoded.loss_mask

    def _place(self, batch: Batch, i: int) -> str:
        """Names a document of a batch; none for one without documents."""
        if not len(batch.texts):
            return ""
        return f"{self._unit.pieces[batch.piece(i)].shard.name}, row {batch.rows()[i].as_py()}"

    def finish(self, documents: GoodDocuments, piece_documents: list[int]) -> EncodeFacts:
        """Writes the token counts and the quarantine, which are complete after the last batch, and gives the facts of the unit.
        `piece_documents`: the numbers of its documents per piece."""
        has_samples = self.encoder.entry is not None and self.encoder.entry.turns == "each"
        self._counts.write(self._folder / UNIT_COUNTS_FILE)
        write_left(documents.left, self._folder)
        return EncodeFacts(
            piece_documents=piece_documents,
            piece_bad=piece_bad(self._unit, documents.left),
            piece_dropped=documents.dropped.n_by_piece,
            reasons=dict(sorted(documents.dropped.reasons.items())),
            left=left_out(documents.left),
            n_tokens=self.n_tokens,
            text_bytes=self.text_bytes,
            tokens_sha256=self._digest.hex(),
            n_trained=self.n_trained,
            answers=self.answers,
            piece_samples=self._piece_rows.tolist() if has_samples else None,
        )


def encode_keys(
    units: Sequence[Unit],
    params: Encode,
    encoder: Encoder,
    filters: Mapping[str, Filters],
) -> dict[str, str]:
    """Each unit's key in the unit store, by unit name. `filters`: those of each unit."""
    decides = {
        "code": code_digest("encode"),
        "tokenizer": encoder.tokenizer.digest,
        "engine": encoder.tokenizer.engine,
        "framing": (encoder.begin_id, encoder.end_id),
        "group": params.split_group,
        **({} if encoder.entry is None else {"chat": encoder.entry.encoding}),
    }
    return {
        unit.name: unit_key(
            stage="encode",
            content=content(unit, with_rows=unit.source.reading.id_column is None),  # a document's id is its row then
            special=unit.source.special_tokens_in_text,
            source=unit.source.reading.as_key(),
            **({"keep": unit.source.keep_columns} if unit.source.keep_columns else {}),
            **as_key(filters[unit.name]),
            **decides,
        )
        for unit in units
    }
