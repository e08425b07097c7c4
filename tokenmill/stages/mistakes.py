"""Finds mistakes before any stage runs: in params.yaml, file names, first rows and an imported tokenizer."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tokenmill.chat import isolated
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.config.gates import parse_gate
from tokenmill.config.params import Params
from tokenmill.config.training_params import TrainVocab
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.source_shards import find_documents, reads_objects
from tokenmill.corpus.units import refuse_clashes, source_name
from tokenmill.counts.spill import SCHEMA
from tokenmill.errors import CorpusError, ParamsError, TokenmillError, did_you_mean, noted, raise_all
from tokenmill.file_sets.arrangement import one_file_stem
from tokenmill.file_sets.planned import documents_shape, shape_of
from tokenmill.filters import asked_filters
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.layout import PARAMS_FILE, STAGES, TOKENIZER_DIRECTORY
from tokenmill.pipeline.alone import under_dvc
from tokenmill.pipeline.build import Build
from tokenmill.pipeline.dvc_sight import refuse_unseen
from tokenmill.pipeline.memory import divide
from tokenmill.report.references import load_references
from tokenmill.report.sample import ROOT_SOURCE
from tokenmill.stages.count import check_settings, weights_of
from tokenmill.stages.encode_chat import chat_encoder, chat_entry
from tokenmill.stages.encode_dataset import files_of
from tokenmill.stages.encode_sets import refuse_formats
from tokenmill.stages.encoder import no_such_size, special_id
from tokenmill.stages.first_rows import FirstRows, Requirements, first_rows
from tokenmill.stages.train_vocab import base_of
from tokenmill.stages.train_vocab_learn import goal_of
from tokenmill.stages.train_vocab_trim import unlearned
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import extend, learn
from tokenmill.versioning import dvc_stage
from tokenmill.versioning.dvc_files import Known
from tokenmill.versioning.import_tokenizer import look_at
from tokenmill_reader.formats.items import Shape


class Mistakes(NamedTuple):
    """The mistakes of a project. `wrong`: the errors, in order. `seen`: the first rows; None if there are no documents yet."""

    wrong: list[TokenmillError]
    seen: FirstRows | None


def refuse_mistakes(build: Build) -> None:
    """Raises the mistakes of a build once, in the first seconds of a build that has something to do; see `raise_all`."""
    if "mistakes" not in build.checked:
        build.checked.add("mistakes")
        shards = _there(lambda: build.shards)
        raise_all(find_mistakes(build.root, build.params, shards, build.known).wrong)
        if shards is not None:
            build.checked.add("dvc.yaml")


def refuse_mistakes_of(root: Path, params: Params) -> None:
    """Raises the mistakes of a project that is not being built; see `raise_all`."""
    raise_all(find_mistakes(root, params, _there(partial(find_documents, root, params)), {}).wrong)


def _there(find: Callable[[], list[Shard]]) -> list[Shard] | None:
    """The shards; None without documents, because a step may make them later and train-vocab needs none."""
    try:
        return find()
    except CorpusError as error:
        if error.code != "TM203":
            raise
        return None


def find_mistakes(root: Path, params: Params, shards: Sequence[Shard] | None, known: Known | None) -> Mistakes:
    """Finds the mistakes of the project at `root`. Reading first rows takes about a second.

    `shards`: the documents' shards; None if there are none yet. `known`: what DVC found (see `dvc_stage.opened`). With
    it dvc.yaml is checked, too, for which DVC hashes all new documents, as a build does anyway."""
    if shards and params.encode.chat is not None:
        isolated.start()  # it takes about as long as loading the tokenizer
    wrong: list[TokenmillError] = []
    count, encode, source = params.count, params.encode, params.source
    if params.tokenizer is None:
        with noted(wrong):
            weights_of(root, count.weights, [])
    with noted(wrong):
        made = root / TOKENIZER_DIRECTORY  # the build creates it
        others = [reference for reference in params.validate_.references if not (root / reference).is_relative_to(made)]
        load_references(others, root)
    with noted(wrong):
        _refuse_equal_files(params)
    tokenizer: Tokenizer | None = None
    chat: ChatEncoder | None = None
    with TemporaryDirectory(prefix="tokenmill-") as folder:
        directory = Path(folder) / "tokenizer"
        with noted(wrong):
            if params.tokenizer is None:
                check_settings(root, count, params.run.spill_directory)
                tokenizer = _unlearned(root, params, directory)
            elif (found := look_at(root, params.tokenizer, directory)) is not None:
                tokenizer, directory = found
        if tokenizer is not None:
            with noted(wrong):
                _check_encode(params, tokenizer)
            if encode.chat is not None:
                with noted(wrong):
                    chat = chat_encoder(tokenizer, chat_entry(root, encode.chat, directory))
    if shards is None:
        return Mistakes(wrong, None)
    if known is not None and not under_dvc():
        with noted(wrong):
            _check_dvc(root, params, shards, known)
    with noted(wrong):
        refuse_clashes(shards, source.unit_bytes_min, source.unit_bytes_max)
    with noted(wrong):
        _check_gates(params.validate_.gates, shards)
    filters: Filters = {}
    with noted(wrong):
        filters = asked_filters(root, source, params.has_ids)
    limits = UNBOUNDED
    with noted(wrong):
        limits = _limits(root, params)
    wanted = Requirements(
        tokenizer,
        chat,
        encode.split_group,
        params.validate_.language_column,
        filters,
        limits,
        params.run.unit_timeout_s,
    )
    seen = first_rows(shards, source, wanted)
    return Mistakes([*wrong, *seen.wrong], seen)


def _limits(root: Path, params: Params) -> Limits:
    """The largest document and block of a worker. Raises ParamsError if memory is too small for a build."""
    try:
        return divide(params.run, reads_objects(params)).limits
    except ParamsError as error:
        raise ParamsError(*error.inside(root / PARAMS_FILE), code=error.code) from None


def _unlearned(root: Path, params: Params, directory: Path) -> Tokenizer:
    """The tokenizer to be learned, with its special tokens but without merges, saved in `directory`. Raises the errors of
    training's parameters."""
    settings, sizes = params.train_vocab, [params.train_vocab.vocab_size, *params.train_vocab.vocab_sizes]
    goal = goal_of(settings)
    counts = SCHEMA.empty_table()
    base = base_of(root, settings, params.count.pattern)
    if base is not None and settings.trim is not None:
        tokenizer = unlearned(root, settings.trim, base)
    elif base is not None:
        tokenizer = extend(base, counts, settings.vocab_size, goal).tokenizers[0]
    else:
        tokenizer = learn(counts, sizes, params.count.pattern, settings.special_tokens, goal).tokenizers[0]
    begin, end = params.encode.framing
    tokenizer.save(
        directory,
        begin_of_document=settings.bos_token or begin,
        end_of_document=settings.eos_token or end,
        pad_token=settings.pad_token,
        unk_token=settings.unk_token,
    )
    return tokenizer


def _check_encode(params: Params, tokenizer: Tokenizer) -> None:
    """Raises ParamsError for special tokens that the tokenizer lacks, formats that cannot hold the items, and vocabulary sizes that
    are not trained."""
    encode, train_vocab = params.encode, params.train_vocab
    begin_id = special_id(tokenizer, "begin_of_document", encode.begin_of_document)
    end_id = special_id(tokenizer, "end_of_document", encode.end_of_document)
    files = files_of(encode, tokenizer)
    turns = None if encode.chat is None else encode.chat.turns
    shape = documents_shape(tokenizer, begin_id, end_id, params.has_ids, turns)
    if params.tokenizer is None:
        shape = _as_learned(shape, train_vocab)
    refuse_formats(encode.set_formats(params.document_sources()), encode, shape_of(files, shape))
    if params.tokenizer is None and (
        untrained_sizes := [
            vocab_size for vocab_size in encode.vocab_sizes if vocab_size not in train_vocab.vocab_sizes
        ]
    ):
        raise no_such_size(untrained_sizes[0])


def _as_learned(shape: Shape, train_vocab: TrainVocab) -> Shape:
    """The shape with the largest id of a tokenizer of the requested size; of one to trim, `keep` is it."""
    if train_vocab.trim is not None:
        return shape if train_vocab.trim.keep is None else replace(shape, id_max=train_vocab.trim.keep - 1)
    id_max = ceil(train_vocab.vocab_size / train_vocab.pad_vocab_to) * train_vocab.pad_vocab_to - 1
    return replace(shape, id_max=id_max)


def _refuse_equal_files(params: Params) -> None:
    """Raises ParamsError if names of splits and sources give two file sets the same file."""
    encode = params.encode
    one_file = [name for name in encode.set_formats(params.document_sources()) if SET_FORMATS[name].one_file]
    sources = [] if encode.shuffle else list(params.sources)
    stems = Counter(one_file_stem(*one, None) for one in product(list(encode.splits) or [""], sources or [""]))
    if one_file and (twice := [stem for stem, n in stems.items() if n > 1]):
        raise ParamsError(
            f"encode.formats: {one_file[0]}",
            f"two pairs of a split and a source would have the same file, {twice[0]}, whose name joins those of a pair.",
            "Rename a split or a source.",
        )


def _check_gates(gates: Sequence[str], shards: Sequence[Shard]) -> None:
    """Raises ParamsError for a gate on an unknown source."""
    names = {source_name(shard) or ROOT_SOURCE for shard in shards}
    for gate in gates:
        measure = parse_gate(gate).measure
        _, kind, name = (*measure.split(".", 2), "", "")[:3]
        if kind == "source" and name not in names:
            raise ParamsError(
                "validate.gates",
                f"found {gate!r}; there is no source {name!r}.",
                f"There are: {', '.join(sorted(names))}.{did_you_mean(name, names)}",
                code="TM102",
            )


def _check_dvc(root: Path, params: Params, shards: Sequence[Shard], known: Known) -> None:
    """Raises ParamsError if dvc.yaml lacks an entry without which DVC would not see or keep something."""
    with dvc_stage.all_opened(root, STAGES, known) as stages:
        for name, stage in zip(STAGES, stages, strict=True):
            refuse_unseen(root, params, shards, stage, name)
