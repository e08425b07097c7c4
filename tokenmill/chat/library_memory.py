"""Refuses documents for which the tokenizers library would take more memory than a worker has."""

from collections.abc import Callable

from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.errors import CorpusError
from tokenmill.tokenizer.tokenizer import Tokenizer


def check_encoding(
    tokenizer: Tokenizer, chat: ChatEncoder | None, batch: Batch, limits: Limits, place: Callable[[int], str]
) -> None:
    """Raises CorpusError for a document of a batch for which the tokenizers library would take too much memory: where it encodes,
    and for the masks of conversations. `chat`: the encoder of conversations; None for texts. `place`: gives the name of a document
    by its number in the batch."""
    most, with_spans = limits.encoding_bytes_max, chat is not None and chat.asks_spans
    if most is None or not tokenizer.asks_library(with_spans):
        return
    for i, text in enumerate(batch.digested):
        if (n_bytes := tokenizer.memory_bytes(text.as_py(), most, with_spans)) > most:
            raise CorpusError(
                place(i),
                f"to encode this document the tokenizers library takes about {n_bytes / 1e6:,.0f} MB of memory; "
                f"run.memory_mb_max leaves {most / 1e6:,.0f} MB to a worker for one.",
                "Raise run.memory_mb_max, lower run.workers, or cut the document.",
                code="TM206",
            )
