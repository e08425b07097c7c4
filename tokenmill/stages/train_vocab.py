"""train-vocab: counts of pre-tokens → tokenizer; or imports a published tokenizer."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.golden import check_golden, write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.model_card import make_card, measure_training, write_card
from tokenmill.chat.shipped import ship_template
from tokenmill.config.lockfile import pinned
from tokenmill.config.params import N_BYTES, Chat, Extend, TokenizerSource, TrainVocab
from tokenmill.config.sources import Reading
from tokenmill.console import progress, say
from tokenmill.corpus.provenance import Provenance, read_provenance
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.counts.spill import open_parquet
from tokenmill.counts.table import read_counts
from tokenmill.errors import CountsError, ParamsError
from tokenmill.layout import CHECKPOINT_DIRECTORY, COUNTS_FILE, PROVENANCE_FILE, TOKENIZER_DIRECTORY, TRAINING_FILE
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.memory import Memory
from tokenmill.pretokenizers.patterns import steps_of
from tokenmill.special_tokens import listed
from tokenmill.storage.atomic import sha256_directory, sha256_file, write_atomic, write_directory
from tokenmill.storage.unit_store import UnitStore, unit_key
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import Goal, Learned, changed_documents, extend, learn
from tokenmill.training.checkpoint import Checkpoint
from tokenmill.versioning.import_tokenizer import import_pinned

_LENGTH_BYTES = 4  # the length in front of each value in a plain column of a .parquet file
# Measured: 25 bytes per byte for a million pre-tokens with Zipf's law; 31 for pre-tokens of 100 bytes, 10,000 bytes and 100 MB.
_MEMORY_PER_BYTE = 31


def train_vocab(
    root: Path,
    pattern: str | None,
    params: TrainVocab,
    framing: tuple[str | None, str | None],
    license: str | None,
    memory: Memory,
    checkpoint_every: int | None,
    counted: Path,
    output: Path,
    chat: Chat | None = None,
    store: UnitStore | None = None,
) -> StageSummary:
    """Learns the vocabulary from the files of `count` in the directory `counted`, and writes the directory `output`, with golden
    vectors and a model card.

    The card is part of the stage's output, not added by publishing, so a published version is exactly the directory that was built.
    `framing`: the special tokens that begin and end a document, which tokenizer_config.json names. `chat`: the chat template to
    write beside it. `store`: may hold a vocabulary learned from the same counts; None: always learn. A corpus too small for the
    requested size gives a smaller vocabulary, and a printed line says how many tokens it has. Raises CountsError, ParamsError,
    TokenizerError, CorpusError.
    """
    start_s = time.monotonic()
    base = base_of(root, params, pattern) if params.extend else None
    table = counted / Path(COUNTS_FILE).name
    _check_fits(table, memory)
    counts = read_counts(table)
    provenance = read_provenance(counted / Path(PROVENANCE_FILE).name)
    goal = Goal(params.pair_count_min, params.token_bytes_max, params.score, params.pad_vocab_to)
    checkpoint = Checkpoint(root / CHECKPOINT_DIRECTORY, checkpoint_every) if checkpoint_every else None
    n_done = 0
    with progress("train-vocab", params.vocab_size, "tokens") as now:
        now.skip(base.vocab_size if base else N_BYTES + len(params.special_tokens))

        def show(n_tokens: int, _n_merges: int) -> None:
            nonlocal n_done
            now.add(n_tokens - n_done)
            n_done = n_tokens

        sizes = [params.vocab_size, *params.vocab_sizes]
        key = unit_key(
            stage="train-vocab",
            code=code_digest("train-vocab"),
            counts=sha256_file(table),
            base=None if base is None else base.digest,
            pattern=pattern,
            special_tokens=params.special_tokens,
            sizes=sizes,
            goal=asdict(goal),
        )
        learned = None if store is None else _learned_before(store, key)
        if learned is None:
            learned = (
                extend(base, counts, params.vocab_size, goal, memory.own_threads, show, checkpoint)
                if base
                else learn(counts, sizes, pattern, params.special_tokens, goal, memory.own_threads, show, checkpoint)
            )
            if store is not None:
                _keep(store, key, learned)
    tokenizer = learned.tokenizers[0]
    report = _report(counts, learned)
    if base and params.extend:
        report["extended"] = _changes(root, provenance, base, tokenizer, params.extend, memory)
    named = {
        "begin_of_document": params.bos_token or framing[0],
        "end_of_document": params.eos_token or framing[1],
        "pad_token": params.pad_token,
        "unk_token": params.unk_token,
    }
    with write_directory(output) as directory:
        tokenizer.save(directory, **named, model_max_length=params.model_max_length)
        for size, smaller in zip(sizes[1:], learned.tokenizers[1:], strict=True):
            smaller.save(directory / str(size), **named, model_max_length=params.model_max_length)
            ship_template(root, chat, directory / str(size))
        ship_template(root, chat, directory)
        with write_atomic(directory / TRAINING_FILE) as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        golden = make_golden(directory, tokenizer, provenance.samples)
        write_golden(golden, directory)
        training = measure_training(counts, tokenizer, params, provenance.shards)
        write_card(make_card(tokenizer, golden, license, training), directory)
    if tokenizer.vocab_size < params.vocab_size:
        say(
            f"train-vocab: WARNING: stopped early at {tokenizer.vocab_size:,} of {params.vocab_size:,} tokens: no pair is left "
            f"that occurs {params.pair_count_min:,} times or more. Add text, or lower train_vocab.vocab_size."
        )
    return StageSummary(
        "train-vocab",
        "run",
        text_mb=report["text_bytes"] / 1e6,
        n_tokens=tokenizer.vocab_size,
        seconds=time.monotonic() - start_s,
    )


def import_tokenizer(root: Path, asked: TokenizerSource, chat: Chat | None = None) -> StageSummary:
    """Imports the tokenizer that tokenmill.lock pins into data/tokenizer, instead of training one. `chat`: the chat template to
    write beside it.

    Raises VersionsError if the source now has another tokenizer.
    """
    start_s = time.monotonic()
    directory = root / TOKENIZER_DIRECTORY
    before = sha256_directory(directory) if directory.is_dir() else None
    tokenizer = import_pinned(root, pinned(root, asked), directory)
    ship_template(root, chat, directory)
    if before == sha256_directory(directory):
        say(
            "train-vocab: the tokenizer is the same as before. With an imported one, count and train_vocab have no effect."
        )
    return StageSummary("train-vocab", "imported", n_tokens=tokenizer.vocab_size, seconds=time.monotonic() - start_s)


class _Figures(msgspec.Struct, frozen=True):
    """The results of a training in the unit store, which also holds its tokenizers as files."""

    n_merges: int
    last_count: int | None
    n_text_tokens: int


def _learned_before(store: UnitStore, key: str) -> Learned | None:
    done = store.find(key, _Figures)
    if done is None:
        return None
    tokenizers = [Tokenizer.load(done.folder / name) for name in sorted(done.files)]
    return Learned(tokenizers, done.facts.n_merges, done.facts.last_count, done.facts.n_text_tokens)


def _keep(store: UnitStore, key: str, learned: Learned) -> None:
    with store.new(key) as partial:
        for i, tokenizer in enumerate(learned.tokenizers):
            (partial / f"{i:04}.json").write_text(json.dumps(tokenizer.document), encoding="utf-8")
        store.keep(key, partial, _Figures(learned.n_merges, learned.last_count, learned.n_text_tokens))
    store.flush()


def base_of(root: Path, params: TrainVocab, pattern: str | None) -> Tokenizer:
    """Loads the tokenizer to extend. Raises ParamsError unless it is the pinned one and fits the other parameters. Checks its
    golden vectors."""
    assert params.extend
    base = Tokenizer.load(root / params.extend.path)
    if base.digest != params.extend.digest:
        raise ParamsError(
            f"train_vocab.extend.digest: found {base.digest} at {params.extend.path}, expected {params.extend.digest}. "
            "Restore that tokenizer, or put the digest found into params.yaml."
        )
    check_golden(root / params.extend.path, base)
    if base.steps != steps_of(pattern):
        raise ParamsError(
            f"count.pattern: found {pattern!r}, expected that of the tokenizer to extend, {base.pattern or base.steps!r}."
        )
    if missing := [token for token in params.special_tokens if token not in base.special_tokens]:
        raise ParamsError(
            f"train_vocab.special_tokens: {missing[0]!r} is not in {params.extend.path}; expected some of "
            f"{listed(base.special_tokens)}. An extended tokenizer keeps the special tokens that it has."
        )
    return base


def _check_fits(path: Path, memory: Memory) -> None:
    """Raises CountsError before reading the counts if training on them would take more memory than a build may use."""
    metadata = open_parquet(path).metadata
    pretokens = [metadata.row_group(i).column(0).total_uncompressed_size for i in range(metadata.num_row_groups)]
    n_bytes = sum(pretokens) - _LENGTH_BYTES * metadata.num_rows
    needed_mb = memory.base_mb + int(n_bytes * _MEMORY_PER_BYTE / 1e6)
    if needed_mb > memory.mb_max:
        raise CountsError(
            f"{path}: to learn from {metadata.num_rows:,} distinct pre-tokens of {n_bytes / 1e6:,.0f} MB together takes about "
            f"{needed_mb:,} MB; run.memory_mb_max allows {memory.mb_max:,}. Raise it, or raise count.count_min, which drops rare "
            "pre-tokens."
        )


def _report(counts: pa.Table, learned: Learned) -> dict[str, Any]:
    n_bytes = pc.binary_length(counts["pretoken"]).cast("uint64")
    text_bytes = pc.sum(pc.multiply_checked(n_bytes, counts["count"])).as_py() or 0
    return {
        "n_distinct_pretokens": counts.num_rows,
        "n_pretokens": pc.sum(counts["count"]).as_py() or 0,
        "text_bytes": text_bytes,
        "vocab_size": learned.tokenizers[0].vocab_size,
        "n_merges": learned.n_merges,
        "last_merge_count": learned.last_count,
        "n_text_tokens": learned.n_text_tokens,
        "bytes_per_token": round(text_bytes / max(learned.n_text_tokens, 1), 6),
    }


def _changes(
    root: Path,
    provenance: Provenance,
    old: Tokenizer,
    new: Tokenizer,
    extended: Extend,
    memory: Memory,
) -> dict[str, Any]:
    """The report's entry of an extension: the number of added tokens, and of old documents that get different ids. Old documents
    are read like the counted ones."""
    n_documents = n_changed = 0
    named = provenance.sources_of_shards()
    asked = "train_vocab.extend.old_glob"
    for shard in find_shards(root, extended.old_glob, asked, provenance.source()) if extended.old_glob else ():
        source = named.get(shard.name, provenance)
        reading = Reading(source.text_column, source.id_column, source.text_separator, source.conversations)
        for batch in read_batches(shard, reading, limits=memory.limits):
            n_documents += len(batch.texts)
            n_changed += changed_documents(old, new, batch.texts)
    if extended.old_glob:
        say(f"train-vocab: {n_changed:,} of {n_documents:,} documents of the old text get different ids.")
    return {
        "digest": extended.digest,
        "n_tokens_added": new.vocab_size - old.vocab_size,
        "n_old_documents": n_documents,
        "n_old_documents_changed": n_changed,
    }
