"""The section encode of params.yaml: the dataset and its files for training jobs."""

import warnings
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.chat_params import Chat
from tokenmill.config.record import as_yaml
from tokenmill.config.section import Section, key
from tokenmill.config.source_params import SourceName
from tokenmill.config.sources import DocumentSource
from tokenmill.errors import TokenmillDeprecationWarning
from tokenmill.format_facts import FORMATS
from tokenmill.layout import TOKENIZER_DIRECTORY, hub_split
from tokenmill.special_tokens import SpecialTokensInText

SplitName = SourceName
_SPLITS_MAX = 100
_SHARES_OFF_MAX = 1e-9  # the allowed error of the sum of shares, since 0.98 + 0.01 + 0.01 is not 1 in floating point


def is_format(name: str) -> str:
    """The name of a format. Raises ValueError for any other."""
    if name not in FORMATS:
        raise ValueError(f"found {name!r}; allowed: {', '.join(map(repr, FORMATS))}")
    return name


def _special_or_null(token: str | None, info: ValidationInfo) -> str | None:
    special = (info.context or {}).get("special_tokens")
    if token is not None and special is not None and token not in special:
        raise ValueError(f"found {token!r}; allowed: one of train_vocab.special_tokens {special}, or null")
    return token


class Shuffle(Section):
    """The order of documents, or of packed sequences, in the files."""

    seed: int = key(..., "the number that decides the order", "0", ge=0, lt=2**63)
    epochs: int = key(1, "the number of epochs, each of which has files in an order of its own", "3", ge=1)


class Pack(Section):
    """How documents are packed into sequences of one length, and what happens to longer documents."""

    length: int = key(..., "the tokens of a sequence", "2048", ge=2, lt=2**31)
    mode: Literal["none", "concat", "best_fit"] = key(
        ...,
        "best_fit: whole documents in as few sequences as it finds. concat: one after the other, cut wherever a sequence ends. "
        "none: a sequence for each document",
        "best_fit",
    )
    long: Literal["split", "cut", "drop"] = key(
        "split", "documents over the length: split into several sequences, cut at the length, or dropped", "cut"
    )
    output: Literal["rows", "index"] = key(
        "rows", "rows: a row for each sequence. index: which tokens make a sequence, beside the documents", "index"
    )
    pad: str | None = key(
        None,
        "the special token that fills sequences up, which formats need with best_fit and none if their readers forget where "
        "sequences end; null: none",
        '"<|endoftext|>"',
        min_length=1,
    )
    labels: bool = key(
        False,
        "whether rows have the columns labels, the ids with -100 where nothing is to be learned, position_ids and seq_lengths",
        "true",
    )

    @field_validator("long")
    @classmethod
    def _splits_what_is_joined(cls, long: str, info: ValidationInfo) -> str:
        if info.data.get("mode") == "concat" and long != "split":
            raise ValueError(
                f"found {long!r} with mode: concat; allowed: 'split', since concat cuts wherever a sequence ends"
            )
        return long

    @field_validator("pad", "labels")
    @classmethod
    def _only_in_rows(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("output") == "index":
            raise ValueError(
                f"found {as_yaml(value)} with output: index; allowed: with output: rows, since an index has no tokens"
            )
        return _special_or_null(value, info) if isinstance(value, str) else value


class Encode(Section):
    """The files of the token dataset: their formats, splits and order, and the special tokens in them."""

    formats: list[Annotated[str, AfterValidator(is_format)]] = key(
        ["parquet"],
        "the formats to write, each in a folder of data/tokens. The documents' tokens are kept as Parquet in any case, one file "
        "for each unit. olmo_sft needs conversations; megatron_sft, megatron_sft_parquet and trl_dpo (pairs) need them packed",
        "[parquet, megatron]",
        min_length=1,
    )
    file_bytes: int | None = key(
        None,
        "the approximate size of a format's files, in bytes of token ids; null: the size that its readers prefer: 64 MiB for "
        "litdata and mds, 200 MB for llmc, 1 GiB for the others, and the smallest of these for several formats. nanogpt has one "
        "file for each split, whatever the size",
        "268435456",
        ge=1 << 16,
        le=1 << 40,
    )
    min_parts: int | None = key(
        None,
        "the least number of files of each set, as many as ranks times workers of a job that gives each of them files of its own; "
        "null: file_bytes alone decides. Items and their order stay as they are",
        "64",
        ge=1,
        le=1 << 16,
    )
    splits: dict[SplitName, Annotated[float, Field(gt=0, le=1)]] = key(
        {},
        "shares of the documents; {}: none. A document's text decides its split. So it stays there when documents are added, "
        "and equal texts stay together",
        "{train: 0.99, validation: 0.01}",
    )
    split_group: str | None = key(
        None,
        "the column or key whose value decides the split instead of the text; null: the text",
        "repo",
        min_length=1,
    )
    shuffle: Shuffle | None = key(None, "a random order of the whole split; null: the order of the input", "{seed: 0}")
    pack: Pack | None = key(
        None,
        "packed sequences; null: documents. Documents are split or joined to sequences of tokens of one length",
        "{length: 2048, mode: best_fit}",
    )
    vocab_sizes: list[Annotated[int, Field(gt=0)]] = key(
        [],
        "deprecated, make a project for each size: sizes of train_vocab.vocab_sizes, with whose tokenizers the documents are also "
        "encoded, into data/vocab_sizes/SIZE, which must be an output of encode in dvc.yaml, too",
        "[8192]",
    )
    begin_of_document: str | None = key(
        None, "the special token whose id begins every document; null: none", '"<|endoftext|>"'
    )
    end_of_document: str | None = key(
        "<|endoftext|>", "the special token whose id ends every document; null: none", "null"
    )
    special_tokens_in_text: SpecialTokensInText = key(
        "as_text",
        "a special token's text in a document becomes text (as_text), its id (allow) or an error (reject)",
        "reject",
    )
    chat: Chat | None = key(
        None,
        "for conversations; null: documents are texts. Makes text of their messages by a chat template, which data/tokenizer gets, "
        "too",
        "{template: chatml}",
    )

    def set_formats(self, sources: Iterable[DocumentSource]) -> list[str]:
        """The formats of the file sets. Parquet is left out if the documents' own files would equal its set: without splits,
        shuffle, packing, weights of sources, and a number of parts."""
        is_mixed = any((source.epochs, source.tokens) != (1.0, None) for source in sources)
        asked = (self.shuffle, self.pack, self.min_parts)
        is_arranged = bool(self.splits) or is_mixed or any(one is not None for one in asked)
        return [one for one in self.formats if one != "parquet" or is_arranged]

    @property
    def part_bytes(self) -> int:
        """How many bytes of token ids a part of a set has at most, unless one unit has more. All formats have the same parts, which
        `min_parts` cuts into further files."""
        if self.file_bytes is not None:
            return self.file_bytes
        return min(FORMATS[name].file_bytes for name in self.formats)

    @field_validator("formats", "vocab_sizes")
    @classmethod
    def _each_once(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) < len(values):
            raise ValueError(f"found {values}; allowed: each of them once")
        return values

    @field_validator("vocab_sizes")
    @classmethod
    def _warn_of_sizes(cls, sizes: list[int]) -> list[int]:
        if sizes:
            fix = f"Make a project for each size, with tokenizer: {{from: PROJECT/{TOKENIZER_DIRECTORY}/{sizes[0]}}}."
            warnings.warn(TokenmillDeprecationWarning("encode.vocab_sizes", "0.5.0", fix), stacklevel=2)
        return sizes

    @field_validator("splits")
    @classmethod
    def _shares_of_one(cls, splits: dict[str, float]) -> dict[str, float]:
        if splits and abs(sum(splits.values()) - 1) > _SHARES_OFF_MAX:
            raise ValueError(
                f"found shares that add up to {sum(splits.values()):g}; allowed: shares that add up to 1, or {{}}"
            )
        if {"val", "validation"} <= splits.keys():
            raise ValueError(
                "found both val and validation; allowed: one of them, since nanoGPT's file of either is val.bin"
            )
        for name in splits:
            same = [other for other in splits if hub_split(other) == hub_split(name)]
            if len(same) > 1:
                raise ValueError(
                    f"found {' and '.join(same)}; allowed: one of them, since both are {hub_split(name)} to `datasets`"
                )
        if len(splits) > _SPLITS_MAX:
            raise ValueError(f"found {len(splits)} splits; allowed: {_SPLITS_MAX} or less")
        return splits

    @field_validator("split_group")
    @classmethod
    def _only_with_splits(cls, group: str | None, info: ValidationInfo) -> str | None:
        if group is not None and info.data.get("splits") == {}:
            raise ValueError(f"found {group!r} without splits; allowed: with splits, or null")
        return group

    @property
    def framing(self) -> tuple[str | None, str | None]:
        """The special tokens that begin and end every document."""
        return self.begin_of_document, self.end_of_document

    @field_validator("begin_of_document", "end_of_document")
    @classmethod
    def _is_special(cls, token: str | None, info: ValidationInfo) -> str | None:
        return _special_or_null(token, info)

    @field_validator("chat")
    @classmethod
    def _template_says_all(cls, chat: Chat | None, info: ValidationInfo) -> Chat | None:
        around = [key for key in ("begin_of_document", "end_of_document") if info.data.get(key) is not None]
        if chat is not None and around:
            raise ValueError(
                f"found together with {around[0]}: {info.data[around[0]]!r}; allowed: only with {' and '.join(around)}: null, "
                "since the template says what begins and ends a conversation"
            )
        if chat is not None and info.data.get("special_tokens_in_text", "as_text") != "as_text":
            raise ValueError(
                f"found together with special_tokens_in_text: {info.data['special_tokens_in_text']}; allowed: only with as_text, "
                "since messages never become special tokens"
            )
        return chat

    @field_validator("chat")
    @classmethod
    def _pairs_stay_apart(cls, chat: Chat | None, info: ValidationInfo) -> Chat | None:
        pack: Any = info.data.get("pack")
        if chat is None or chat.turns != "pair" or pack is None:
            return chat
        if pack.mode != "none" or pack.long == "split" or pack.pad is not None:
            raise ValueError(
                f"found turns: pair with pack: {{mode: {pack.mode}, long: {pack.long}, pad: {as_yaml(pack.pad)}}}; allowed: mode: "
                "none, long: cut or drop, and pad: null, since a row has both answers, each cut at the length by itself"
            )
        return chat

    @field_validator("chat")
    @classmethod
    def _prompts_stay_whole(cls, chat: Chat | None, info: ValidationInfo) -> Chat | None:
        pack: Any = info.data.get("pack")
        if chat is not None and chat.mask == "none" and pack is not None and (pack.mode, pack.long) != ("none", "drop"):
            raise ValueError(
                f"found mask: none with pack: {{mode: {pack.mode}, long: {pack.long}}}; allowed: {{mode: none, long: drop}} or no "
                "packing, since a prompt that is cut or joined has no place for an answer"
            )
        return chat
