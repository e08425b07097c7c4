"""remap: a token dataset and a tokenizer that was trimmed from its own → the dataset of that tokenizer, without the documents."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.analysis.beside import beside, own_tokenizer, tokenizer_of
from tokenmill.artifacts.dataset_card import licenses_in, write_dataset_card
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import TableFile
from tokenmill.dataset.index_rows import write_with_lengths
from tokenmill.dataset.manifest import Manifest, engine_version, read_manifest, write_manifest
from tokenmill.dataset.tables import (
    DOCUMENTS_FILE,
    UNIT_INDEX_FILE,
    TableInput,
    table_entries,
    write_count_tables,
)
from tokenmill.dataset.unit_output import TOKENS_FILE
from tokenmill.errors import ParamsError
from tokenmill.features.trim.remap_task import RemapFacts, RemapTask, check_file
from tokenmill.file_sets.arrangement import Arrangement
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import epochs_of
from tokenmill.file_sets.planned import documents_shape
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.formats.tokens import id_type
from tokenmill.layout import QUARANTINE_DIRECTORY, TABLES_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.pools import Threads
from tokenmill.pipeline.run import Driver
from tokenmill.quantities import number_of
from tokenmill.rounds import Round, Rounds, do
from tokenmill.stages.encode_sets import write_blends, write_sets
from tokenmill.storage.atomic import write_directory
from tokenmill.storage.followed import files_in, followed
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import Done, UnitStore, unit_key
from tokenmill.tokenizer.folder_copy import copy_folder
from tokenmill.tokenizer.remapping import Remapping
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.manifest import CARD_FILE, FORMAT_VERSION
from tokenmill_reader.regular_files import read


class RemappedDataset(msgspec.Struct, frozen=True):
    """The numbers of a remapped dataset, before and after. `n_again`: the old ids that were decoded and encoded again."""

    n_documents: int
    n_tokens_before: int
    n_tokens: int
    n_again: int
    tokens_digest: str


class _Job(NamedTuple):
    """What is remapped, and to where."""

    manifest: Manifest
    dataset: Path
    new: Tokenizer
    remapping: Remapping
    directory: Path
    threads: int

    @property
    def tables(self) -> Path:
        """The folder of the dataset's tables."""
        return beside(self.dataset, TABLES_DIRECTORY)


def remap(dataset: Path, tokenizer: Path, directory: Path, own: Path | None, threads: int) -> RemappedDataset:
    """Writes the dataset, its tables and its quarantine into folders of a new `directory`, with the tokenizer beside them. The
    directory appears whole or not at all.

    `dataset`: its folder, with the tables beside it. `tokenizer`: the folder or file of a tokenizer that was trimmed from that of
    the dataset. `own`: the dataset's own tokenizer; None: the folder beside it. Raises ParamsError for a dataset that cannot be
    remapped, TokenizerError, and ValidationError for files that are not what the manifest says.
    """
    manifest = read_manifest(dataset)
    _refuse(manifest, dataset, directory)
    old = own_tokenizer(dataset, own, manifest.tokenizer_digest)
    folder, new = tokenizer_of(dataset, tokenizer)
    remapping = Remapping(old, new)
    with write_directory(directory.absolute()) as whole:
        with write_directory(whole / Path(TOKENIZER_DIRECTORY).name) as partial:
            if folder.is_dir():
                copy_folder(folder, partial)
            else:
                new.save(partial)
        with tempfile.TemporaryDirectory(prefix="tokenmill-remap-", dir=whole) as scratch:
            job = _Job(manifest, dataset, new, remapping, whole, threads)
            return Driver(Path(scratch), UnitStore(Path(scratch))).run(_remapped(job), Threads(threads))


def _refuse(manifest: Manifest, dataset: Path, directory: Path) -> None:
    """Raises ParamsError for a dataset whose new ids do not follow from the old ones, and for a directory with files in it."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ParamsError(
            directory, "expected a new or an empty directory; found something there.", "Name another one."
        )
    again = "Build it again with the new tokenizer."
    if manifest.chat is not None:
        what = "has conversations, and which part of a token is trained does not follow from its ids."
        raise ParamsError(dataset, what, again)
    if manifest.format_version < FORMAT_VERSION:
        what = f"has the format {manifest.format_version} of an earlier tokenmill; expected {FORMAT_VERSION}."
        raise ParamsError(dataset, what, again)


def _remapped(job: _Job) -> Rounds[RemappedDataset]:
    manifest, new = job.manifest, job.new
    for table in manifest.tables:
        check_file(job.tables / table.name, table)
    ends = list(accumulate((shard.n_documents for shard in manifest.shards), initial=0))
    tasks = [
        RemapTask(
            name=entry.name,
            key=unit_key(stage="remap", of=entry.unit, file=entry.name, tokenizer=new.digest),
            old=job.dataset / entry.name,
            entry=entry,
            index=job.tables / DOCUMENTS_FILE,
            rows=range(*rows),
            remapping=job.remapping,
            id_max=new.id_max,
        )
        for entry, rows in zip(manifest.shards, pairwise(ends), strict=True)
    ]
    done = yield from do(Round("remap", tasks, RemapFacts))
    with (
        write_directory(job.directory / Path(TOKENS_DIRECTORY).name) as tokens,
        write_directory(job.directory / Path(TABLES_DIRECTORY).name) as tables,
    ):
        for entry, result in zip(manifest.shards, done, strict=True):
            link(result.folder / TOKENS_FILE, tokens / entry.name)
        remapped = manifest.model_copy(update=_entries(job, tasks, done))
        remapped = remapped.model_copy(update=(yield from _sets(job, remapped, done, tokens)))
        remapped = remapped.model_copy(update={"tables": _write_tables(job, done, tables)})
        written = write_manifest(remapped, tokens)
        write_dataset_card(written, licenses_in(_card(job.dataset), manifest), tokens)
    quarantine = beside(job.dataset, QUARANTINE_DIRECTORY)
    if quarantine.is_dir():
        with write_directory(job.directory / quarantine.name) as partial:
            for name in files_in(quarantine):
                shutil.copyfile(quarantine / name, partial / name)
    return RemappedDataset(
        n_documents=remapped.n_documents,
        n_tokens_before=manifest.n_tokens,
        n_tokens=remapped.n_tokens,
        n_again=sum(result.facts.n_again for result in done),
        tokens_digest=remapped.tokens_digest(),
    )


def _card(dataset: Path) -> str:
    path = followed(dataset, CARD_FILE)
    return read(path).decode(errors="replace") if path.is_file() else ""


def _entries(job: _Job, tasks: Sequence[RemapTask], done: Sequence[Done[RemapFacts]]) -> dict[str, Any]:
    """The fields of the manifest that say what made the ids, and the entries of the documents' files."""
    manifest, new = job.manifest, job.new
    shards = [
        task.entry.model_copy(
            update={
                "unit": task.key,
                "n_bytes": result.files[TOKENS_FILE].n_bytes,
                "sha256": result.files[TOKENS_FILE].sha256,
                "n_tokens": result.facts.n_tokens,
                "tokens_sha256": result.facts.tokens_sha256,
            }
        )
        for task, result in zip(tasks, done, strict=True)
    ]
    n_tokens_of = Counter[str]()
    names = manifest.source_names()
    for shard in shards:
        n_tokens_of[names.get(shard.rows[0].name, "")] += shard.n_tokens
    return {
        "engine": engine_version(),
        "tokenizer_digest": new.digest,
        "tokenizer_origin": None,
        "tokenizer_files": table_entries(job.directory / Path(TOKENIZER_DIRECTORY).name),
        "id_type": str(id_type(new.id_max)),
        "id_max": new.id_max,
        "begin_of_document_id": job.remapping.new_id(manifest.begin_of_document_id),
        "end_of_document_id": job.remapping.new_id(manifest.end_of_document_id),
        "n_tokens": sum(shard.n_tokens for shard in shards),
        "sources": [source.model_copy(update={"n_tokens": n_tokens_of[source.name]}) for source in manifest.sources],
        "shards": shards,
    }


def _sets(job: _Job, remapped: Manifest, done: Sequence[Done[RemapFacts]], directory: Path) -> Rounds[dict[str, Any]]:
    """Writes the file sets, which are arranged as those of the dataset, and gives the fields of the manifest. `remapped`: the new
    manifest without them."""
    if remapped.files is None:
        return {}
    sources = remapped.source_names() if remapped.sources else {}
    numbers = {result.name: number for number, result in enumerate(remapped.sources)}
    units = []
    for (name, entry), result in zip(remapped.outputs(), done, strict=True):
        source = sources.get(entry.rows[0].name, "")
        digests = [result.files[file].sha256 for file in (TOKENS_FILE, UNIT_INDEX_FILE)]
        tokens, index = (result.folder / file for file in (TOKENS_FILE, UNIT_INDEX_FILE))
        units.append(EncodedUnit(name, tokens, index, entry.pieces, digests, source, numbers.get(source, 0)))
    epochs = epochs_of(remapped.sources, units, remapped.files.splits)
    files = remapped.files.model_copy(update={"epochs": epochs, "pad_id": job.remapping.new_id(remapped.files.pad_id)})
    names = dict.fromkeys(file_set.format for file_set in remapped.sets if file_set.format != INDEX_FORMAT.name)
    documents = documents_shape(job.new, remapped.begin_of_document_id, remapped.end_of_document_id, remapped.has_ids)
    arrangement = Arrangement(
        "remap", files, [SET_FORMATS[name] for name in names], documents, job.threads, code_digest("encode")
    )
    written = yield from write_sets(arrangement, units, remapped.tokens_digest(), directory)
    return {**written._asdict(), "files": files, "blends": write_blends(written.sets, directory)}


def _write_tables(job: _Job, done: Sequence[Done[RemapFacts]], directory: Path) -> list[TableFile]:
    """Writes the tables, and gives their entries: those with numbers of tokens are made again, the others are copied."""
    columns = [read_unit_index(result.folder / UNIT_INDEX_FILE, ["n_tokens"])["n_tokens"].to_numpy() for result in done]
    lengths = np.concatenate([np.empty(0, np.int64), *columns])
    write_with_lengths(job.tables / DOCUMENTS_FILE, directory / DOCUMENTS_FILE, lengths)
    names = job.manifest.source_names()
    parts = [
        TableInput(entry.name, entry.pieces, one.folder, names.get(entry.rows[0].name, ""))
        for entry, one in zip(job.manifest.shards, done, strict=True)
    ]
    write_count_tables(parts, job.new, directory)
    for table in job.manifest.tables:
        if not (directory / table.name).exists():
            shutil.copyfile(job.tables / table.name, directory / table.name)
    return table_entries(directory)


def lines_of(remapped: RemappedDataset, directory: Path) -> list[str]:
    """What was made, for people."""
    again = remapped.n_again / max(remapped.n_tokens_before, 1)
    return [
        f"{directory}: {number_of(remapped.n_documents, 'document')}, {number_of(remapped.n_tokens, 'token')} instead of "
        f"{remapped.n_tokens_before:,}",
        f"  {remapped.n_again:,} of the old tokens ({again:.2%}) were decoded and encoded again",
    ]
