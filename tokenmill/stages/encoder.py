"""encode: the tokenizers of a build, each with how it encodes a document."""

from pathlib import Path
from typing import NamedTuple

from tokenmill.artifacts.golden import checked_tokenizer
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.config.chat_params import Turns
from tokenmill.config.encode_params import Encode
from tokenmill.dataset.entries import ChatEntry
from tokenmill.errors import ParamsError
from tokenmill.layout import TOKENIZER_DIRECTORY
from tokenmill.special_tokens import listed
from tokenmill.stages.encode_chat import chat_encoder, chat_entry
from tokenmill.tokenizer.tokenizer import Tokenizer


class Encoder(NamedTuple):
    """A tokenizer and how it encodes. `begin_id`, `end_id`: the ids around each document, or None. `entry`, `chat`: the chat
    template and its encoder; None for texts."""

    tokenizer: Tokenizer
    begin_id: int | None
    end_id: int | None
    entry: ChatEntry | None = None
    chat: ChatEncoder | None = None

    @property
    def turns(self) -> Turns | None:
        """encode.chat.turns; None for texts."""
        return None if self.entry is None else self.entry.turns


def read_encoders(root: Path, params: Encode, cache_mb_max: int) -> tuple[Encoder, dict[int, Encoder]]:
    """Reads the tokenizer in data/tokenizer and those of encode.vocab_sizes, and gives the encoder of each. `cache_mb_max`: the
    limit of all their caches together. Raises ParamsError, TokenizerError."""
    cache_mb = cache_mb_max // (1 + len(params.vocab_sizes))
    tokenizer = checked_tokenizer(root / TOKENIZER_DIRECTORY, cache_mb)
    entry = None if params.chat is None else chat_entry(root, params.chat)
    sizes = sorted(params.vocab_sizes)
    others = {size: encoder_of(_read_size(root, size, cache_mb), params, entry) for size in sizes}
    return encoder_of(tokenizer, params, entry), others


def encoder_of(tokenizer: Tokenizer, params: Encode, entry: ChatEntry | None) -> Encoder:
    """The encoder of a tokenizer. Raises ParamsError if the tokenizer lacks a special token of `params`, and TemplateError."""
    begin_id = special_id(tokenizer, "begin_of_document", params.begin_of_document)
    end_id = special_id(tokenizer, "end_of_document", params.end_of_document)
    return Encoder(tokenizer, begin_id, end_id, entry, None if entry is None else chat_encoder(tokenizer, entry))


def _read_size(root: Path, size: int, cache_mb: int) -> Tokenizer:
    """The trained tokenizer of that vocabulary size. Raises ParamsError if there is none."""
    folder = root / TOKENIZER_DIRECTORY / str(size)
    if not folder.is_dir():
        raise no_such_size(size)
    return Tokenizer.load(folder, cache_mb_max=cache_mb).shared_in(folder)


def no_such_size(size: int) -> ParamsError:
    """The error for one of encode.vocab_sizes that was not trained."""
    return ParamsError(
        "encode.vocab_sizes",
        f"found {size}; allowed: sizes of train_vocab.vocab_sizes, whose tokenizers are in {TOKENIZER_DIRECTORY}.",
        f"Add {size} to train_vocab.vocab_sizes, or take it out here.",
    )


def special_id(tokenizer: Tokenizer, key: str, text: str | None) -> int | None:
    """The id of a special token that `encode.KEY` names; None for no token. Raises ParamsError if the tokenizer lacks it."""
    if text is None or text in tokenizer.special_tokens:
        return None if text is None else tokenizer.special_tokens[text]
    raise ParamsError(
        f"encode.{key}",
        f"found {text!r}; allowed: one of the tokenizer's special tokens ({listed(tokenizer.special_tokens)}), or "
        "null.",
    )
