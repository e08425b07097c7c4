"""params.yaml as frozen pydantic models. It is read once and checked completely before any work."""

import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.conversation_template import Template
from tokenmill.config.gates import parse_gate
from tokenmill.config.record import Record
from tokenmill.config.sources import EPOCHS_MAX, Conversations, DocumentFormat, DocumentSource
from tokenmill.config.yaml_mistakes import mistake
from tokenmill.counts.weights import weight_of
from tokenmill.errors import ParamsError, did_you_mean, nearest
from tokenmill.special_tokens import RESERVED_MAX, SpecialTokensInText
from tokenmill.storage.atomic import read
from tokenmill.storage.urls import refuse_password
from tokenmill.storage.writable import refuse_other_encoding

N_BYTES = 256  # every vocabulary starts from a token for each byte


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        return value
    raise ValueError(f"found {_shown(value)}; allowed: a glob, or a list of globs")


def _share_or_number(value: object) -> object:
    is_share = isinstance(value, float) and 0 <= value < 1
    if not is_share and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"found {_shown(value)}; allowed: a share from 0 to below 1, or a whole number")
    return value


def _rational(weights: object) -> object:
    for glob, weight in weights.items() if isinstance(weights, dict) else ():
        try:
            weight_of(weight)
        except ValueError as error:
            raise ValueError(f"{glob!r}: {error}") from None
    return weights or {}


Globs = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_as_list)]


def _instead_of_messages(template: Template | None, info: ValidationInfo) -> Template | None:
    if template is not None and (column := info.data.get("messages_column")) is not None:
        raise ValueError(f"found together with messages_column {column!r}; allowed: only one of the two")
    return template


SourceTemplate = Annotated[Template | None, AfterValidator(_instead_of_messages)]


class Source(Record):
    """Which documents are read, how they are cut into work units, and what happens to bad ones. `glob` matches the shards."""

    glob: Globs
    text_column: str = Field(min_length=1)
    id_column: str | None = Field(min_length=1)
    text_separator: str | None = Field(min_length=1)
    # These five keys have defaults, because a params.yaml of an earlier tokenmill lacks them.
    sources_strict: bool = False
    format: DocumentFormat | None = None
    messages_column: str | None = Field(default=None, min_length=1)
    tools_column: str | None = Field(default=None, min_length=1)
    template: SourceTemplate = None
    unit_bytes_min: int = Field(ge=0)
    unit_bytes_max: int = Field(ge=1)
    on_bad_document: Literal["fail", "quarantine"]
    bad_documents_max: Annotated[int | float, BeforeValidator(_share_or_number)]
    on_bad_shard: Literal["fail", "quarantine"]
    drop: str | None = Field(min_length=1)

    @field_validator("unit_bytes_max")
    @classmethod
    def _large_is_not_small(cls, unit_bytes_max: int, info: ValidationInfo) -> int:
        if unit_bytes_max < (smallest := info.data.get("unit_bytes_min", 0)):
            raise ValueError(f"found {unit_bytes_max}; allowed: unit_bytes_min ({smallest}) or more")
        return unit_bytes_max

    @field_validator("tools_column")
    @classmethod
    def _only_with_messages(cls, tools_column: str | None, info: ValidationInfo) -> str | None:
        if tools_column is not None and info.data.get("messages_column", "") is None:
            raise ValueError(f"found {tools_column!r} without messages_column; allowed: with messages_column, or null")
        return tools_column

    @property
    def conversations(self) -> Conversations | None:
        """How rows become conversations; None if documents are texts."""
        return _conversations(self.messages_column, self.tools_column, self.template)


_NOT_IN_DVC = ("size", "nfiles")  # DVC ignores keys with these names in its run cache (treeverse/dvc#10296)


def _seen_by_dvc(name: str) -> str:
    if name in _NOT_IN_DVC:
        raise ValueError(f"found {name!r}; allowed: other names, since DVC overlooks changes below a key of this name")
    return name


SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64), AfterValidator(_seen_by_dvc)]


class NamedSource(Record):
    """Named sources of documents, each with these keys, in place of `source.glob`. The rest of `source` applies to each of them.
    Tokens and measures are counted separately for each name."""

    glob: Globs
    format: DocumentFormat | None = None
    text_column: str | None = Field(default=None, min_length=1)
    id_column: str | None = Field(default=None, min_length=1)
    text_separator: str | None = Field(default=None, min_length=1)
    messages_column: str | None = Field(default=None, min_length=1)
    tools_column: str | None = Field(default=None, min_length=1)
    template: SourceTemplate = None
    special_tokens_in_text: SpecialTokensInText | None = None
    epochs: float | None = Field(default=None, gt=0, le=EPOCHS_MAX)
    tokens: int | None = Field(default=None, gt=0)

    @field_validator("tokens")
    @classmethod
    def _one_weight(cls, tokens: int | None, info: ValidationInfo) -> int | None:
        if tokens is not None and (epochs := info.data.get("epochs")) is not None:
            raise ValueError(f"found together with epochs {epochs:g}; allowed: only one of the two")
        return tokens


class Count(Record):
    """How text is split into pre-tokens, how much each shard counts, and which pre-tokens are dropped.

    `partitions`: into how many parts the counts are divided for adding them up; it changes no byte of the result. `approximate`:
    None, for each params.yaml that still has it from a version that could count approximately."""

    pattern: str | None = Field(min_length=1)
    count_min: int = Field(ge=1, lt=2**64)
    weights: Annotated[dict[str, int | str], BeforeValidator(_rational)]
    approximate: None = None
    partitions: int = Field(default=1, ge=1, le=4096)

    @field_validator("approximate", mode="before")
    @classmethod
    def _always_exact(cls, found: object) -> None:
        if found is not None:
            raise ValueError(
                f"found {found}; allowed: null, as in an older params.yaml. Counts are exact, and are kept in files beyond "
                "run.memory_mb_max. Take the line out."
            )


class Extend(Record):
    """The tokenizer to add tokens to. `digest`: the expected digest of the tokenizer at `path`, which DVC does not track.
    `old_glob`: shards of the text it was made for; training reports how many of their documents get different ids."""

    path: str = Field(min_length=1)
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    old_glob: Globs | None


def _smallest(info: ValidationInfo) -> tuple[int, str]:
    """The smallest allowed vocabulary size, and the sum that explains it. Counts only special tokens that passed their check."""
    n_special = len(info.data.get("special_tokens", ()))
    return N_BYTES + n_special, f"{N_BYTES} bytes + {n_special} special tokens"


class TrainVocab(Record):
    """What the vocabulary holds and when learning stops."""

    special_tokens: list[Annotated[str, Field(min_length=1)]]
    vocab_size: int = Field(lt=2**32 - 1)
    pair_count_min: int = Field(ge=1)
    token_bytes_max: int | None = Field(ge=2)
    score: Literal["count", "wordpiece", "bytes_saved"]
    pad_vocab_to: int = Field(ge=1, le=RESERVED_MAX)
    vocab_sizes: list[int]
    extend: Extend | None
    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    model_max_length: int | None = Field(default=None, ge=1)

    # These validate single fields, because such validators run even if other fields are wrong. So one error lists everything.

    @field_validator("special_tokens")
    @classmethod
    def _each_once(cls, tokens: list[str]) -> list[str]:
        if len(set(tokens)) < len(tokens):
            raise ValueError(f"found {tokens}; allowed: every token once")
        return tokens

    @field_validator("vocab_size")
    @classmethod
    def _room_for_all(cls, vocab_size: int, info: ValidationInfo) -> int:
        smallest, words = _smallest(info)
        if vocab_size < smallest:
            raise ValueError(f"found {vocab_size}; allowed: {smallest} or more ({words})")
        return vocab_size

    @field_validator("vocab_sizes")
    @classmethod
    def _smaller_than_the_first(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        smallest, _ = _smallest(info)
        largest = info.data.get("vocab_size")
        if wrong := [one for one in sizes if one < smallest or (largest is not None and one > largest)]:
            raise ValueError(
                f"found {wrong[0]}; allowed: {smallest} to vocab_size ({largest or 'which is wrong, too'})"
            )
        return sizes

    @field_validator("extend")
    @classmethod
    def _one_vocabulary(cls, extend: Extend | None, info: ValidationInfo) -> Extend | None:
        if extend and (sizes := info.data.get("vocab_sizes")):
            raise ValueError(
                f"found together with vocab_sizes {sizes}; allowed: only one of the two, since extending gives one vocabulary"
            )
        return extend

    @field_validator("bos_token", "eos_token", "pad_token", "unk_token")
    @classmethod
    def _is_special(cls, token: str | None, info: ValidationInfo) -> str | None:
        known = info.data.get("special_tokens")
        if token is not None and known is not None and not info.data.get("extend") and token not in known:
            raise ValueError(f"found {token!r}; allowed: null or one of train_vocab.special_tokens ({known})")
        return token


class TokenizerSource(Record):
    """A tokenizer to import instead of training one: a published version, a file or a directory."""

    from_: str = Field(alias="from", min_length=1)  # a git repository, a folder or a file
    name: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9/-]*[a-z0-9]$")
    version: str | None = Field(default=None, min_length=1, validate_default=True)
    pattern: str | None = Field(default=None, min_length=1)
    special_tokens: dict[str, int] | None = None

    @field_validator("version")
    @classmethod
    def _both_or_neither(cls, version: str | None, info: ValidationInfo) -> str | None:
        if "name" in info.data and (info.data["name"] is None) != (version is None):
            raise ValueError("found one of name and version; allowed: both (a published version), or neither (a file)")
        return version

    @field_validator("pattern", "special_tokens")
    @classmethod
    def _only_of_a_file(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("name") is not None:
            raise ValueError(
                "found together with name; allowed: only with a .tiktoken file; a published version has its own"
            )
        return value


class Publish(Record):
    """Facts for the model card of a tokenizer that only its owner knows."""

    license: str | None = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$")


class Refresh(Record):
    """The limits of drift for new documents, and what a refresh does with its result."""

    drift_max: float = Field(gt=0, allow_inf_nan=False)
    new_scripts_max: float = Field(ge=0, le=1)
    quarantine_max: float = Field(ge=0, le=1)
    on_drift: Literal["fail", "candidate"]
    publish: str | None = Field(min_length=1)
    notify: str | None = Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")


FormatName = Literal[
    "parquet",
    "arrow",
    "megatron",
    "datatrove",
    "olmo",
    "mds",
    "nanogpt",
    "litdata",
    "megatron_sft",
    "megatron_sft_parquet",
]
SplitName = SourceName
Mask = Literal["assistant", "all", "last"]  # which tokens of a conversation are trained
StopToken = Literal["trained", "next", "unchecked"]  # the special token at which a model stops

_SPLITS_MAX = 100
_SHARES_OFF_MAX = 1e-9  # the allowed error of the sum of shares, since 0.98 + 0.01 + 0.01 is not 1 in floating point


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
                f"found {_shown(value)} with output: index; allowed: with output: rows, since an index has no tokens"
            )
        return _special_or_null(value, info) if isinstance(value, str) else value


_OF_EVERY_RENDERING = ("messages", "tools", "documents", "add_generation_prompt")


def _is_variable(name: str) -> str:
    if name in _OF_EVERY_RENDERING:
        raise ValueError(
            f"found {name!r}; allowed: other names, since each conversation gives the template its own {name}"
        )
    return _seen_by_dvc(name)


def _as_variable(value: object) -> object:
    is_plain = value is None or isinstance(value, str | bool | int | float)
    if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"found {_shown(value)}; allowed: a text, a finite number, true, false or null")
    return value


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_is_variable)]
VariableValue = Annotated[str | bool | int | float | None, BeforeValidator(_as_variable)]


class Chat(Record):
    """How conversations become text and which of their tokens are trained. `template`: `tokenizer` for the one that the tokenizer
    comes with, the name of one of tokenmill's, or a file. `train_key`: one more key by which messages say whether they are trained.
    `stop_token`: whether answers must end with a special token that is trained, and whether the one behind them is.
    """

    template: str = Field(min_length=1)
    mask: Mask = "assistant"
    train_key: str | None = Field(default=None, min_length=1)
    stop_token: StopToken = "trained"
    variables: dict[VariableName, VariableValue] = Field(default={})
    cut_max: Annotated[int | float, BeforeValidator(_share_or_number)] = 0.01


class Encode(Record):
    """The files of the token dataset: their formats, splits and order, and the special tokens in them."""

    formats: list[FormatName] = Field(min_length=1)
    file_bytes: int = Field(ge=1 << 16, le=1 << 40)
    splits: dict[SplitName, Annotated[float, Field(gt=0, le=1)]]
    split_group: str | None = Field(min_length=1)
    shuffle: Shuffle | None
    pack: Pack | None
    vocab_sizes: list[Annotated[int, Field(gt=0)]]
    begin_of_document: str | None
    end_of_document: str | None
    special_tokens_in_text: SpecialTokensInText
    chat: Chat | None = None

    def set_formats(self, sources: Iterable[DocumentSource]) -> list[FormatName]:
        """The formats of the file sets. Parquet is left out if the documents' own files would equal its set: without splits,
        shuffle, packing and weights of sources."""
        is_mixed = any((one.epochs, one.tokens) != (1.0, None) for one in sources)
        is_arranged = bool(self.splits) or self.shuffle is not None or self.pack is not None or is_mixed
        return [one for one in self.formats if one != "parquet" or is_arranged]

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


class Validate(Record):
    """How many documents of each 64 MB of text are compared with other libraries, and options of the report: limits on measures,
    tokenizers to compare with, and the column that holds a document's language."""

    sample_documents: int = Field(ge=0)
    language_column: str | None = Field(min_length=1)
    references: list[Annotated[str, Field(min_length=1)]]
    gates: list[str]

    @field_validator("gates")
    @classmethod
    def _can_be_read(cls, gates: list[str], info: ValidationInfo) -> list[str]:
        for gate in gates:
            measure = parse_gate(gate).measure
            is_of_language = measure.split(".")[1:2] == ["lang"] or measure == "gini.languages"
            if is_of_language and info.data.get("language_column", "") is None:
                raise ValueError(
                    f"found {gate!r}, a measure of a language; allowed: with language_column, which is null"
                )
        return gates


class RunOptions(Record):
    """How the build runs. Nothing here changes a byte of the result."""

    engine: Literal["threads", "dask", "ray", "inline"]
    address: str | None = Field(default=None, min_length=1)
    workers: int | None = Field(ge=1)
    unit_timeout_s: float | None = Field(gt=0, allow_inf_nan=False)
    checkpoint_every: int | None = Field(ge=1)
    memory_mb_max: int = Field(ge=16)
    spill_directory: str | None = Field(min_length=1)
    cache_mb_max: int = Field(ge=1)
    report_page: bool
    store_gb_max: float = Field(ge=0, allow_inf_nan=False)

    @field_validator("address")
    @classmethod
    def _goes_with_a_cluster(cls, address: str | None, info: ValidationInfo) -> str | None:
        engine = info.data.get("engine", "dask")
        if address is not None and engine not in ("dask", "ray"):
            raise ValueError(f"found {address!r}; allowed: null with engine: {engine}, which has no cluster")
        return address


class Params(Record):
    """All sections of params.yaml."""

    source: Source
    sources: dict[SourceName, NamedSource]
    count: Count
    train_vocab: TrainVocab
    tokenizer: TokenizerSource | None
    encode: Encode
    validate_: Validate = Field(alias="validate")
    publish: Publish
    refresh: Refresh
    run: RunOptions

    def document_sources(self) -> list[DocumentSource]:
        """The sources of documents, in the order of params.yaml: those of `sources`, or the one of `source.glob`."""
        special = self.encode.special_tokens_in_text
        source = self.source
        if not self.sources:
            globs, columns = tuple(source.glob), (source.text_column, source.id_column, source.text_separator)
            return [
                DocumentSource(
                    None,
                    globs,
                    *columns,
                    special,
                    1.0,
                    tokens=None,
                    conversations=source.conversations,
                    format=source.format,
                )
            ]
        return [
            DocumentSource(
                name,
                tuple(one.glob),
                one.text_column or source.text_column,
                _id_column(one, source),
                one.text_separator if "text_separator" in one.model_fields_set else source.text_separator,
                one.special_tokens_in_text or special,
                one.epochs or (1.0 if one.tokens is None else None),
                one.tokens,
                _conversations_of(one, source),
                one.format if "format" in one.model_fields_set else source.format,
            )
            for name, one in self.sources.items()
        ]

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; otherwise their ids are rows."""
        return self.document_sources()[0].id_column is not None

    @field_validator("sources")
    @classmethod
    def _all_with_ids_or_none(cls, sources: dict[str, NamedSource], info: ValidationInfo) -> dict[str, NamedSource]:
        source = info.data.get("source")
        if source is not None:
            found = {name: _id_column(one, source) for name, one in sources.items()}
            with_ids, without = (
                [name for name, id in found.items() if (id is None) == lacks] for lacks in (False, True)
            )
            if with_ids and without:
                raise ValueError(
                    f"found an id_column for {', '.join(with_ids)}, and none for {', '.join(without)}; allowed: an id_column for "
                    "all of them, or null for all, since the ids of a dataset are of one kind"
                )
        return sources

    @field_validator("sources")
    @classmethod
    def _tools_only_with_messages(cls, sources: dict[str, NamedSource], info: ValidationInfo) -> dict[str, NamedSource]:
        source: Any = info.data.get("source")
        for name, one in sources.items() if source is not None else ():
            found = _conversations_of(one, source)
            if one.tools_column is not None and (found is None or found.column is None):
                raise ValueError(
                    f"found tools_column {one.tools_column!r} for {name} without messages_column; allowed: with messages_column, "
                    "or null"
                )
        return sources

    @field_validator("encode")
    @classmethod
    def _chat_with_conversations(cls, encode: Encode, info: ValidationInfo) -> Encode:
        source, sources = info.data.get("source"), info.data.get("sources")
        if source is None or sources is None:
            return encode  # the error of source or sources is reported already
        found = {name: _conversations_of(one, source) for name, one in sources.items()} or {"": source.conversations}
        texts, chats = ([name for name, one in found.items() if (one is None) == is_text] for is_text in (True, False))
        if texts and chats:
            raise ValueError(
                f"found conversations in {', '.join(chats)} and texts in {', '.join(texts)}; allowed: either in all sources, since "
                "the files of a dataset have the same columns"
            )
        if chats and encode.chat is None:
            raise ValueError(
                "found chat: null with conversations (messages_column or template of source); allowed: a chat template, like "
                "chat: {template: chatml}"
            )
        if texts and encode.chat is not None:
            raise ValueError(
                "found chat with documents that are texts; allowed: chat: null, or conversations: set messages_column or template "
                "of source"
            )
        return encode

    @field_validator("validate_")
    @classmethod
    def _trained_share_of_conversations(cls, validate: Validate, info: ValidationInfo) -> Validate:
        encode: Any = info.data.get("encode")
        for gate in validate.gates:
            if encode is not None and encode.chat is None and parse_gate(gate).measure == "trained_share":
                raise ValueError(
                    f"gates: found {gate!r}, a measure of conversations; allowed: with encode.chat, which is null"
                )
        return validate


def _id_column(one: NamedSource, source: Source) -> str | None:
    return one.id_column if "id_column" in one.model_fields_set else source.id_column


def _conversations_of(one: NamedSource, source: Source) -> Conversations | None:
    """How rows of a named source become conversations: by its own keys, or else by those of `source`."""
    if one.template is not None:
        return _conversations(None, None, one.template)
    if one.messages_column is None and source.messages_column is None:
        return source.conversations
    return _conversations(
        one.messages_column or source.messages_column, one.tools_column or source.tools_column, template=None
    )


def _conversations(column: str | None, tools_column: str | None, template: Template | None) -> Conversations | None:
    if column is None and template is None:
        return None
    parts = None if template is None else tuple((role, tuple(parts)) for role, parts in template.items())
    return Conversations(column, tools_column, parts)


def load_params(path: Path) -> Params:
    """Loads and checks a params.yaml.

    Raises one ParamsError that lists every wrong key with the file, the section, what was found and what is allowed.
    """
    try:
        found = _read_yaml(path)
        return Params.model_validate(found, context={"special_tokens": _special_tokens(found)})
    except ValidationError as error:
        # Misspelled keys come first. The missing key that such a key was meant for is not listed again.
        details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
        meant = [_meant(detail) for detail in details if detail["type"] == "extra_forbidden"]
        details = [detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant]
        code = _CODES.get(details[0]["type"], "TM102")
        errors = [ParamsError(*_explain(detail, path), code=code) for detail in details]
        raise (errors[0] if len(errors) == 1 else ParamsError("", [str(one) for one in errors], code=code)) from None


def _special_tokens(params: dict[str, Any]) -> list[Any] | None:
    """The unchecked special tokens of params.yaml; None if no tokenizer is trained."""
    train_vocab = params.get("train_vocab")
    found = train_vocab.get("special_tokens") if isinstance(train_vocab, dict) else None
    return found if params.get("tokenizer") is None and isinstance(found, list) else None


def _read_yaml(path: Path) -> Any:
    from ruamel.yaml.error import YAMLError

    from tokenmill.config.bounded_yaml import BoundsError

    text = ""
    refuse_other_encoding(path.absolute().parent)
    try:
        text = read(path).decode()
        found = _parsed(text)
        for i, line in enumerate(text.splitlines(), 1):
            refuse_password(f"{path}, line {i}", line)
    except OSError as error:
        raise ParamsError(
            path, f"cannot be read: {error.strerror}. Expected a file of parameters there.", code="TM104"
        ) from None
    except UnicodeDecodeError as error:
        raise ParamsError(path, f"not UTF-8 at byte {error.start}.", "Save it as UTF-8.", code="TM104") from None
    except YAMLError as error:
        words = f"{error}. Shorten it." if isinstance(error, BoundsError) else mistake(text, error)
        raise ParamsError(path, f"{words}", code="TM104") from None
    if not isinstance(found, dict):
        raise ParamsError(path, f"expected the sections {', '.join(_keys(Params))}; found {found!r:.60}.", code="TM104")
    return found


@lru_cache(maxsize=1)  # a build checks before and after each stage for changes, and parsing takes 30 ms
def _parsed(text: str) -> Any:
    from tokenmill.config import bounded_yaml

    return bounded_yaml.load(text)


def _meant(unknown: Any) -> tuple[Any, ...] | None:
    """The location of the known key that an unknown one was probably meant for, or None."""
    *section, key = unknown["loc"]
    near = nearest(str(key), _keys(_section_of(unknown["loc"])))
    return (*section, near) if near else None


def _explain(detail: Any, path: Path) -> tuple[str, str, str]:
    """Explains one error of pydantic: where it is, what is wrong, and what to do."""
    parts = [str(part) for part in detail["loc"] if part != "[key]"]  # pydantic marks an error in a key itself so
    place, limits = ": ".join(filter(None, (str(path), ".".join(parts)))), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            allowed = _keys(_section_of(detail["loc"]))
            return place, f"unknown key; allowed: {', '.join(allowed)}.", did_you_mean(str(detail["loc"][-1]), allowed)
        case "missing" if parts[0] == "sources" and len(parts) > 1:
            return place, "missing.", f"Add the glob of the source's files, like data/raw/{parts[1]}/**/*."
        case "missing":
            allowed = _choices(detail["loc"])
            if allowed:
                return place, f"missing; allowed: {', '.join(allowed)}.", "Add it."
            return place, "missing.", "Copy its line from the params.yaml of a new project, which explains it."
        case "value_error":
            message = str(limits["error"])
            if parts and not message.startswith("found"):
                return str(path), f"{'.'.join(parts)}.{message}.", ""
            return place, f"{message}.", ""
        case kind if kind in _ALLOWED:
            allowed_values = _ALLOWED[kind].format(**limits)
        case _:
            allowed_values = detail["msg"].removeprefix("Input should be ")
    return place, f"found {_shown(detail['input'])}; allowed: {allowed_values}.", ""


_CODES = {"extra_forbidden": "TM101", "missing": "TM103"}  # by pydantic's type of error

_ALLOWED = {  # by pydantic's type of error
    "model_type": "a section with keys",
    "dict_type": "a section with keys",
    "list_type": "a list, like [a, b]",
    "too_long": "a list of at most {max_length}",
    "string_type": "a text (in quotes where YAML reads another type)",
    "int_type": "a whole number",
    "int_from_float": "a whole number, written only with digits",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "too_short": "{min_length} or more of them",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "what the regex {pattern} matches",
}


def _shown(value: object) -> str:
    """A value as YAML writes it."""
    by_identity = {None: "null", True: "true", False: "false"}
    return by_identity[value] if value is None or isinstance(value, bool) else f"{value!r:.80}"


def _section_of(location: tuple[str | int, ...]) -> type[Record]:
    """The section that a key is in."""
    section: type[Record] = Params
    parts = iter(location[:-1])
    for part in parts:
        kind = {field.alias or name: field.annotation for name, field in section.model_fields.items()}[str(part)]
        section = next(one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, Record))
        if get_origin(kind) is dict:
            next(parts, None)  # the name of the section
    return section


def _choices(location: tuple[str | int, ...]) -> list[str]:
    """The values that a key may have, where they are a few words."""
    kinds = {field.alias or name: field.annotation for name, field in _section_of(location).model_fields.items()}
    kind = kinds.get(str(location[-1]))
    return [str(one) for one in get_args(kind)] if get_origin(kind) is Literal else []


def _keys(model: type[Record]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
