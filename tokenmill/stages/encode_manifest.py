"""encode, last part: what the manifest says of where a dataset comes from."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tokenmill.config.encode_params import Encode
from tokenmill.config.lockfile import Pin, pinned
from tokenmill.config.source_params import Source
from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.units import Unit
from tokenmill.dataset.entries import Origin, OutputShard, ReadingEntry, SourceEntry, entry_of
from tokenmill.dataset.manifest import engine_version
from tokenmill.formats.tokens import id_type
from tokenmill.pipeline.project import Project
from tokenmill.stages.encoder import Encoder


def origin_of(project: Project, encoder: Encoder) -> dict[str, Any]:
    """The fields of the manifest that say what made the ids."""
    params, tokenizer, asked = project.params.encode, encoder.tokenizer, project.params.tokenizer
    return {
        "engine": engine_version(),
        "tokenizer_digest": tokenizer.digest,
        "tokenizer_origin": None if asked is None else _origin(pinned(project.root, asked)),
        "params_digest": _digest(project.params.source, project.sources, params),
        "id_type": str(id_type(tokenizer.id_max)),
        "id_max": tokenizer.id_max,
        "begin_of_document_id": encoder.begin_id,
        "end_of_document_id": encoder.end_id,
        "special_tokens_in_text": params.special_tokens_in_text,
    }


def _origin(pin: Pin) -> Origin:
    return Origin(source=pin.asked.from_, name=pin.asked.name, version=pin.version, commit=pin.commit)


def reading_of(sources: Mapping[str | None, DocumentSource]) -> ReadingEntry | None:
    """The manifest's entry of the only source; None if sources have names."""
    one = sources.get(None)
    if one is None:
        return None
    return ReadingEntry(
        text_column=one.text_column,
        id_column=one.id_column,
        text_separator=one.text_separator,
        conversations=entry_of(one.conversations),
        format=one.format,
        keep_columns=list(one.keep_columns),
    )


def source_entries(
    sources: Mapping[str | None, DocumentSource], units: Sequence[Unit], shards: Sequence[OutputShard]
) -> list[SourceEntry]:
    """The manifest's entries of the named sources. `shards`: the entry of each unit's file."""
    entries = []
    for name, one in sources.items():
        own = [shard for unit, shard in zip(units, shards, strict=True) if unit.source.name == name]
        if name is not None:
            entries.append(
                SourceEntry(
                    name=name,
                    text_column=one.text_column,
                    id_column=one.id_column,
                    text_separator=one.text_separator,
                    conversations=entry_of(one.conversations),
                    format=one.format,
                    keep_columns=list(one.keep_columns),
                    special_tokens_in_text=one.special_tokens_in_text,
                    epochs=one.epochs,
                    tokens=one.tokens,
                    n_documents=sum(shard.n_documents for shard in own),
                    n_tokens=sum(shard.n_tokens for shard in own),
                    text_bytes=sum(shard.text_bytes for shard in own),
                )
            )
    return entries


def _digest(source: Source, sources: Mapping[str | None, DocumentSource], params: Encode) -> str:
    """The digest of the parameters that decide bytes of the dataset. The manifest itself lists the
    shards, and dropped.parquet what was left out."""
    optional = ("messages_column", "pair", "tools_column", "template", "keep_columns")
    unset = {key for key in optional if not getattr(source, key)}
    left_out: dict[str, Any] = {}  # earlier digests stay valid
    if params.chat is None:
        left_out["chat"] = True
    elif params.chat.turns == "together":
        left_out["chat"] = {"turns"}
    if params.min_parts is None:
        left_out["min_parts"] = True
    deciding = source.model_dump_json(exclude={"glob", "license", "drop"} | unset) + params.model_dump_json(
        exclude=left_out
    )
    named = [_deciding(one) for name, one in sources.items() if name is not None]
    return hashlib.sha256((deciding + (json.dumps(named) if named else "")).encode()).hexdigest()


def _deciding(source: DocumentSource) -> dict[str, Any]:
    """The fields of a named source that decide bytes. For texts there is no key `conversations`, and without columns to keep no key
    `keep_columns`, so earlier digests stay valid."""
    fields = asdict(source) | {"globs": None}
    if source.conversations is not None:
        fields["conversations"] = source.conversations.as_key()
    return {key: value for key, value in fields.items() if key not in ("conversations", "keep_columns") or value}
