"""Cuts conversations into samples: each begins with the conversation and ends with one trained message."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from tokenmill.chat.conversation import chosen, read_conversation
from tokenmill.config.chat_params import MaskRule
from tokenmill.corpus.limits import BATCH_BYTES
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests
from tokenmill.errors import ChatError

_CHARACTERS_MAX = 1_000_000_000
"""The limit of the characters of all samples of a conversation."""


class _RawMessages(msgspec.Struct):
    """A conversation whose messages keep their JSON."""

    messages: list[msgspec.Raw]
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    next: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_RawMessages)
_encode = msgspec.json.Encoder().encode


def samples_of(batch: Batch, mask: MaskRule, train_key: str | None, with_next: bool) -> Iterator[Batch]:
    """The samples of a batch of conversations, in batches of about 4 MB: one for each trained message, with the messages up to it.
    A conversation in which nothing is trained is one sample, whole. Samples have the id, row and digest of their conversation.
    `with_next`: a sample also has the message behind it, in the key `next`, whose marker ends the answer in some templates.

    Raises ChatError, with the conversation's number in `batch`, before the first batch."""
    assert batch.messages is not None
    texts = batch.messages.to_pylist()
    cuts = [_trained(text, mask, train_key, i) for i, text in enumerate(texts)]
    return _in_batches(batch, texts, cuts, with_next)


def _trained(text: str, mask: MaskRule, train_key: str | None, index: int) -> list[int]:
    """The numbers, from 0, of a conversation's trained messages."""
    messages = read_conversation(text, index).messages
    _, trained = chosen(messages, mask, train_key, index)
    if len(trained) * len(text) > _CHARACTERS_MAX:
        raise ChatError(
            index,
            f"turns: each makes a sample for each of its {len(trained):,} trained messages, of up to {len(text):,} characters; "
            f"allowed are {_CHARACTERS_MAX:,} for a conversation. Cut it, or set encode.chat.turns: together.",
        )
    return trained


def _in_batches(batch: Batch, texts: Sequence[str], cuts: Sequence[Sequence[int]], with_next: bool) -> Iterator[Batch]:
    """The samples in batches. Conversations of one sample each stay one batch, as they are without cutting."""
    most = max(BATCH_BYTES, sum(map(len, texts)))
    digests = text_digests(batch.messages)
    held: list[str] = []
    of: list[int] = []  # the conversation of each sample
    n_held = 0
    for i, (text, trained) in enumerate(zip(texts, cuts, strict=True)):
        for sample in _samples(text, trained, with_next):
            if held and n_held + len(sample) > most:
                yield _batch(batch, held, of, digests)
                held, of, n_held = [], [], 0
            held.append(sample)
            of.append(i)
            n_held += len(sample)
    if held:
        yield _batch(batch, held, of, digests)


def _samples(text: str, trained: Sequence[int], with_next: bool) -> Iterator[str]:
    """The canonical JSON of each sample of a conversation.

    >>> list(_samples('{"messages":[{"n":0},{"n":1},{"n":2}],"tools":[]}', [1], False))
    ['{"messages":[{"n":0},{"n":1}],"tools":[]}']
    """
    if not trained:
        yield text
        return
    whole = _decoder.decode(text)
    for i in trained:
        behind = whole.messages[i + 1] if with_next and i + 1 < len(whole.messages) else msgspec.UNSET
        yield _encode(_RawMessages(whole.messages[: i + 1], whole.tools, behind)).decode()


def _batch(batch: Batch, samples: list[str], of: list[int], digests: pa.FixedSizeBinaryArray) -> Batch:
    """A batch of samples. `of`: the number of the conversation of each. `digests`: those of the conversations."""
    numbers = pa.array(of, pa.int64())
    messages = pa.array(samples, pa.large_string())
    texts = pa.nulls(len(batch.texts), pa.large_string())  # a sample's text is known when it is rendered
    rest = replace(batch, file_bytes=0, texts=texts, messages=None, positions=batch.rows(), digests=digests)
    rest = rest.each(lambda array: array.take(numbers))
    return replace(rest, first_row=rest.rows()[0].as_py(), texts=messages, messages=messages)
