"""encode, last part: what the manifest says of where a dataset comes from."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tokenmill.config.encode_params import Encode
from tokenmill.config.lockfile import Pin, pinned
from tokenmill.config.record import Record
from tokenmill.config.source_params import Source
from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.units import Unit
from tokenmill.dataset.entries import Origin, OutputShard, ReadingEntry, SourceEntry
from tokenmill.dataset.manifest import engine_version
from tokenmill.dataset.readings import reading_of
from tokenmill.formats.tokens import id_type
from tokenmill.pipeline.project import Project
from tokenmill.stages.encoder import Encoder


def origin_of(project: Project, encoder: Encoder) -> dict[str, Any]:
    """The fields of the manifest that say what made the ids."""
    params, tokenizer, imported = project.params.encode, encoder.tokenizer, project.params.tokenizer
    return {
        "engine": engine_version(),
        "tokenizer_digest": tokenizer.digest,
        "tokenizer_origin": None if imported is None else _origin(pinned(project.root, imported)),
        "params_digest": _digest(project.params.source, project.sources, params),
        "id_type": str(id_type(tokenizer.id_max)),
        "id_max": tokenizer.id_max,
        "begin_of_document_id": encoder.begin_id,
        "end_of_document_id": encoder.end_id,
        "special_tokens_in_text": params.special_tokens_in_text,
    }


def _origin(pin: Pin) -> Origin:
    return Origin(source=pin.asked.from_, name=pin.asked.name, version=pin.version, commit=pin.commit)


def only_reading(sources: Mapping[str | None, DocumentSource]) -> ReadingEntry | None:
    """The manifest's entry of the only source; None if sources have names."""
    return reading_of(sources[None]) if None in sources else None


def source_entries(
    sources: Mapping[str | None, DocumentSource], units: Sequence[Unit], shards: Sequence[OutputShard]
) -> list[SourceEntry]:
    """The manifest's entries of the named sources. `shards`: the entry of each unit's file."""
    entries = []
    for name, source in sources.items():
        own = [shard for unit, shard in zip(units, shards, strict=True) if unit.source.name == name]
        if name is not None:
            entries.append(
                SourceEntry(
                    **dict(reading_of(source)),
                    name=name,
                    special_tokens_in_text=source.special_tokens_in_text,
                    epochs=source.epochs,
                    tokens=source.tokens,
                    n_documents=sum(shard.n_documents for shard in own),
                    n_tokens=sum(shard.n_tokens for shard in own),
                    text_bytes=sum(shard.text_bytes for shard in own),
                )
            )
    return entries


def _digest(source: Source, sources: Mapping[str | None, DocumentSource], params: Encode) -> str:
    """The digest of the parameters that decide bytes of the dataset. The manifest itself lists the
    shards, and dropped.parquet what was left out."""
    unset: dict[str, Any] = {"glob": True, "license": True, "drop": True, **_unset(source)}
    deciding = source.model_dump_json(exclude=unset) + params.model_dump_json(exclude=_unset(params))
    named = [_deciding(one) for name, one in sources.items() if name is not None]
    return hashlib.sha256((deciding + (json.dumps(named) if named else "")).encode()).hexdigest()


_ALWAYS = {
    *("sources_strict", "format", "prompt", "file_bytes", "splits", "split_group", "shuffle", "epochs", "vocab_sizes"),
    *("pack", "long", "output", "pad", "labels", "begin_of_document", "mask", "train", "reasoning", "content"),
    *("tool_calls", "end", "train_key", "stop_token", "variables", "cut_max"),
}
"""The parameters with a default that a digest has in any case. It has each later one only where its value is another, so that a
new parameter leaves earlier digests valid."""


def _unset(record: Record) -> dict[str, Any]:
    """The later parameters that have their defaults, in the form of pydantic's `exclude`."""
    unset: dict[str, Any] = {}
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if name not in _ALWAYS and value == field.get_default():
            unset[name] = True
        elif isinstance(value, Record) and (inner := _unset(value)):
            unset[name] = inner
    return unset


_OF_A_SOURCE = (
    *("name", "globs", "text_column", "id_column", "text_separator", "special_tokens_in_text", "epochs", "tokens"),
    *("conversations", "format"),
)
"""The first fields of a source that decide bytes, in their order."""


def _deciding(source: DocumentSource) -> dict[str, Any]:
    """The fields of a named source and of its reading that decide bytes. Of conversations, and of later fields, a digest has
    those alone that are set."""
    of_reading = {field.name: getattr(source.reading, field.name) for field in fields(source.reading)}
    values = {field.name: getattr(source, field.name) for field in fields(source)} | of_reading | {"globs": None}
    del values["reading"], values["columns"]
    if source.reading.conversations is not None:
        values["conversations"] = source.reading.conversations.as_key()
    is_always = {name: name in _OF_A_SOURCE and name != "conversations" for name in (*_OF_A_SOURCE, *values)}
    return {name: values[name] for name, always in is_always.items() if always or values[name]}
