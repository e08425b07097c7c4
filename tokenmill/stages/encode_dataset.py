"""encode, in the middle: encoded units → a dataset with its manifest, file sets, tables and quarantine."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.chat.encoder import ChatEncoder
from tokenmill.config.lockfile import Pin, pinned
from tokenmill.config.params import Encode, Source, TokenizerSource
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.dropped import DROPPED_FILE, starts_of, write_dropped
from tokenmill.corpus.quarantine import QUARANTINE_FILE, check_limit, write_quarantine
from tokenmill.corpus.units import Unit, source_name
from tokenmill.dataset.manifest import (
    ChatEntry,
    Files,
    InputShard,
    Manifest,
    Origin,
    OutputShard,
    Reading,
    SourceEntry,
    engine_version,
    entry_of,
    tokens_digest,
    write_manifest,
)
from tokenmill.dataset.tables import UNIT_INDEX_FILE, Part, write_tables
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts, output_shard
from tokenmill.errors import ParamsError
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import epochs_of
from tokenmill.file_sets.planned import documents_shape
from tokenmill.formats.tokens import id_type
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_runner import UnitRunner
from tokenmill.special_tokens import listed
from tokenmill.stages.encode_chat import check_cut, check_stopped, check_trained, is_sure
from tokenmill.stages.encode_sets import write_blends, write_sets
from tokenmill.storage.atomic import sha256_file, write_directory
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import Done
from tokenmill.tokenizer.tokenizer import Tokenizer


class Encoder(NamedTuple):
    """A tokenizer and how it encodes. `begin_id`, `end_id`: the ids around each document, or None. `keys`: the units' keys, by unit
    name. `entry`, `chat`: the chat template and its encoder; None for texts."""

    tokenizer: Tokenizer
    begin_id: int | None
    end_id: int | None
    keys: Mapping[str, str]
    entry: ChatEntry | None = None
    chat: ChatEncoder | None = None


class Folders(NamedTuple):
    """The folders that a dataset is written to."""

    tokens: Path
    quarantine: Path
    tables: Path


def write_dataset(
    source: Source,
    asked: TokenizerSource | None,
    params: Encode,
    encoder: Encoder,
    done: Sequence[Done[EncodeFacts]],
    folders_of: Folders,
    runner: UnitRunner,
    run_units: RunUnits,
) -> Manifest:
    """Writes the dataset of the encoded units, its file sets, tables and quarantine. Returns the manifest."""
    corpus, tokenizer, keys = runner.corpus, encoder.tokenizer, encoder.keys
    units = corpus.units
    entry = encoder.entry
    documents = documents_shape(tokenizer, encoder.begin_id, encoder.end_id, runner.has_ids, entry is not None)
    files = files_of(params, tokenizer)
    formats = params.set_formats(runner.sources().values())
    shards = [output_shard(unit, keys[unit.name], one) for unit, one in zip(units, done, strict=True)]
    n_documents = sum(shard.n_documents for shard in shards)
    n_bad = check_limit(units, [one.facts.left for one in done], n_documents, source)
    n_dropped = dict(sorted(sum((Counter(one.facts.reasons) for one in done), Counter()).items()))
    folders = [one.folder for one in done]
    parts = [
        Part(shard.name, starts_of(unit), folder, source_name(unit.pieces[0].shard))
        for unit, shard, folder in zip(units, shards, folders, strict=True)
    ]
    with (
        write_directory(folders_of.tokens) as directory,
        write_directory(folders_of.quarantine) as quarantine,
        write_directory(folders_of.tables) as tables,
    ):
        for shard, folder in zip(shards, folders, strict=True):
            link(folder / TOKENS_FILE, directory / shard.name)
        encoded = [
            EncodedUnit(
                unit.output,
                one.folder / TOKENS_FILE,
                one.folder / UNIT_INDEX_FILE,
                starts_of(unit),
                [one.files[TOKENS_FILE].sha256, one.files[UNIT_INDEX_FILE].sha256],
                unit.source.name or "",
            )
            for unit, one in zip(units, done, strict=True)
        ]
        if formats:
            epochs = epochs_of(runner.sources().values(), encoded, params.splits)
            _refuse_epochs(epochs, runner.sources())
            files = files.model_copy(update={"epochs": epochs})
        made_from = tokens_digest(
            tokenizer.digest, ((unit.output, one.facts.tokens_sha256) for unit, one in zip(units, done, strict=True))
        )
        if entry is not None:
            of_units = [one.facts.answers or AnswerCounts() for one in done]
            answers = added(of_units)
            n_trained = sum(one.facts.n_trained or 0 for one in done)
            entry = entry.model_copy(update={"n_trained": n_trained, "answers": answers})
            check_trained(entry, sum(shard.n_tokens for shard in shards))
            assert params.chat is not None
            stop_token = params.chat.stop_token
            for some in (*(one for one in of_units if is_sure(stop_token, one)), answers):
                check_stopped(encoder.chat, stop_token, some)
        written = write_sets(encoded, formats, files, documents, made_from, runner, run_units, directory)
        if params.chat is not None and params.pack is not None:
            check_cut(params.chat, params.pack, encoded)
        bad_documents = quarantine / QUARANTINE_FILE
        write_quarantine(bad_documents, zip(units, folders, strict=True))
        write_dropped(
            tables / DROPPED_FILE, ((starts_of(unit), folder) for unit, folder in zip(units, folders, strict=True))
        )
        manifest = Manifest(
            engine=engine_version(),
            tokenizer_digest=tokenizer.digest,
            tokenizer_origin=None if asked is None else _origin(pinned(runner.root, asked)),
            params_digest=_digest(source, runner.sources(), params),
            id_type=str(id_type(tokenizer.id_max)),
            id_max=tokenizer.id_max,
            begin_of_document_id=encoder.begin_id,
            end_of_document_id=encoder.end_id,
            special_tokens_in_text=params.special_tokens_in_text,
            chat=entry,
            n_documents=n_documents,
            n_tokens=sum(shard.n_tokens for shard in shards),
            text_bytes=sum(shard.text_bytes for shard in shards),
            n_bad=n_bad,
            n_dropped=n_dropped,
            quarantine_sha256=sha256_file(bad_documents),
            source=_reading(runner.sources()),
            sources=_entries(runner.sources(), units, shards),
            tables=write_tables(parts, runner.has_ids, tokenizer, tables, params.splits),
            inputs=[
                InputShard(name=shard.name, n_bytes=shard.n_bytes, sha256=sha256, source=shard.named_source)
                for shard, sha256 in corpus.sha256.items()
            ],
            shards=shards,
            files=files if formats else None,
            sets=written.sets,
            packed=written.packed,
            mixture=written.mixture,
            blends=write_blends(written.sets, directory),
        )
        write_manifest(manifest, directory)
    return manifest


def _refuse_epochs(epochs: Mapping[str, str], sources: Mapping[str | None, DocumentSource]) -> None:
    """Raises ParamsError for a budget of tokens that repeats its source too often."""
    for name, found in epochs.items():
        if Fraction(found) > EPOCHS_MAX:
            raise ParamsError(
                f"sources.{name}.tokens: found {sources[name].tokens:,}, which is {float(Fraction(found)):,.0f} epochs of the "
                f"source; allowed: at most {EPOCHS_MAX:,} epochs. Lower it, or add documents."
            )


def files_of(params: Encode, tokenizer: Tokenizer) -> Files:
    """The arrangement of the file sets. Raises ParamsError if the tokenizer lacks the padding token."""
    pad = None if params.pack is None else params.pack.pad
    return Files(
        file_bytes=params.file_bytes,
        splits=params.splits,
        split_group=params.split_group,
        shuffle=params.shuffle,
        pack=params.pack,
        pad_id=special_id(tokenizer, "pack.pad", pad),
    )


def special_id(tokenizer: Tokenizer, key: str, text: str | None) -> int | None:
    if text is None or text in tokenizer.special_tokens:
        return None if text is None else tokenizer.special_tokens[text]
    raise ParamsError(
        f"encode.{key}: found {text!r}; allowed: one of the tokenizer's special tokens "
        f"({listed(tokenizer.special_tokens)}), or null."
    )


def _origin(pin: Pin) -> Origin:
    return Origin(source=pin.asked.from_, name=pin.asked.name, version=pin.version, commit=pin.commit)


def _reading(sources: Mapping[str | None, DocumentSource]) -> Reading | None:
    """The manifest's entry of the only source; None if sources have names."""
    one = sources.get(None)
    if one is None:
        return None
    return Reading(
        text_column=one.text_column,
        id_column=one.id_column,
        text_separator=one.text_separator,
        conversations=entry_of(one.conversations),
        format=one.format,
    )


def _entries(
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
    unset = {key for key in ("messages_column", "tools_column", "template") if getattr(source, key) is None}
    no_chat = {"chat"} if params.chat is None else set()
    deciding = source.model_dump_json(exclude={"glob", "drop"} | unset) + params.model_dump_json(exclude=no_chat)
    named = [_deciding(one) for name, one in sources.items() if name is not None]
    return hashlib.sha256((deciding + (json.dumps(named) if named else "")).encode()).hexdigest()


def _deciding(source: DocumentSource) -> dict[str, Any]:
    """The fields of a named source that decide bytes. For texts there is no key `conversations`, so earlier digests stay valid."""
    fields = asdict(source) | {"globs": None}
    return {key: value for key, value in fields.items() if key != "conversations" or value is not None}
