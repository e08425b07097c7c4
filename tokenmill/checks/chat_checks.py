"""Checks that the rows of conversations match their messages: ids, loss masks, texts and digests."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.checks.findings import WrongRowError
from tokenmill.checks.spans import Span, all_equal, same_ids
from tokenmill.corpus.reader import Batch, digests_of
from tokenmill.errors import ChatError


def check_mask(span: Span) -> None:
    """Checks that each row has a mask as long as its ids, of 0 and 1. Raises WrongRowError with the first wrong row."""
    mask = span.tokens["loss_mask"]
    lengths = pc.list_value_length(span.tokens["input_ids"])
    all_equal(span, pc.list_value_length(mask), lengths, "length of loss_mask")
    values = mask.flatten()
    if len(values) and (pc.max(values).as_py() > 1 or pc.min(values).as_py() < 0):
        i, found = next((i, one) for i, one in enumerate(_lists(mask)) if not set(one) <= {0, 1})
        wrong = next(one for one in found if one not in (0, 1))
        raise span.wrong(i, f"loss_mask: expected 0 or 1; found {wrong}.")


def check_conversations(span: Span, chat: ChatEncoder) -> Span:
    """Encodes each conversation again and compares ids, mask and digest. Returns the span with the rendered texts and the counts of
    answers. Raises WrongRowError with the first wrong row."""
    messages, tokens = span.documents.messages, span.tokens
    if messages is None:
        raise span.wrong(0, "the dataset holds conversations; the input file was read as texts.")
    try:
        expected = chat.encode_batch(messages)
    except ChatError as error:
        raise span.wrong(error.index, f"the conversation cannot be encoded: {error}") from None
    if not tokens["input_ids"].equals(_as_in(tokens, expected.input_ids, "input_ids")):
        for i, (found, right) in enumerate(zip(_lists(tokens["input_ids"]), _lists(expected.input_ids), strict=True)):
            same_ids(span, i, found, right, "those of encoding the conversation again")
    if not tokens["loss_mask"].equals(_as_in(tokens, expected.loss_mask, "loss_mask")):
        for i, (found, right) in enumerate(zip(_lists(tokens["loss_mask"]), _lists(expected.loss_mask), strict=True)):
            if found != right:
                at = next((k for k, (a, b) in enumerate(zip(found, right, strict=False)) if a != b), len(right))
                words = f"found {found[at : at + 5]}, expected {right[at : at + 5]}"
                raise span.wrong(i, f"loss_mask from token {at} on: {words}.")
    all_equal(span, tokens["sha256"].cast(pa.binary()), digests_of(span.documents).cast(pa.binary()), "sha256")
    return replace(span, documents=replace(span.documents, texts=expected.texts), answers=expected.counts)


def samples_in(documents: Iterable[Batch], shards: Sequence[str], chat: ChatEncoder) -> Iterator[Batch]:
    """The samples of conversations that the rows of a file must be (see ChatEncoder.samples). `shards`: the shard of each piece of
    their unit. Raises WrongRowError."""
    for batch in documents:
        try:
            yield from chat.samples(batch)
        except ChatError as error:
            shard, row = shards[batch.piece(error.index)], batch.rows()[error.index].as_py()
            raise WrongRowError(shard, row, f"the conversation cannot be encoded: {error}") from None


def _as_in(tokens: pa.RecordBatch, lists: pa.LargeListArray, name: str) -> pa.ListArray | None:
    """Casts the lists to the type of a column; None if a value does not fit."""
    try:
        return lists.cast(tokens.schema.field(name).type)
    except pa.ArrowInvalid:
        return None


def _lists(lists: pa.ListArray) -> Iterator[list[int]]:
    return (one.as_py() for one in lists)
