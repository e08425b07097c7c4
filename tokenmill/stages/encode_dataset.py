"""encode, in the middle: encoded units → a dataset with its manifest, file sets, tables and quarantine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tokenmill.artifacts.dataset_card import write_dataset_card
from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.config.chat_params import Chat
from tokenmill.config.encode_params import Encode
from tokenmill.config.sources import EPOCHS_MAX, DocumentSource
from tokenmill.corpus.dropped import DROPPED_FILE, starts_of, write_dropped
from tokenmill.corpus.quarantine import QUARANTINE_FILE, check_limit, write_quarantine
from tokenmill.corpus.units import Unit, source_name
from tokenmill.dataset.document_index import n_repeated_tokens
from tokenmill.dataset.entries import ChatEntry, Files, InputShard, OutputShard
from tokenmill.dataset.manifest import Manifest, write_manifest
from tokenmill.dataset.tables import UNIT_INDEX_FILE, TableInput, table_entries, write_tables
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts, output_shard
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.file_sets.arrangement import Arrangement
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import epochs_of
from tokenmill.file_sets.planned import documents_shape
from tokenmill.filters import asked_values, packages_of
from tokenmill.format_facts import that_hold_masks
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.project import Project
from tokenmill.rounds import Rounds
from tokenmill.stages.encode_chat import check_cut, check_stopped, check_trained, is_sure
from tokenmill.stages.encode_manifest import only_reading, origin_of, source_entries
from tokenmill.stages.encode_sets import WrittenSets, trains_all, write_blends, write_sets
from tokenmill.stages.encode_units import EncodeTask
from tokenmill.stages.encoder import Encoder, special_id
from tokenmill.storage.atomic import write_directory
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import Done
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.manifest import tokens_digest
from tokenmill_reader.regular_files import sha256_file


class EncodedCorpus(NamedTuple):
    """All units under one encoder: the task of each, and its result in the unit store."""

    encoder: Encoder
    tasks: Sequence[EncodeTask]
    done: Sequence[Done[EncodeFacts]]

    def entries(self) -> list[OutputShard]:
        """The manifest's entries of the units' files."""
        return [
            output_shard(unit, task.key, one) for unit, task, one in zip(self.units, self.tasks, self.done, strict=True)
        ]

    @property
    def units(self) -> list[Unit]:
        """The units, in the order of the tasks."""
        return [task.unit for task in self.tasks if task.unit is not None]

    def encoded_units(self, sources: Sequence[str | None]) -> list[EncodedUnit]:
        """The units as the file sets read them. `sources`: the names of all sources, in the order of the manifest."""
        return [
            EncodedUnit(
                unit.output,
                result.folder / TOKENS_FILE,
                result.folder / UNIT_INDEX_FILE,
                starts_of(unit),
                [result.files[TOKENS_FILE].sha256, result.files[UNIT_INDEX_FILE].sha256],
                unit.source.name or "",
                sources.index(unit.source.name),
            )
            for unit, result in zip(self.units, self.done, strict=True)
        ]


class Folders(NamedTuple):
    """The folders that a dataset is written to."""

    tokens: Path
    quarantine: Path
    tables: Path


def write_dataset(project: Project, corpus: EncodedCorpus, tokenizer: Path, folders: Folders) -> Rounds[Manifest]:
    """Writes the dataset of the encoded units, its file sets, tables and quarantine. `tokenizer`: the folder of its tokenizer.
    Returns the manifest. Raises CorpusError, ParamsError, UnitsError."""
    params, units, shards = project.params.encode, project.units, corpus.entries()
    n_good = sum(sum(result.facts.piece_documents) for result in corpus.done)
    n_bad = check_limit(units, [result.facts.left for result in corpus.done], n_good, project.params.source)
    entry = _checked_entry(params.chat, corpus, sum(shard.n_tokens for shard in shards))
    unit_folders = [result.folder for result in corpus.done]
    with (
        write_directory(folders.tokens) as directory,
        write_directory(folders.quarantine) as quarantine,
        write_directory(folders.tables) as tables,
    ):
        for shard, folder in zip(shards, unit_folders, strict=True):
            link(folder / TOKENS_FILE, directory / shard.name)
        files, sets = yield from _write_sets(project, corpus, directory)
        bad_documents = quarantine / QUARANTINE_FILE
        write_quarantine(bad_documents, zip(units, unit_folders, strict=True))
        starts = [starts_of(unit) for unit in units]
        write_dropped(tables / DROPPED_FILE, zip(starts, unit_folders, strict=True))
        parts = [
            TableInput(shard.name, start, folder, source_name(unit.pieces[0].shard))
            for unit, shard, start, folder in zip(units, shards, starts, unit_folders, strict=True)
        ]
        manifest = Manifest(
            **origin_of(project, corpus.encoder),
            tokenizer_files=table_entries(tokenizer),
            chat=entry,
            n_documents=sum(shard.n_documents for shard in shards),
            n_tokens=sum(shard.n_tokens for shard in shards),
            text_bytes=sum(shard.text_bytes for shard in shards),
            n_bad=n_bad,
            n_dropped=dict(sorted(sum((Counter(result.facts.reasons) for result in corpus.done), Counter()).items())),
            filters=(filters := asked_values(project.params.source)),
            filter_packages=packages_of(filters),
            quarantine_sha256=sha256_file(bad_documents),
            source=only_reading(project.sources),
            sources=source_entries(project.sources, units, shards),
            tables=write_tables(parts, project.has_ids, corpus.encoder.tokenizer, tables, params.splits),
            inputs=[
                InputShard(name=shard.name, n_bytes=shard.n_bytes, sha256=sha256, source=shard.named_source)
                for shard, sha256 in project.corpus.sha256.items()
            ],
            shards=shards,
            files=files,
            sets=sets.sets,
            packed=sets.packed,
            mixture=sets.mixture,
            blends=write_blends(sets.sets, directory),
        )
        manifest = write_manifest(manifest, directory)
        write_dataset_card(manifest, project.params.licenses(), directory)
    return manifest


def _write_sets(project: Project, corpus: EncodedCorpus, directory: Path) -> Rounds[tuple[Files | None, WrittenSets]]:
    """Writes the file sets into `directory`, and returns their arrangement (None without file sets) and their entries."""
    params, encoder = project.params.encode, corpus.encoder
    encoded = corpus.encoded_units(list(project.sources))
    formats = params.set_formats(project.sources.values())
    files = files_of(params, encoder.tokenizer)
    _refuse_left_out([name for name in formats if trains_all(name, params)], corpus)
    if formats:
        epochs = epochs_of(project.sources.values(), encoded, params.splits)
        _refuse_epochs(epochs, project.sources)
        is_mixed = files.shuffle is not None and len(epochs) > 1
        files = files.model_copy(update={"epochs": epochs, "source_ids": is_mixed})
    contents = ((unit.output, one.facts.tokens_sha256) for unit, one in zip(corpus.units, corpus.done, strict=True))
    made_from = tokens_digest(encoder.tokenizer.digest, contents)
    documents = documents_shape(encoder.tokenizer, encoder.begin_id, encoder.end_id, project.has_ids, encoder.turns)
    writers = [SET_FORMATS[name] for name in formats]
    arrangement = Arrangement("encode", files, writers, documents, project.memory.workers, code_digest("encode"))
    written = yield from write_sets(arrangement, encoded, made_from, directory)
    if params.chat is not None:
        check_cut(params.chat, params.pack, encoded, written.packed)
    return files if formats else None, written


def _checked_entry(params: Chat | None, corpus: EncodedCorpus, n_tokens: int) -> ChatEntry | None:
    """The manifest's entry of the chat template, with the numbers of answers; None for texts. Raises CorpusError if a model would
    not learn to answer, or where to stop."""
    entry = corpus.encoder.entry
    if entry is None or params is None:
        return None
    of_units = [result.facts.answers or AnswerCounts() for result in corpus.done]
    answers = added(of_units)
    n_trained = sum(result.facts.n_trained or 0 for result in corpus.done)
    entry = entry.model_copy(update={"n_trained": n_trained, "answers": answers})
    if entry.turns == "each":
        n_repeated = sum(n_repeated_tokens(result.folder / UNIT_INDEX_FILE) for result in corpus.done)
        entry = entry.model_copy(update={"n_repeated": n_repeated})
    check_trained(entry, n_tokens)
    sure = [counts for counts in of_units if is_sure(params.stop_token, counts)]
    for counts in [*sure, answers]:
        check_stopped(corpus.encoder.chat, params.stop_token, counts)
    return entry


def _refuse_left_out(formats: Sequence[str], corpus: EncodedCorpus) -> None:
    """Raises CorpusError if some tokens are not to be trained. `formats`: those whose readers train all of a conversation."""
    n_tokens = sum(result.facts.n_tokens for result in corpus.done)
    n_trained = sum(result.facts.n_trained or 0 for result in corpus.done)
    if formats and n_trained < n_tokens:
        raise CorpusError(
            f"encode.formats: {', '.join(formats)}",
            f"the readers train every token, and {n_tokens - n_trained:,} of {n_tokens:,} are in messages that are not to be "
            "trained, by a key such as weight.",
            f"Remove the key from the messages, or choose {that_hold_masks(is_packed=False)}.",
        )


def _refuse_epochs(epochs: Mapping[str, str], sources: Mapping[str | None, DocumentSource]) -> None:
    """Raises ParamsError for a budget of tokens that repeats its source too often."""
    for name, n_epochs in epochs.items():
        if Fraction(n_epochs) > EPOCHS_MAX:
            raise ParamsError(
                f"sources.{name}.tokens",
                f"found {sources[name].tokens:,}, which is {float(Fraction(n_epochs)):,.0f} epochs of the source; "
                f"allowed: at most {EPOCHS_MAX:,} epochs.",
                "Lower it, or add documents.",
            )


def files_of(params: Encode, tokenizer: Tokenizer) -> Files:
    """The arrangement of the file sets. Raises ParamsError if the tokenizer lacks the padding token."""
    pad = None if params.pack is None else params.pack.pad
    return Files(
        file_bytes=params.part_bytes,
        min_parts=params.min_parts,
        splits=params.splits,
        split_group=params.split_group,
        shuffle=params.shuffle,
        pack=params.pack,
        pad_id=special_id(tokenizer, "pack.pad", pad),
    )
