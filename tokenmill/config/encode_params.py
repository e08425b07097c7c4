"""The section encode of params.yaml: the dataset and its files for training jobs."""

import math
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.record import Record, as_yaml
from tokenmill.config.source_params import SourceName, seen_by_dvc, share_or_number
from tokenmill.config.sources import DocumentSource
from tokenmill.format_facts import FORMATS
from tokenmill.layout import hub_split
from tokenmill.special_tokens import SpecialTokensInText

SplitName = SourceName
MaskRule = Literal["assistant", "all", "last", "none"]  # which tokens of a conversation are trained
Turns = Literal["together", "each", "pair"]  # one sample of a conversation, one for each trained message, two answers
StopToken = Literal["trained", "next", "unchecked"]  # the special token at which a model stops
AnswerPart = Literal["reasoning", "content", "tool_calls", "end"]  # what an answer consists of
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


class Shuffle(Record):
    """The order of documents, or of packed sequences, in the files: one for each epoch."""

    seed: int = Field(ge=0, lt=2**63)
    epochs: int = Field(default=1, ge=1)


class Pack(Record):
    """How documents are packed into sequences of one length, and what happens to longer documents."""

    length: int = Field(ge=2, lt=2**31)
    mode: Literal["none", "concat", "best_fit"]
    long: Literal["split", "cut", "drop"] = "split"
    output: Literal["rows", "index"] = "rows"
    pad: str | None = Field(default=None, min_length=1)
    labels: bool = False

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


_OF_EVERY_RENDERING = ("messages", "tools", "documents", "add_generation_prompt")


def _is_variable(name: str) -> str:
    if name in _OF_EVERY_RENDERING:
        raise ValueError(
            f"found {name!r}; allowed: other names, since each conversation gives the template its own {name}"
        )
    return seen_by_dvc(name)


def _as_variable(value: object) -> object:
    is_plain = value is None or isinstance(value, str | bool | int | float)
    if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"found {as_yaml(value)}; allowed: a text, a finite number, true, false or null")
    return value


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_is_variable)]
VariableValue = Annotated[str | bool | int | float | None, BeforeValidator(_as_variable)]


def _no_date_of_yaml(value: object) -> object:
    if isinstance(value, date):
        raise ValueError(
            f'found {value}; allowed: "{value:%Y-%m-%d}" in quotation marks, since DVC reads no dates of YAML'
        )
    return value


def _is_day(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise ValueError(f'found {text!r}; allowed: a day such as "2025-01-31"')


Day = Annotated[str, BeforeValidator(_no_date_of_yaml), AfterValidator(_is_day)]


class Train(Record):
    """The parts of an answer that are trained. `end`: the special token that ends the turn."""

    reasoning: bool = True
    content: bool = True
    tool_calls: bool = True
    end: bool = True

    @property
    def untrained(self) -> list[AnswerPart]:
        """The names of the other parts."""
        return [name for name in get_args(AnswerPart) if not getattr(self, name)]


class Chat(Record):
    """How conversations become text and which of their tokens are trained. `template`: `tokenizer` for the one that the tokenizer
    comes with, the name of one of tokenmill's, or a file. `turns`: whether a conversation is one sample, or one for each of its
    trained messages, with the messages up to it, or a pair of answers to one prompt. `train`: which parts of these messages are
    trained. `train_key`: one more key by which messages say whether they are trained. `stop_token`: whether answers must end with
    a special token that is trained, and whether the one behind them is. `date`: the day that the template writes by `strftime_now`;
    None: it may not write one.
    """

    template: str = Field(min_length=1)
    mask: MaskRule = "assistant"
    turns: Turns = "together"
    train: Train = Train()
    train_key: str | None = Field(default=None, min_length=1)
    stop_token: StopToken = "trained"
    variables: dict[VariableName, VariableValue] = Field(default={})
    date: Day | None = None
    cut_max: Annotated[int | float, BeforeValidator(share_or_number)] = 0.01

    @field_validator("turns")
    @classmethod
    def _each_has_an_end(cls, turns: Turns, info: ValidationInfo) -> Turns:
        if turns == "each" and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found 'each' with mask: {mask}; allowed: 'together', since a sample for each message trains that message alone"
            )
        if turns == "pair" and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found 'pair' with mask: {mask}; allowed: with mask: last, since a pair trains its answers"
            )
        return turns

    @field_validator("train")
    @classmethod
    def _trains_parts_of_answers(cls, train: Train, info: ValidationInfo) -> Train:
        if train.untrained and (mask := info.data.get("mask")) in ("all", "none"):
            raise ValueError(
                f"found {train.untrained[0]}: false with mask: {mask}; allowed: with mask: assistant or last"
            )
        if len(train.untrained) == len(get_args(AnswerPart)):
            raise ValueError("found every part false; allowed: at least one that is true, or mask: none")
        return train


class Encode(Record):
    """The files of the token dataset: their formats, splits and order, and the special tokens in them."""

    formats: list[Annotated[str, AfterValidator(is_format)]] = Field(min_length=1)
    file_bytes: int | None = Field(default=1 << 30, ge=1 << 16, le=1 << 40)
    min_parts: int | None = Field(default=None, ge=1, le=1 << 16)
    splits: dict[SplitName, Annotated[float, Field(gt=0, le=1)]] = Field(default={})
    split_group: str | None = Field(default=None, min_length=1)
    shuffle: Shuffle | None = None
    pack: Pack | None = None
    vocab_sizes: list[Annotated[int, Field(gt=0)]] = Field(default=[])
    begin_of_document: str | None = None
    end_of_document: str | None
    special_tokens_in_text: SpecialTokensInText
    chat: Chat | None = None

    def set_formats(self, sources: Iterable[DocumentSource]) -> list[str]:
        """The formats of the file sets. Parquet is left out if the documents' own files would equal its set: without splits,
        shuffle, packing, weights of sources, and a number of parts."""
        is_mixed = any((one.epochs, one.tokens) != (1.0, None) for one in sources)
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
