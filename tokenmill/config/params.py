"""params.yaml as frozen pydantic models, with the checks between its sections."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from tokenmill.config.count_params import Count
from tokenmill.config.encode_params import Encode
from tokenmill.config.gates import parse_gate
from tokenmill.config.publish_params import Publish, Refresh, TokenizerSource
from tokenmill.config.section import Section, key
from tokenmill.config.source_params import NamedSource, Source, SourceName, conversations_of, id_column_of, reading_of
from tokenmill.config.sources import DocumentSource
from tokenmill.config.training_params import TrainVocab


class Validate(Section):
    """How many documents are compared with other libraries, and options of the report."""

    sample_documents: int = key(
        32,
        "how many documents of each 64 MB of text are compared with the libraries tokenizers and tiktoken, at least one of each "
        "file",
        "128",
        ge=0,
    )
    language_column: str | None = key(
        None,
        "the column or key of the shards that holds a document's language, for the report; null: none",
        "lang",
        min_length=1,
    )
    references: list[Annotated[str, Field(min_length=1)]] = key(
        [],
        "tokenizers that the report compares with this one: folders with tokenizer.json, or such files. A change inside them "
        "re-runs nothing: DVC watches only the paths",
        "[old/tokenizer]",
    )
    gates: list[str] = key(
        [],
        "limits on the report: MEASURE SIGN NUMBER, or NUMBER * published (the same measure of the version published "
        "last), such as bytes_per_token.lang.de >= 0.95 * published. One that does not hold fails the build",
        '["bytes_per_token.overall >= 4.0"]',
    )

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


class RunOptions(Section):
    """How the build runs. Nothing here changes a byte of the result."""

    engine: Literal["threads", "dask", "ray", "inline"] = key(
        "threads",
        "threads: a Prefect flow; inline: without Prefect; dask, ray: a cluster. inline is the same build in one process. dask and "
        "ray run the units of the flow on the workers of a cluster, and need tokenmill[dask] or tokenmill[ray]",
        "inline",
    )
    address: str | None = key(
        None,
        "the address of an existing cluster: tcp://HOST:8786 (Dask), HOST:6379 or ray://HOST:10001 (Ray); null: with dask or ray, "
        "worker processes on this machine, for as long as the build takes",
        "tcp://HOST:8786",
        min_length=1,
    )
    workers: int | None = key(
        None,
        "units that run at the same time; null: one per core, if memory allows. With an address: units that each task of the "
        "cluster does at the same time; null: one",
        "4",
        ge=1,
    )
    unit_timeout_s: float | None = key(
        None,
        "the time limit of a unit in seconds. A unit beyond it fails, and the others go on; null: no limit",
        "3600",
        gt=0,
        allow_inf_nan=False,
    )
    checkpoint_every: int | None = key(
        10_000,
        "merges between two checkpoints, from which a killed training resumes; null: no checkpoints",
        "1000",
        ge=1,
    )
    memory_mb_max: int = key(
        4096,
        "the memory of the build's process in MB (10^6 bytes): at least 416 with inline, 544 with threads. If each worker would "
        "get too little, fewer run at the same time; counts beyond it spill to disk. With dask or ray: of all processes, at least "
        "800; with an address: of each worker process, at least 544",
        "16000",
        ge=16,
    )
    spill_directory: str | None = key(
        None, "the directory to which counts spill, which must exist; null: .tokenmill", "/mnt/scratch", min_length=1
    )
    cache_mb_max: int = key(
        256,
        "the size of the pre-token cache for encoding, in MB; at most a quarter of the workers' memory",
        "512",
        ge=1,
    )
    report_page: bool = key(
        True,
        "whether a build ends with data/report/report.html, which takes a second; report.json, the metrics and the data of the "
        "plots are always written",
        "false",
    )
    store_gb_max: float = key(
        50,
        "the size of finished units in .tokenmill/units, beside the outputs, in GB; the least recently used are removed first",
        "200",
        ge=0,
        allow_inf_nan=False,
    )

    @field_validator("address")
    @classmethod
    def _goes_with_a_cluster(cls, address: str | None, info: ValidationInfo) -> str | None:
        engine = info.data.get("engine", "dask")
        if address is not None and engine not in ("dask", "ray"):
            raise ValueError(f"found {address!r}; allowed: null with engine: {engine}, which has no cluster")
        return address


def _section(**named: Any) -> Any:
    """A section that may be missing, or lack keys."""
    return Field(default={}, **named)


class Params(Section):
    """All sections of params.yaml."""

    source: Source = _section()
    sources: dict[SourceName, NamedSource] = key(
        {},
        "named sources of documents in place of source.glob; {}: none. source.glob is then not read, and tokens and measures are "
        "counted separately for each name",
        "{web: {glob: data/raw/web/**/*}, code: {glob: data/raw/code/**/*, text_column: content, epochs: 1.5}}",
    )
    count: Count = _section()
    train_vocab: TrainVocab = _section()
    tokenizer: TokenizerSource | None = key(
        None,
        "a finished tokenizer in place of count and train-vocab; null: none. tokenmill.lock pins its digest",
        '{from: "git URL or path", name: tokenizer, version: v1.2.0}',
    )
    encode: Encode = _section()
    validate_: Validate = _section(alias="validate")
    publish: Publish = _section()
    refresh: Refresh = _section()
    run: RunOptions = _section()

    def document_sources(self) -> list[DocumentSource]:
        """The sources of documents, in the order of params.yaml: those of `sources`, or the one of `source.glob`."""
        source, special = self.source, self.encode.special_tokens_in_text
        named: list[tuple[str | None, NamedSource]] = [*self.sources.items()] or [(None, NamedSource(glob=source.glob))]
        return [
            DocumentSource(
                name,
                tuple(named_source.glob),
                reading_of(named_source, source),
                named_source.special_tokens_in_text or special,
                named_source.epochs or (1.0 if named_source.tokens is None else None),
                named_source.tokens,
                named_source.format if "format" in named_source.model_fields_set else source.format,
                tuple(source.keep_columns if named_source.keep_columns is None else named_source.keep_columns),
            )
            for name, named_source in named
        ]

    def licenses(self) -> dict[str | None, list[str]]:
        """The ids of the licences of each source, by its name; None: the source of `source.glob`. A named source without a licence
        has that of `source`."""
        own = self.source.license or []
        if not self.sources:
            return {None: own}
        return {name: own if one.license is None else one.license for name, one in self.sources.items()}

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own; otherwise their ids are rows."""
        return self.document_sources()[0].reading.id_column is not None

    @field_validator("sources")
    @classmethod
    def _all_with_ids_or_none(cls, sources: dict[str, NamedSource], info: ValidationInfo) -> dict[str, NamedSource]:
        source = info.data.get("source")
        if source is not None:
            found = {name: id_column_of(one, source) for name, one in sources.items()}
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
        for name, named_source in sources.items() if source is not None else ():
            conversations = conversations_of(named_source, source)
            if named_source.tools_column is not None and (conversations is None or conversations.template is not None):
                raise ValueError(
                    f"found tools_column {named_source.tools_column!r} for {name} without messages_column; allowed: with "
                    "messages_column or pair, or null"
                )
        return sources

    @field_validator("train_vocab")
    @classmethod
    def _parity_of_groups(cls, train_vocab: TrainVocab, info: ValidationInfo) -> TrainVocab:
        count = info.data.get("count")
        if train_vocab.parity is not None and count is not None and count.by is None:
            raise ValueError("parity: found without groups; allowed: with count.by, like by: lang")
        return train_vocab

    @field_validator("train_vocab")
    @classmethod
    def _superwords_of_counts(cls, train_vocab: TrainVocab, info: ValidationInfo) -> TrainVocab:
        count = info.data.get("count")
        if train_vocab.superwords is not None and count is not None and count.superwords is None:
            raise ValueError(
                "superwords: found without count.superwords; allowed: with it, such as superwords: superbpe in the section count"
            )
        return train_vocab

    @field_validator("encode")
    @classmethod
    def _chat_with_conversations(cls, encode: Encode, info: ValidationInfo) -> Encode:
        source, sources = info.data.get("source"), info.data.get("sources")
        if source is None or sources is None:
            return encode  # the error of source or sources is reported already
        conversations_by_source = {
            name: conversations_of(named_source, source) for name, named_source in sources.items()
        } or {"": source.conversations}
        texts, chats = (
            [name for name, conversations in conversations_by_source.items() if (conversations is None) == is_text]
            for is_text in (True, False)
        )
        if texts and chats:
            raise ValueError(
                f"found conversations in {', '.join(chats)} and texts in {', '.join(texts)}; allowed: either in all sources, since "
                "the files of a dataset have the same columns"
            )
        if chats and encode.chat is None:
            raise ValueError(
                "found chat: null with conversations (messages_column, template or pair of source); allowed: a chat template, like "
                "chat: {template: chatml}"
            )
        if texts and encode.chat is not None:
            raise ValueError(
                "found chat with documents that are texts; allowed: chat: null, or conversations: set messages_column or template "
                "of source"
            )
        pairs = [
            name
            for name, conversations in conversations_by_source.items()
            if conversations is not None and conversations.pair is not None
        ]
        turns = "together" if encode.chat is None else encode.chat.turns
        if pairs and len(pairs) < len(conversations_by_source):
            others = [name for name in conversations_by_source if name not in pairs]
            raise ValueError(
                f"found preference pairs (pair) in {', '.join(pairs)}, and none in {', '.join(others)}; allowed: pairs in all "
                "sources, or in none"
            )
        if pairs and turns != "pair":
            raise ValueError(
                f"found preference pairs (pair of source) with chat.turns: {turns}; allowed: turns: pair, like "
                "chat: {template: chatml, turns: pair}"
            )
        if turns == "pair" and not pairs:
            raise ValueError(
                "found chat.turns: pair without preference pairs; allowed: turns: together or each, or pairs: set pair of source"
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
