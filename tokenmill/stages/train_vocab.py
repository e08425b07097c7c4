"""train-vocab: counts of pre-tokens → tokenizer, learned or trimmed; or imports a published tokenizer."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.artifacts.golden import check_golden, write_golden
from tokenmill.artifacts.golden_making import make_golden, renew_conversations
from tokenmill.artifacts.model_card import make_card, measure_training, not_reached, with_text, write_card
from tokenmill.chat.shipped import ship_template
from tokenmill.config.chat_params import Chat
from tokenmill.config.lockfile import pinned
from tokenmill.config.params import Params
from tokenmill.config.publish_params import TokenizerSource
from tokenmill.config.training_params import TrainVocab
from tokenmill.console import say
from tokenmill.corpus.provenance import Provenance, read_provenance
from tokenmill.counts.groups import Groups, read_groups
from tokenmill.counts.spill import open_parquet
from tokenmill.counts.table import read_counts
from tokenmill.errors import CountsError, ParamsError
from tokenmill.features import PARTS
from tokenmill.layout import (
    COUNTS_FILE,
    COUNTS_GROUPS_DIRECTORY,
    PROVENANCE_FILE,
    SUPERWORDS_COUNTS_FILE,
    TOKENIZER_DIRECTORY,
    TRAINING_FILE,
)
from tokenmill.pipeline.memory import Memory
from tokenmill.pretokenizers.patterns import steps_of
from tokenmill.rounds import Round, Stage, Task, do
from tokenmill.special_tokens import listed
from tokenmill.stages.train_vocab_learn import LearnFacts, learn_task
from tokenmill.stages.train_vocab_parity import parity_entry, parity_task
from tokenmill.stages.train_vocab_report import Entry, extended_entry, learned_with, refused_entry, report_of
from tokenmill.stages.train_vocab_superwords import both_phases, superwords_entry, superwords_task
from tokenmill.stages.train_vocab_trim import trim_task, trimmed_entry
from tokenmill.storage.atomic import sha256_directory, write_atomic, write_directory
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.beside import write_beside
from tokenmill.tokenizer.forms import Form, warnings_of
from tokenmill.tokenizer.preparing import Preparation
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.id_map import ID_MAP_FILE, id_map
from tokenmill.versioning.import_tokenizer import import_pinned

_LENGTH_BYTES = 4  # the length in front of each value in a plain column of a .parquet file
# Measured: 25 bytes per byte for a million pre-tokens with Zipf's law; 32 for pre-tokens of 100 bytes, 10,000 bytes and 100 MB.
_MEMORY_PER_BYTE = 32


def train_vocab(root: Path, params: Params, memory: Memory, counted: Path, output: Path) -> Stage:
    """Learns or trims the vocabulary by the files of `count` in the directory `counted`, and writes the directory `output`, with
    golden vectors, a model card, and what features write beside a tokenizer. A tokenizer that began from another one
    has a map of their ids beside it.

    The card is part of the stage's output, not added by publishing, so a published version is exactly the directory that was built.
    A corpus too small for the requested size gives a smaller vocabulary, and a printed line says how many tokens it has. Raises
    CountsError, ParamsError, TokenizerError, CorpusError.
    """
    settings, pattern = params.train_vocab, params.count.pattern
    base = base_of(root, settings, pattern)
    table = counted / Path(COUNTS_FILE).name
    provenance = read_provenance(counted / Path(PROVENANCE_FILE).name)
    _check_prepared(provenance, settings, base, table)
    folder = counted / Path(COUNTS_GROUPS_DIRECTORY).name
    groups = read_groups(folder) if settings.parity else None
    of_groups = [groups.path(folder, name) for name in groups.names] if groups else []
    _check_fits([table, *of_groups], memory)
    task: Task[LearnFacts]
    if base and settings.trim:
        task = trim_task(root, settings.trim, table, base, memory.own_threads)
    elif groups:
        task = parity_task(root, params, memory, table, folder, groups, provenance)
    else:
        task = learn_task(root, params, memory, table, base)
    [done] = yield from do(Round("train-vocab", [task], LearnFacts))
    facts = done.facts
    if settings.superwords:
        sentences = counted / Path(SUPERWORDS_COUNTS_FILE).name
        task = superwords_task(root, params, memory, sentences, Tokenizer.load(done.folder / "0000.json"))
        [done] = yield from do(Round("train-vocab", [task], LearnFacts))
        facts = both_phases(facts, done.facts)
    tokenizers = [Tokenizer.load(done.folder / name) for name in sorted(done.files)]
    tokenizer, counts = tokenizers[0], read_counts(table)
    report = report_of(counts, tokenizer, facts)
    entries = [*_entries(params, memory, base, groups, counts, tokenizer, facts)]
    if base and settings.extend:
        entries.append(extended_entry(root, provenance, base, tokenizer, settings.extend, memory))
    for entry in entries:
        report[entry.key] = entry.value
        for line in entry.lines:
            say(f"train-vocab: {line}")
    special = _special_tokens(params)
    with write_directory(output) as directory:
        folders = [directory, *(directory / str(size) for size in settings.vocab_sizes)]
        for folder, sized_tokenizer in zip(folders, tokenizers, strict=True):
            sized_tokenizer.save(
                folder,
                end_of_document=special["eos_token"],
                begin_of_document=special["bos_token"],
                pad_token=special["pad_token"],
                unk_token=special["unk_token"],
                model_max_length=settings.model_max_length,
            )
            ship_template(root, params.encode.chat, folder)
        with write_atomic(directory / TRAINING_FILE) as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if base:
            with write_atomic(directory / ID_MAP_FILE) as path:
                pq.write_table(id_map(base, tokenizer), path, compression="zstd", write_statistics=False)
        golden = make_golden(directory, tokenizer, provenance.samples)
        write_golden(golden, directory)
        training = measure_training(counts, tokenizer, settings, provenance.shards, learned_with(settings, facts))
        if facts.superwords:
            training = with_text(training, facts.superwords.text_bytes, facts.n_text_tokens)
        write_card(make_card(tokenizer, golden, params.publish.license, training), directory)
        write_beside(directory)
    if words := not_reached(tokenizer.vocab_size, tokenizer.special_tokens, training):
        say(f"train-vocab: WARNING: stopped early at {words} Add text, or lower train_vocab.vocab_size.")
    form = Form(tokenizer, "", {name: text for name, text in special.items() if text is not None})
    if programs := [program for program in PARTS["elsewhere"] if warnings_of(form, program)]:
        say(f"train-vocab: for {' and '.join(programs)}, see `tokenmill check {TOKENIZER_DIRECTORY}`")
    return StageSummary("train-vocab", "run", text_mb=report["text_bytes"] / 1e6, vocab_size=tokenizer.vocab_size)


def _entries(
    params: Params,
    memory: Memory,
    base: Tokenizer | None,
    groups: Groups | None,
    counts: pa.Table,
    tokenizer: Tokenizer,
    facts: LearnFacts,
) -> Iterator[Entry]:
    """The entries of training.json that depend on what params.yaml asks for, but for that of `extend`, which reads documents."""
    settings = params.train_vocab
    if settings.forbid or settings.protect:
        yield refused_entry(settings, facts)
    if base and settings.trim:
        yield Entry("last_merge_count", None)
        yield trimmed_entry(base, tokenizer, counts, facts, memory.own_threads)
    if groups and settings.parity:
        yield parity_entry(settings.parity, groups.by, facts.groups)
    if facts.superwords:
        yield superwords_entry(params, facts, facts.superwords)


def _special_tokens(params: Params) -> dict[str, str | None]:
    """The special tokens by the names that transformers has for them."""
    settings, (begin, end) = params.train_vocab, params.encode.framing
    return {
        "bos_token": settings.bos_token or begin,
        "eos_token": settings.eos_token or end,
        "pad_token": settings.pad_token,
        "unk_token": settings.unk_token,
    }


def import_tokenizer(root: Path, source: TokenizerSource, chat: Chat | None = None) -> StageSummary:
    """Imports the tokenizer that tokenmill.lock pins into data/tokenizer, instead of training one. `chat`: the chat template to
    write beside it.

    Raises VersionsError if the source now has another tokenizer.
    """
    directory = root / TOKENIZER_DIRECTORY
    before = sha256_directory(directory) if directory.is_dir() else None
    tokenizer = import_pinned(root, pinned(root, source), directory)
    if ship_template(root, chat, directory):
        renew_conversations(directory, tokenizer)
    if before == sha256_directory(directory):
        say(
            "train-vocab: the tokenizer is the same as before. With an imported one, count and train_vocab have no effect."
        )
    return StageSummary("train-vocab", "imported", vocab_size=tokenizer.vocab_size)


def base_of(root: Path, params: TrainVocab, pattern: str | None) -> Tokenizer | None:
    """Loads the tokenizer to extend or to trim; None for a new tokenizer. Raises ParamsError unless it is the pinned one and fits
    the other parameters. Checks its golden vectors."""
    if params.base is None:
        return None
    key, place, digest = params.base
    base = Tokenizer.load(root / place)
    if base.digest != digest:
        raise ParamsError(
            f"train_vocab.{key}.digest",
            f"found {base.digest} at {place}, expected {digest}.",
            "Restore that tokenizer, or put the digest found into params.yaml.",
        )
    check_golden(root / place, base)
    if base.steps != steps_of(pattern):
        raise ParamsError(
            "count.pattern",
            f"found {pattern!r}, expected that of the tokenizer to {key}, {base.pattern or base.steps!r}.",
        )
    if missing := [token for token in params.special_tokens if token not in base.special_tokens]:
        raise ParamsError(
            "train_vocab.special_tokens",
            f"{missing[0]!r} is not in {place}; expected some of {listed(base.special_tokens)}. The tokenizer keeps the special "
            "tokens that it has.",
        )
    return base


def _check_prepared(provenance: Provenance, params: TrainVocab, base: Tokenizer | None, table: Path) -> None:
    """Raises CountsError for counts of text that was prepared otherwise than the tokenizer to begin from prepares it."""
    counted, expected = provenance.preparation or Preparation(), base.preparation if base else Preparation()
    if counted != expected:
        splits = params.base[1] if params.base else "a new tokenizer"
        raise CountsError(
            table,
            f"counted in text {counted}; expected text {expected}, which {splits} splits.",
            "Put train_vocab.extend and train_vocab.trim into the params of count in dvc.yaml, and run `tokenmill build`.",
        )


def _check_fits(tables: Sequence[Path], memory: Memory) -> None:
    """Raises CountsError before reading the counts if training on them would take more memory than a build may use. `tables`: the
    counts of all documents, and those of groups."""
    n_bytes = n_rows = 0
    for metadata in (open_parquet(path).metadata for path in tables):
        pretokens = [metadata.row_group(i).column(0).total_uncompressed_size for i in range(metadata.num_row_groups)]
        n_bytes += sum(pretokens) - _LENGTH_BYTES * metadata.num_rows
        n_rows += metadata.num_rows
    needed_mb = memory.base_mb + int(n_bytes * _MEMORY_PER_BYTE / 1e6)
    if needed_mb > memory.mb_max:
        raise CountsError(
            tables[0],
            f"to learn from {n_rows:,} distinct pre-tokens of {n_bytes / 1000000.0:,.0f} MB together "
            f"takes about {needed_mb:,} MB; run.memory_mb_max allows {memory.mb_max:,}.",
            "Raise it, or raise count.count_min, which drops rare pre-tokens.",
        )
