"""encode: documents and tokenizer → token dataset."""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tokenmill.config.source_params import Source
from tokenmill.console import say
from tokenmill.corpus.dropped import DROPPED_FILE, none_dropped, read_dropped
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.unit_output import EncodeFacts, take_over
from tokenmill.file_sets.planned import documents_shape, shape_of
from tokenmill.filters import param_of
from tokenmill.layout import (
    QUARANTINE_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    VOCAB_SIZES_DIRECTORY,
)
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.unit_filters import unit_filters
from tokenmill.quantities import number_of
from tokenmill.rounds import Round, Rounds, Stage, do
from tokenmill.stages.encode_chat import tell_of_conversations
from tokenmill.stages.encode_dataset import EncodedCorpus, Folders, files_of, write_dataset
from tokenmill.stages.encode_sets import refuse_formats
from tokenmill.stages.encode_units import EncodeTask, encode_keys
from tokenmill.stages.encoder import Encoder, read_encoders
from tokenmill.storage.atomic import remove_tree, write_directory
from tokenmill.summary import StageSummary

UnitFilters = Mapping[str, Filters]
"""The filters of each unit, by the unit's name."""


def encode(project: Project) -> Stage:
    """Encodes every unit into one Parquet file of data/tokens/documents, and writes the manifest, the file sets, and data/tables.
    Bad documents, if params.yaml lets them pass, go to data/quarantine. Documents that filters leave out are listed. For each
    of `encode.vocab_sizes` there is such a dataset in data/vocab_sizes.

    Each directory appears atomically when the last unit is done. Raises CorpusError, ParamsError, TokenizerError, UnitsError.
    """
    root, params = project.root, project.params.encode
    filters = yield from unit_filters(project)
    main, others = read_encoders(root, params, project.cache_mb_max)
    _refuse_formats(project, [main, *others.values()])
    corpus = yield from _encode_units(project, main, filters)
    folders = Folders(root / TOKENS_DIRECTORY, root / QUARANTINE_DIRECTORY, root / TABLES_DIRECTORY)
    manifest = yield from write_dataset(project, corpus, root / TOKENIZER_DIRECTORY, folders)
    yield from _write_sizes(project, others, filters)
    _remember_digests(project, manifest)
    _tell_left_out(project, manifest, corpus, filters)
    tell_of_conversations(manifest)
    return StageSummary(
        "encode",
        "run",
        n_units=len(project.units),
        n_documents=manifest.n_documents,
        file_mb=project.corpus.n_bytes / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
    )


def _refuse_formats(project: Project, encoders: Sequence[Encoder]) -> None:
    params = project.params.encode
    formats = params.set_formats(project.sources.values())
    for encoder in encoders:
        shape = documents_shape(encoder.tokenizer, encoder.begin_id, encoder.end_id, project.has_ids, encoder.turns)
        refuse_formats(formats, params, shape_of(files_of(params, encoder.tokenizer), shape))


def _encode_units(project: Project, encoder: Encoder, filters: UnitFilters) -> Rounds[EncodedCorpus]:
    """Encodes all units."""
    params, source, units = project.params.encode, project.params.source, project.units
    keys = encode_keys(units, params, encoder, filters)
    if not project.force:
        _take_over(project, {keys[unit.name]: unit.source.keep_columns for unit in units})
    tasks = [
        EncodeTask(
            name=unit.name,
            key=keys[unit.name],
            unit=unit,
            seen=project.seen(unit),
            encoder=encoder,
            source=source,
            filters=filters[unit.name],
            group_column=params.split_group,
            stop_token=None if params.chat is None else params.chat.stop_token,
            limits=project.memory.limits,
        )
        for unit in units
    ]
    done = yield from do(Round("encode", tasks, EncodeFacts, partial(_is_within_limits, source)))
    return EncodedCorpus(encoder, tasks, done)


def _is_within_limits(source: Source, facts: EncodeFacts) -> bool:
    return facts.left.fits(source)


def _take_over(project: Project, keys: Mapping[str, Sequence[str]]) -> None:
    """Adds units that the store lacks from the dataset in dvc.lock. After `dvc pull` in a new clone, these are all units. `keys`:
    see take_over."""
    there = project.store.keys()
    lacking = {key: names for key, names in keys.items() if key not in there}
    if lacking and (n := take_over(project.store, lacking, project.recorded("encode"), project.memory.own_threads)):
        say(f"encode: {number_of(n, 'unit')} taken over from the dataset that dvc.lock records")


def _write_sizes(project: Project, encoders: Mapping[int, Encoder], filters: UnitFilters) -> Rounds[None]:
    """Writes the datasets of data/vocab_sizes, and removes those that are not asked for any more."""
    folder = project.root / VOCAB_SIZES_DIRECTORY
    for left in folder.iterdir() if folder.is_dir() else ():
        if left.name not in map(str, encoders):
            remove_tree(left)
    for size, encoder in encoders.items():
        below = folder / str(size)
        corpus = yield from _encode_units(project, encoder, filters)
        names = (TOKENS_DIRECTORY, QUARANTINE_DIRECTORY, TABLES_DIRECTORY)
        tokenizer = project.root / TOKENIZER_DIRECTORY / str(size)
        yield from write_dataset(project, corpus, tokenizer, Folders(*(below / Path(name).name for name in names)))
        with write_directory(below / Path(TOKENIZER_DIRECTORY).name) as partial_folder:
            for path in sorted(tokenizer.iterdir()):
                shutil.copyfile(path, partial_folder / path.name)


def _remember_digests(project: Project, manifest: Manifest) -> None:
    """Stores the digests of the dataset's files, so that validate does not read them again for that."""
    files = [(shard.name, shard.sha256) for shard in manifest.shards]
    files += [(file.name, file.sha256) for file in manifest.set_files()]
    for name, sha256 in files:
        project.digests.remember(project.root / TOKENS_DIRECTORY / name, "sha256", sha256)
    project.digests.save()


def _tell_left_out(project: Project, manifest: Manifest, corpus: EncodedCorpus, filters: UnitFilters) -> None:
    n_bad, n_dropped = manifest.n_bad, manifest.n_dropped
    n_damaged = sum(result.facts.left.n_pieces for result in corpus.done)
    if n_bad or n_damaged:
        say(
            f"encode: left out {number_of(n_bad, 'bad document')} and {number_of(n_damaged, 'damaged shard')}: "
            f"{QUARANTINE_DIRECTORY}/{QUARANTINE_FILE}"
        )
    if n_dropped:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in n_dropped.items())
        names = " and ".join(map(param_of, project.read_filters()))
        say(f"encode: left out {number_of(sum(n_dropped.values()), 'document')} by {names}: {reasons}")
    lists = project.read_lists()
    has_lines = n_dropped and any(map(len, lists.values()))
    dropped = read_dropped(project.root / TABLES_DIRECTORY / DROPPED_FILE) if has_lines else none_dropped()
    for name, whole in lists.items():
        of_units = [of_unit[name] for of_unit in filters.values() if name in of_unit]
        if words := whole.idle(of_units, dropped):
            say(f"encode: {words}")
