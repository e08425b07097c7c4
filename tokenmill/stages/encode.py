"""encode: documents and tokenizer → token dataset."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from tokenmill.artifacts.golden import checked_tokenizer
from tokenmill.config.lockfile import Pin, pinned
from tokenmill.config.params import Encode, Source, TokenizerSource
from tokenmill.config.sources import DocumentSource
from tokenmill.console import Advance, progress, say
from tokenmill.corpus.drop import DropList, drop_list
from tokenmill.corpus.dropped import (
    DROPPED_FILE,
    piece_dropped,
    reasons_of,
    starts_of,
    write_dropped,
    write_unit_dropped,
)
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import (
    QUARANTINE_FILE,
    Documents,
    check_limit,
    left_out,
    piece_bad,
    write_left,
    write_quarantine,
)
from tokenmill.corpus.units import Unit, source_name
from tokenmill.counts.table import most_frequent
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.file_sets import documents_shape, shape_of
from tokenmill.dataset.formats.index import INDEX_FORMAT
from tokenmill.dataset.formats.parquet import write_tokens
from tokenmill.dataset.groups import GroupKeys
from tokenmill.dataset.items import EncodedUnit
from tokenmill.dataset.manifest import (
    Files,
    InputShard,
    Manifest,
    Origin,
    OutputShard,
    Reading,
    SourceEntry,
    engine_version,
    tokens_digest,
    write_manifest,
)
from tokenmill.dataset.mixture import epochs_of
from tokenmill.dataset.tables import UNIT_COUNTS_FILE, UNIT_INDEX_FILE, Part, write_tables
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.tokens import id_type, rows, schema
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts, output_shard, take_over
from tokenmill.errors import CountsError, ParamsError, SpecialTokenError
from tokenmill.layout import COUNTS_FILE, QUARANTINE_DIRECTORY, TABLES_DIRECTORY, TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_drops import lines_without_documents, unit_drops
from tokenmill.pipeline.unit_runner import UnitRunner, content
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.stages.encode_sets import refuse_formats, write_blends, write_sets
from tokenmill.storage.atomic import sha256_file, write_directory
from tokenmill.storage.links import link
from tokenmill.storage.unit_store import unit_key
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.tokenizer import Tokenizer

_N_WARM = 1 << 16  # this many frequent pre-tokens make up nearly all of a text
_WARM_BYTES_MIN = 1 << 24  # file bytes to encode; finding the frequent pre-tokens takes as long as encoding some 10 MB


def encode(
    source: Source, asked: TokenizerSource | None, params: Encode, runner: UnitRunner, run_units: RunUnits
) -> StageSummary:
    """Encodes every unit into one Parquet file of data/tokens, and writes the manifest beside them, and data/tables. Bad
    documents, if params.yaml lets them pass, go to data/quarantine. Documents that source.drop names are left out.

    `asked`: the imported tokenizer, if it was not trained here. The directory appears atomically when the last unit is done.
    Raises CorpusError, ParamsError, TokenizerError, UnitsError.
    """
    start_s = time.monotonic()
    corpus = runner.corpus
    units = corpus.units
    tokenizer, _ = checked_tokenizer(runner.root / TOKENIZER_DIRECTORY, runner.cache_mb_max)
    begin_id, end_id = framing_of(tokenizer, params)
    documents = documents_shape(tokenizer, begin_id, end_id, runner.has_ids)
    files = files_of(params, tokenizer)
    refuse_formats(params, shape_of(files, documents))
    _refuse_clashes(units, params)
    drops = unit_drops(source, runner, run_units)
    keys = encode_keys(units, params, tokenizer, (begin_id, end_id), drops)
    if not runner.anew:
        _take_over(set(keys.values()) - runner.store.keys(), runner)
    there = set() if runner.anew else runner.store.keys()
    n_bytes_todo = sum(unit.n_bytes for unit in units if keys[unit.name] not in there)
    policies = {one.special_tokens_in_text for one in runner.sources().values()}
    warm = partial(_warm, tokenizer, runner.root / COUNTS_FILE, policies)
    with progress("encode", corpus.n_bytes, "bytes") as now:
        do = partial(
            encode_unit,
            warm=cache(warm) if n_bytes_todo >= _WARM_BYTES_MIN else lambda: None,
            source=source,
            drops=drops,
            tokenizer=tokenizer,
            begin_id=begin_id,
            end_id=end_id,
            group_column=params.split_group,
            limits=runner.memory.limits,
            advance=now.add,
        )
        done = runner.finish(
            "encode", do, units, keys, EncodeFacts, run_units, now.skip, lambda facts: facts.left.fits(source)
        )
    tokenizer.forget()  # frees its cache, because validate uses the same tokenizer
    shards = [output_shard(unit, keys[unit.name], one) for unit, one in zip(units, done, strict=True)]
    n_documents = sum(shard.n_documents for shard in shards)
    n_bad = check_limit(units, [one.facts.left for one in done], n_documents, source)
    n_dropped = dict(sorted(sum((Counter(one.facts.reasons) for one in done), Counter()).items()))
    folders = [one.folder for one in done]
    parts = [
        Part(unit.output, [piece.shard.name for piece in unit.pieces], folder, source_name(unit.pieces[0].shard))
        for unit, folder in zip(units, folders, strict=True)
    ]
    with (
        write_directory(runner.root / TOKENS_DIRECTORY) as directory,
        write_directory(runner.root / QUARANTINE_DIRECTORY) as quarantine,
        write_directory(runner.root / TABLES_DIRECTORY) as tables,
    ):
        for shard, folder in zip(shards, folders, strict=True):
            link(folder / TOKENS_FILE, directory / shard.name)
        encoded = [
            EncodedUnit(
                unit.output,
                one.folder / TOKENS_FILE,
                one.folder / UNIT_INDEX_FILE,
                [piece.shard.name for piece in unit.pieces],
                [one.files[TOKENS_FILE].sha256, one.files[UNIT_INDEX_FILE].sha256],
                unit.source.name or "",
            )
            for unit, one in zip(units, done, strict=True)
        ]
        if params.set_formats:
            files = files.model_copy(update={"epochs": epochs_of(runner.sources().values(), encoded, params.splits)})
        made_from = tokens_digest(tokenizer.digest, ((shard.name, shard.sha256) for shard in shards))
        sets, packed = write_sets(encoded, params, files, documents, made_from, runner, run_units, directory)
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
            begin_of_document_id=begin_id,
            end_of_document_id=end_id,
            special_tokens_in_text=params.special_tokens_in_text,
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
            files=files if params.set_formats else None,
            sets=sets,
            packed=packed,
            blends=write_blends(sets, directory),
        )
        write_manifest(manifest, directory)
    made = [(shard.name, shard.sha256) for shard in shards]
    made += [(file.name, file.sha256) for file in manifest.set_files()]
    for name, sha256 in made:
        runner.digests.remember(runner.root / TOKENS_DIRECTORY / name, "sha256", sha256)
    runner.digests.save()
    n_damaged = sum(one.facts.left.n_pieces for one in done)
    if n_bad or n_damaged:
        say(
            f"encode: left out {n_bad:,} bad documents and {n_damaged:,} damaged shards: {QUARANTINE_DIRECTORY}/{QUARANTINE_FILE}"
        )
    if n_dropped:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in n_dropped.items())
        say(f"encode: left out {sum(n_dropped.values()):,} documents by source.drop: {reasons}")
    listed = drop_list(runner.root, source.drop, runner.has_ids)
    if idle := lines_without_documents(listed, drops):
        n = f"{len(idle):,} of the {len(listed.lines):,} lines"
        say(f"encode: {n} of source.drop name no document; the first: {source.drop}, {idle[0].place}")
    return StageSummary(
        "encode",
        "run",
        n_units=len(units),
        n_documents=manifest.n_documents,
        file_mb=corpus.n_bytes / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def _take_over(lacking: Set[str], runner: UnitRunner) -> None:
    """Adds units that the store lacks from the dataset in dvc.lock. After `dvc pull` in a new clone, these are all units."""
    files = runner.recorded("encode") if lacking else {}
    if n := take_over(runner.store, lacking, files, runner.memory.workers):
        say(f"encode: {n:,} units taken over from the dataset that dvc.lock records")


def _warm(tokenizer: Tokenizer, path: Path, policies: Set[SpecialTokensInText]) -> None:
    """Warms the cache with the most frequent pre-tokens of the counts, once for all threads. If the counts are missing or belong
    to other text, encoding is only slower. Damaged counts do not matter here either, because `count` reports them."""
    if tokenizer.engine != "core":
        return
    try:
        frequent = most_frequent(path, _N_WARM)
        for special in sorted({"allow" if one == "allow" else "as_text" for one in policies}):
            tokenizer.warm(frequent, _N_WARM, special)
    except CountsError:
        return


def encode_unit(
    unit: Unit,
    directory: Path,
    warm: Callable[[], None],
    source: Source,
    drops: Mapping[str, DropList],
    tokenizer: Tokenizer,
    begin_id: int | None,
    end_id: int | None,
    group_column: str | None,
    limits: Limits,
    advance: Advance,
) -> EncodeFacts:
    """Encodes one unit into a file in `directory`, with its document index and token counts. `warm` is called before the first
    document. `drops`: what to leave out, by the unit's name. `group_column`: the column whose value decides a document's split."""
    warm()
    has_names, special = unit.source.id_column is not None, unit.source.special_tokens_in_text
    shape = schema(id_type(tokenizer.id_max), has_names)
    counts = TokenCounts(tokenizer.id_max)
    piece_documents = [0] * len(unit.pieces)
    n_tokens = text_bytes = 0
    documents = Documents(unit, source, limits, advance, drops[unit.name].find)
    groups = None if group_column is None else GroupKeys(unit, group_column, limits)
    with (
        write_tokens(directory / TOKENS_FILE, shape) as write,
        unit_index(directory / UNIT_INDEX_FILE, has_names, groups) as add_to_index,
    ):
        for piece, batch in documents:
            try:
                input_ids = tokenizer.encode_batch(
                    batch.texts, threads=1, begin_id=begin_id, end_id=end_id, special=special
                )
            except SpecialTokenError as error:
                name, row = unit.pieces[piece].shard.name, batch.rows()[error.index].as_py()
                raise SpecialTokenError(row, error.byte_offset, error.token, f"{name}, row {row}") from None
            piece_documents[piece] += len(input_ids)
            n_tokens += len(input_ids.values)
            text_bytes += batch.text_bytes
            counts.add(input_ids.values)
            made = rows(batch, input_ids, shape)
            write(made)
            add_to_index(piece, batch, made)
            advance(0, len(input_ids.values))
    counts.write(directory / UNIT_COUNTS_FILE)
    write_left(documents.left, directory)
    write_unit_dropped(documents.dropped, directory)
    return EncodeFacts(
        piece_documents=piece_documents,
        piece_bad=piece_bad(unit, documents.left),
        piece_dropped=piece_dropped(len(unit.pieces), documents.dropped),
        reasons=reasons_of(documents.dropped),
        left=left_out(documents.left),
        n_tokens=n_tokens,
        text_bytes=text_bytes,
    )


def framing_of(tokenizer: Tokenizer, params: Encode) -> tuple[int | None, int | None]:
    """The ids of `encode.begin_of_document` and `encode.end_of_document`. Raises ParamsError if the tokenizer has not got them."""
    return (
        _special_id(tokenizer, "begin_of_document", params.begin_of_document),
        _special_id(tokenizer, "end_of_document", params.end_of_document),
    )


def encode_keys(
    units: Sequence[Unit],
    params: Encode,
    tokenizer: Tokenizer,
    framing: tuple[int | None, int | None],
    drops: Mapping[str, DropList],
) -> dict[str, str]:
    """The key of each unit in the unit store, by the unit's name. `drops`: what to leave out, by that name."""
    decides = {
        "code": code_digest("encode"),
        "tokenizer": tokenizer.digest,
        "engine": tokenizer.engine,
        "framing": framing,
        "group": params.split_group,
    }
    return {
        unit.name: unit_key(
            stage="encode",
            content=content(unit, with_rows=unit.source.id_column is None),  # a document's id is its row then
            drop=drops[unit.name].as_key(),
            special=unit.source.special_tokens_in_text,
            source=unit.source.reading(),
            **decides,
        )
        for unit in units
    }


def files_of(params: Encode, tokenizer: Tokenizer) -> Files:
    """How the file sets are arranged. Raises ParamsError if the tokenizer has not got the token that fills sequences up."""
    pad = None if params.pack is None else params.pack.pad
    return Files(
        file_bytes=params.file_bytes,
        splits=params.splits,
        split_group=params.split_group,
        shuffle=params.shuffle,
        pack=params.pack,
        pad_id=_special_id(tokenizer, "pack.pad", pad),
    )


def _refuse_clashes(units: Sequence[Unit], params: Encode) -> None:
    """Raises ParamsError if a file of documents would be in the folder of a format."""
    folders = {*params.set_formats, INDEX_FORMAT.name}
    for unit in units:
        if (folder := unit.output.partition("/")[0]) in folders and params.set_formats:
            raise ParamsError(
                f"encode.formats: the files of {unit.pieces[0].shard.name} would be in {TOKENS_DIRECTORY}/{folder}, which is the "
                f"folder of that format. Rename the folder {folder} of the documents."
            )


def _origin(pin: Pin) -> Origin:
    return Origin(source=pin.asked.from_, name=pin.asked.name, version=pin.version, commit=pin.commit)


def _special_id(tokenizer: Tokenizer, key: str, text: str | None) -> int | None:
    if text is None or text in tokenizer.special_tokens:
        return None if text is None else tokenizer.special_tokens[text]
    raise ParamsError(
        f"encode.{key}: found {text!r}; allowed: one of the tokenizer's special tokens "
        f"{list(tokenizer.special_tokens)}, or null."
    )


def _reading(sources: Mapping[str | None, DocumentSource]) -> Reading | None:
    """The manifest's entry of the one source without a name; None where there are names."""
    one = sources.get(None)
    if one is None:
        return None
    return Reading(text_column=one.text_column, id_column=one.id_column, text_separator=one.text_separator)


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
    deciding = source.model_dump_json(exclude={"glob", "drop"}) + params.model_dump_json()
    named = [asdict(one) | {"globs": None} for name, one in sources.items() if name is not None]
    return hashlib.sha256((deciding + (json.dumps(named) if named else "")).encode()).hexdigest()
