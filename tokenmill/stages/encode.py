"""encode: documents and tokenizer → token dataset."""

import shutil
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden import checked_tokenizer
from tokenmill.chat.answers import AnswerCounts, added
from tokenmill.config.params import Encode, Source, StopToken, TokenizerSource
from tokenmill.console import progress, say
from tokenmill.corpus.drop import DropList, drop_list
from tokenmill.corpus.dropped import (
    DROPPED_FILE,
    piece_dropped,
    read_dropped,
    reasons_of,
    write_unit_dropped,
)
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import (
    QUARANTINE_FILE,
    Documents,
    left_out,
    piece_bad,
    write_left,
)
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.counts.table import most_frequent
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.groups import GroupKeys
from tokenmill.dataset.manifest import ChatEntry, Manifest
from tokenmill.dataset.tables import UNIT_COUNTS_FILE, UNIT_INDEX_FILE
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts, take_over
from tokenmill.errors import ChatError, CorpusError, CountsError, ParamsError, SpecialTokenError
from tokenmill.file_sets.planned import documents_shape, shape_of
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill.layout import (
    COUNTS_FILE,
    QUARANTINE_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
    VOCAB_SIZES_DIRECTORY,
)
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_drops import lines_without_documents, unit_drops
from tokenmill.pipeline.unit_runner import UnitRunner, content
from tokenmill.pipeline.unit_work import Job
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.stages.encode_chat import chat_encoder, chat_entry, check_stopped, is_sure, tell_of_answers
from tokenmill.stages.encode_dataset import Encoder, Folders, files_of, special_id, write_dataset
from tokenmill.stages.encode_sets import refuse_formats
from tokenmill.storage.atomic import remove_tree, write_directory
from tokenmill.storage.unit_store import Done, UnitStore, unit_key
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.tokenizer import Tokenizer

_warming = Lock()
_N_WARM = 1 << 16  # this many frequent pre-tokens cover nearly all text
_WARM_BYTES_MIN = 1 << 24  # of files to encode; warming takes as long as encoding some 10 MB


def encode(
    source: Source, asked: TokenizerSource | None, params: Encode, runner: UnitRunner, run_units: RunUnits
) -> StageSummary:
    """Encodes every unit into one Parquet file of data/tokens/documents, and writes the manifest, the file sets, and data/tables.
    Bad documents, if params.yaml lets them pass, go to data/quarantine. Documents that source.drop names are left out. For each
    of `encode.vocab_sizes` there is such a dataset in data/vocab_sizes, encoded in the same reading.

    `asked`: the imported tokenizer, if it was not trained here. Each directory appears atomically when the last unit is done.
    Raises CorpusError, ParamsError, TokenizerError, UnitsError.
    """
    start_s = time.monotonic()
    root, units = runner.root, runner.corpus.units
    drops = unit_drops(source, runner, run_units)
    cache_mb = runner.cache_mb_max // (1 + len(params.vocab_sizes))
    tokenizer = checked_tokenizer(root / TOKENIZER_DIRECTORY, cache_mb)
    entry = None if params.chat is None else chat_entry(root, params.chat)
    main = _encoder(tokenizer, params, entry, units, drops)
    others = {
        size: _encoder(_of_size(root, size, cache_mb), params, entry, units, drops)
        for size in sorted(params.vocab_sizes)
    }
    formats = params.set_formats(runner.sources().values())
    for one in (main, *others.values()):
        shape = documents_shape(one.tokenizer, one.begin_id, one.end_id, runner.has_ids, entry is not None)
        refuse_formats(formats, params, shape_of(files_of(params, one.tokenizer), shape))
    if not runner.anew and not others:
        _take_over(set(main.keys.values()) - runner.store.keys(), runner)
    done = _encode_units(source, params, main, list(others.values()), drops, runner, run_units)
    folders = Folders(root / TOKENS_DIRECTORY, root / QUARANTINE_DIRECTORY, root / TABLES_DIRECTORY)
    manifest = write_dataset(source, asked, params, main, done, folders, runner, run_units)
    _write_sizes(source, asked, params, others, drops, runner, run_units)
    files = [(shard.name, shard.sha256) for shard in manifest.shards]
    for name, sha256 in [*files, *((file.name, file.sha256) for file in manifest.set_files())]:
        runner.digests.remember(root / TOKENS_DIRECTORY / name, "sha256", sha256)
    runner.digests.save()
    _tell_left_out(source, manifest, done, drops, runner)
    if manifest.chat is not None and manifest.chat.answers is not None:
        tell_of_answers(manifest.chat.answers)
    return StageSummary(
        "encode",
        "run",
        n_units=len(units),
        n_documents=manifest.n_documents,
        file_mb=runner.corpus.n_bytes / 1e6,
        done_mb=runner.done_bytes["encode"] / 1e6,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def _of_size(root: Path, size: int, cache_mb: int) -> Tokenizer:
    """Loads the trained tokenizer of that vocabulary size. Raises ParamsError if there is none."""
    folder = root / TOKENIZER_DIRECTORY / str(size)
    if not folder.is_dir():
        raise no_such_size(size)
    tokenizer = Tokenizer.load(folder, cache_mb_max=cache_mb)
    tokenizer.shared_at = folder
    return tokenizer


def no_such_size(size: int) -> ParamsError:
    """The error for one of encode.vocab_sizes that was not trained."""
    return ParamsError(
        f"encode.vocab_sizes: found {size}; allowed: sizes of train_vocab.vocab_sizes, whose tokenizers are in "
        f"{TOKENIZER_DIRECTORY}. Add {size} to train_vocab.vocab_sizes, or take it out here."
    )


def _encoder(
    tokenizer: Tokenizer,
    params: Encode,
    entry: ChatEntry | None,
    units: Sequence[Unit],
    drops: Mapping[str, DropList],
) -> Encoder:
    framing = framing_of(tokenizer, params)
    keys = encode_keys(units, params, tokenizer, framing, entry, drops)
    return Encoder(tokenizer, *framing, keys, entry, None if entry is None else chat_encoder(tokenizer, entry))


def _encode_units(
    source: Source,
    params: Encode,
    encoder: Encoder,
    others: Sequence[Encoder],
    drops: Mapping[str, DropList],
    runner: UnitRunner,
    run_units: RunUnits,
) -> list[Done[EncodeFacts]]:
    """Encodes the missing units, and gives all units from the store. `others`: encoders whose missing units are made in the same
    reading."""
    corpus = runner.corpus
    there = set() if runner.anew else runner.store.keys()
    n_bytes_todo = sum(unit.n_bytes for unit in corpus.units if encoder.keys[unit.name] not in there)
    with progress("encode", corpus.n_bytes, "bytes") as now:
        do = partial(
            encode_unit,
            counts=runner.root / COUNTS_FILE if n_bytes_todo >= _WARM_BYTES_MIN else None,
            source=source,
            encoders=[one._replace(keys={}) for one in (encoder, *others)],
            group_column=params.split_group,
            stop_token=None if params.chat is None else params.chat.stop_token,
            limits=runner.memory.limits,
            store=runner.store,
            anew=runner.anew,
        )
        own = {unit.name: (drops[unit.name], [one.keys[unit.name] for one in others]) for unit in corpus.units}
        done = runner.finish(
            "encode",
            do,
            corpus.units,
            encoder.keys,
            EncodeFacts,
            run_units,
            own,
            now,
            lambda facts: facts.left.fits(source),
        )
    encoder.tokenizer.forget()  # frees its cache, because validate uses the same tokenizer
    return done


def _write_sizes(
    source: Source,
    asked: TokenizerSource | None,
    params: Encode,
    encoders: Mapping[int, Encoder],
    drops: Mapping[str, DropList],
    runner: UnitRunner,
    run_units: RunUnits,
) -> None:
    """Writes the datasets of data/vocab_sizes, and removes those that are not asked for any more."""
    folder = runner.root / VOCAB_SIZES_DIRECTORY
    for left in folder.iterdir() if folder.is_dir() else ():
        if left.name not in map(str, encoders):
            remove_tree(left)
    again = replace(runner, anew=False)  # the first dataset's pass already recomputed these units (--force)
    for size, encoder in encoders.items():
        below = folder / str(size)
        done = _encode_units(source, params, encoder, [], drops, again, run_units)
        folders = Folders(
            *(below / Path(name).name for name in (TOKENS_DIRECTORY, QUARANTINE_DIRECTORY, TABLES_DIRECTORY))
        )
        write_dataset(source, asked, params, encoder, done, folders, runner, run_units)
        with write_directory(below / Path(TOKENIZER_DIRECTORY).name) as partial_folder:
            for path in sorted((runner.root / TOKENIZER_DIRECTORY / str(size)).iterdir()):
                shutil.copyfile(path, partial_folder / path.name)


def _tell_left_out(
    source: Source,
    manifest: Manifest,
    done: Sequence[Done[EncodeFacts]],
    drops: Mapping[str, DropList],
    runner: UnitRunner,
) -> None:
    n_bad, n_dropped = manifest.n_bad, manifest.n_dropped
    n_damaged = sum(one.facts.left.n_pieces for one in done)
    if n_bad or n_damaged:
        say(
            f"encode: left out {n_bad:,} bad documents and {n_damaged:,} damaged shards: {QUARANTINE_DIRECTORY}/{QUARANTINE_FILE}"
        )
    if n_dropped:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in n_dropped.items())
        say(f"encode: left out {sum(n_dropped.values()):,} documents by source.drop: {reasons}")
    listed = drop_list(runner.root, source.drop, runner.has_ids)
    dropped = read_dropped(runner.root / TABLES_DIRECTORY / DROPPED_FILE) if n_dropped else {}
    if idle := lines_without_documents(listed, drops, chain.from_iterable(dropped.values())):
        n = f"{len(idle):,} of the {len(listed.lines):,} lines"
        say(f"encode: {n} of source.drop name no document; the first: {source.drop}, {idle[0].place}")


def _take_over(lacking: Set[str], runner: UnitRunner) -> None:
    """Adds units that the store lacks from the dataset in dvc.lock. After `dvc pull` in a new clone, these are all units."""
    files = runner.recorded("encode") if lacking else {}
    if n := take_over(runner.store, lacking, files, runner.memory.own_threads):
        say(f"encode: {n:,} units taken over from the dataset that dvc.lock records")


def _warm(tokenizers: Sequence[Tokenizer], path: Path, special: SpecialTokensInText) -> None:
    """Warms the caches with the most frequent pre-tokens of the counts, once for all threads. If the counts are missing or belong
    to other text, encoding is only slower. Damaged counts do not matter here either, because `count` reports them."""
    with _warming:
        cold = [one for one in tokenizers if one.model is not None and special not in one.warmed]
        for tokenizer in cold:
            tokenizer.warmed.add(special)
        try:
            frequent = most_frequent(path, _N_WARM) if cold else None
        except CountsError:
            return
        for tokenizer in cold:
            tokenizer.warm(frequent, _N_WARM, special)


class _Output:
    """The files of one unit under one encoder, while they are written."""

    def __init__(
        self, unit: Unit, encoder: Encoder, folder: Path, group_keys: GroupKeys | None, stack: ExitStack
    ) -> None:
        self.encoder, self.folder = encoder, folder
        has_names, has_mask = unit.source.id_column is not None, encoder.chat is not None
        self.n_tokens = self.text_bytes = 0
        self.n_trained = 0 if has_mask else None
        self.answers = AnswerCounts() if has_mask else None
        self._special = unit.source.special_tokens_in_text
        self._shape = schema(id_type(encoder.tokenizer.id_max), has_names, has_mask)
        self._counts = TokenCounts(encoder.tokenizer.id_max)
        self.digest = TokensDigest()
        first_rows = [piece.first_row for piece in unit.pieces]
        self._write = stack.enter_context(write_tokens(folder / TOKENS_FILE, self._shape))
        self._add = stack.enter_context(
            unit_index(folder / UNIT_INDEX_FILE, first_rows, has_names, group_keys, has_mask)
        )

    def add(self, piece: int, batch: Batch) -> int:
        """Encodes a batch of documents, and gives the number of tokens. Raises SpecialTokenError, ChatError."""
        batch, input_ids, loss_mask = self._encoded(batch)
        self._counts.add(input_ids.values)
        n_tokens = len(input_ids.values)
        self.n_tokens += n_tokens
        self.text_bytes += batch.text_bytes
        if self.n_trained is not None and loss_mask is not None:
            self.n_trained += pc.sum(loss_mask.values).as_py() or 0
        made = rows(batch, input_ids, self._shape, loss_mask)
        del input_ids, loss_mask  # of a long document they take much memory, and so does writing it
        self._write(made)
        self._add(piece, batch, made)
        self.digest.add(made)
        return n_tokens

    def _encoded(self, batch: Batch) -> tuple[Batch, pa.LargeListArray, pa.LargeListArray | None]:
        """The batch with the texts that were encoded, their ids, and the loss masks of conversations."""
        encoder = self.encoder
        if encoder.chat is None:
            ids = encoder.tokenizer.encode_batch(
                batch.texts, threads=1, begin_id=encoder.begin_id, end_id=encoder.end_id, special=self._special
            )
            return batch, ids, None
        assert batch.messages is not None
        found = encoder.chat.encode_batch(batch.messages)
        self.answers = added([self.answers or AnswerCounts(), found.counts])
        return replace(batch, texts=found.texts), found.input_ids, found.loss_mask

    def finish(self, documents: Documents) -> None:
        """Writes the token counts, the quarantine and the dropped documents, which are complete after the last batch."""
        self._counts.write(self.folder / UNIT_COUNTS_FILE)
        write_left(documents.left, self.folder)
        write_unit_dropped(documents.dropped, self.folder)


def encode_unit(
    job: Job,
    counts: Path | None,
    source: Source,
    encoders: Sequence[Encoder],
    group_column: str | None,
    stop_token: StopToken | None,
    limits: Limits,
    store: UnitStore,
    anew: bool,
) -> EncodeFacts:
    """Encodes one unit into a file in the job's folder, with its document index and token counts, by the first of `encoders`. The
    others' missing units go to the unit store. `job.own`: the documents to leave out, and the unit's keys under the other encoders.
    `counts`: the file whose most frequent pre-tokens warm the caches; None: no warming. `group_column`: the column whose value
    decides a document's split. `stop_token`: encode.chat.stop_token; None without chat."""
    unit, (drops, other_keys) = job.unit, job.own
    if counts is not None:
        special: SpecialTokensInText = "allow" if unit.source.special_tokens_in_text == "allow" else "as_text"
        _warm([one.tokenizer for one in encoders], counts, special)
    further = [
        (key, encoder)
        for key, encoder in zip(other_keys, encoders[1:], strict=True)
        if anew or store.find(key, EncodeFacts) is None
    ]
    piece_documents = [0] * len(unit.pieces)
    documents = Documents(unit, source, limits, job.advance, drops.find)
    with ExitStack() as kept:
        folders = [job.folder, *(kept.enter_context(store.new(key)) for key, _ in further)]
        with ExitStack() as stack:
            outputs = [
                _Output(
                    unit,
                    encoder,
                    folder,
                    None if group_column is None else GroupKeys(unit, group_column, limits),
                    stack,
                )
                for encoder, folder in zip([encoders[0], *(one for _, one in further)], folders, strict=True)
            ]
            for piece, batch in documents:
                try:
                    n_tokens = [output.add(piece, batch) for output in outputs]
                except SpecialTokenError as error:
                    name, row = unit.pieces[piece].shard.name, batch.rows()[error.index].as_py()
                    raise SpecialTokenError(row, error.byte_offset, error.token, f"{name}, row {row}") from None
                except ChatError as error:
                    name, row = unit.pieces[piece].shard.name, batch.rows()[error.index].as_py()
                    raise CorpusError(f"{name}, row {row}: {error}", code=error.code) from None
                piece_documents[piece] += len(batch.texts)
                job.advance(0, n_tokens[0])
        facts = []
        for output in outputs:
            if output.answers is not None and is_sure(stop_token, output.answers):
                check_stopped(output.encoder.chat, stop_token, output.answers)  # fails now, not after all units
            output.finish(documents)
            facts.append(
                EncodeFacts(
                    piece_documents=piece_documents,
                    piece_bad=piece_bad(unit, documents.left),
                    piece_dropped=piece_dropped(len(unit.pieces), documents.dropped),
                    reasons=reasons_of(documents.dropped),
                    left=left_out(documents.left),
                    n_tokens=output.n_tokens,
                    text_bytes=output.text_bytes,
                    tokens_sha256=output.digest.hex(),
                    n_trained=output.n_trained,
                    answers=output.answers,
                )
            )
        job.check_unchanged()
        for (key, _), folder, fact in zip(further, folders[1:], facts[1:], strict=True):
            store.keep(key, folder, fact)
    return facts[0]


def framing_of(tokenizer: Tokenizer, params: Encode) -> tuple[int | None, int | None]:
    """The ids of `encode.begin_of_document` and `encode.end_of_document`. Raises ParamsError if the tokenizer lacks one."""
    return (
        special_id(tokenizer, "begin_of_document", params.begin_of_document),
        special_id(tokenizer, "end_of_document", params.end_of_document),
    )


def encode_keys(
    units: Sequence[Unit],
    params: Encode,
    tokenizer: Tokenizer,
    framing: tuple[int | None, int | None],
    entry: ChatEntry | None,
    drops: Mapping[str, DropList],
) -> dict[str, str]:
    """Each unit's key in the unit store, by unit name. `drops`: the documents that each unit leaves out."""
    decides = {
        "code": code_digest("encode"),
        "tokenizer": tokenizer.digest,
        "engine": tokenizer.engine,
        "framing": framing,
        "group": params.split_group,
        **({} if entry is None else {"chat": entry.encoding}),
    }
    return {
        unit.name: unit_key(
            stage="encode",
            content=content(unit, with_rows=unit.source.id_column is None),  # a document's id is its row then
            drop=drops[unit.name].as_key(),
            special=unit.source.special_tokens_in_text,
            source=unit.source.reading.as_key(),
            **decides,
        )
        for unit in units
    }
