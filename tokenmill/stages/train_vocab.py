"""train-vocab: counts of pre-tokens → tokenizer, learned or trimmed; or imports a published tokenizer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.artifacts.golden import check_golden, write_golden
from tokenmill.artifacts.golden_making import make_golden, renew_conversations
from tokenmill.artifacts.model_card import make_card, measure_training, write_card
from tokenmill.chat.shipped import ship_template
from tokenmill.config.encode_params import Chat
from tokenmill.config.lockfile import pinned
from tokenmill.config.params import Params
from tokenmill.config.sources import Reading
from tokenmill.config.training_params import Extend, TokenizerSource, TrainVocab
from tokenmill.conform.program import write_program
from tokenmill.console import say
from tokenmill.corpus.provenance import Provenance, read_provenance
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.counts.groups import read_groups
from tokenmill.counts.spill import open_parquet
from tokenmill.counts.table import read_counts
from tokenmill.errors import CountsError, ParamsError
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
from tokenmill.stages.train_vocab_parity import parity_line, parity_report, parity_task
from tokenmill.stages.train_vocab_superwords import both_phases, superwords_line, superwords_report, superwords_task
from tokenmill.stages.train_vocab_trim import trim_task
from tokenmill.storage.atomic import sha256_directory, write_atomic, write_directory
from tokenmill.summary import StageSummary
from tokenmill.tokenizer.conversions.elsewhere import warnings_of
from tokenmill.tokenizer.conversions.forms import Form
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import changed_documents
from tokenmill.training.id_counts import ids_in_counts
from tokenmill.training.id_map import ID_MAP_FILE, id_map
from tokenmill.versioning.import_tokenizer import import_pinned

_LENGTH_BYTES = 4  # the length in front of each value in a plain column of a .parquet file
# Measured: 25 bytes per byte for a million pre-tokens with Zipf's law; 32 for pre-tokens of 100 bytes, 10,000 bytes and 100 MB.
_MEMORY_PER_BYTE = 32


def train_vocab(root: Path, params: Params, memory: Memory, counted: Path, output: Path) -> Stage:
    """Learns or trims the vocabulary by the files of `count` in the directory `counted`, and writes the directory `output`, with
    golden vectors, a model card, and the program that compares the ids of other libraries. A tokenizer that began from another one
    has a map of their ids beside it.

    The card is part of the stage's output, not added by publishing, so a published version is exactly the directory that was built.
    A corpus too small for the requested size gives a smaller vocabulary, and a printed line says how many tokens it has. Raises
    CountsError, ParamsError, TokenizerError, CorpusError.
    """
    asked, pattern = params.train_vocab, params.count.pattern
    base = base_of(root, asked, pattern)
    table = counted / Path(COUNTS_FILE).name
    provenance = read_provenance(counted / Path(PROVENANCE_FILE).name)
    folder = counted / Path(COUNTS_GROUPS_DIRECTORY).name
    groups = read_groups(folder) if asked.parity else None
    of_groups = [groups.path(folder, name) for name in groups.names] if groups else []
    _check_fits([table, *of_groups], memory)
    task: Task[LearnFacts]
    if base and asked.trim:
        task = trim_task(root, asked.trim, table, base, memory.own_threads)
    elif groups:
        task = parity_task(root, params, memory, table, folder, groups, provenance)
    else:
        task = learn_task(root, params, memory, table, base)
    [done] = yield from do(Round("train-vocab", [task], LearnFacts))
    facts = done.facts
    if asked.superwords:
        sentences = counted / Path(SUPERWORDS_COUNTS_FILE).name
        task = superwords_task(root, params, memory, sentences, Tokenizer.load(done.folder / "0000.json"))
        [done] = yield from do(Round("train-vocab", [task], LearnFacts))
        facts = both_phases(facts, done.facts)
    tokenizers = [Tokenizer.load(done.folder / name) for name in sorted(done.files)]
    counts = read_counts(table)
    report = _report(counts, tokenizers[0], facts)
    if keys := [name for name in ("forbid", "protect") if getattr(asked, name)]:
        report["n_refused"] = facts.n_refused
        say(f"train-vocab: train_vocab.{' and '.join(keys)} refused {facts.n_refused:,} tokens")
    if base and asked.trim:
        report["last_merge_count"] = None
        report["trimmed"] = {
            "digest": base.digest,
            "n_tokens_dropped": base.vocab_size - tokenizers[0].vocab_size,
            "last_count": facts.last_count,
            "n_text_tokens_before": int(ids_in_counts(base, counts, memory.own_threads).sum()),
        }
    if base and asked.extend:
        report["extended"] = _changes(root, provenance, base, tokenizers[0], asked.extend, memory)
    if groups and asked.parity:
        report["parity"] = parity_report(asked.parity, groups.by, facts.groups)
        say(parity_line(report["parity"]))
    if facts.superwords:
        report["superwords"] = superwords_report(facts.superwords)
        say(superwords_line(report["superwords"], facts.n_text_tokens))
    named = {
        "begin_of_document": asked.bos_token or params.encode.framing[0],
        "end_of_document": asked.eos_token or params.encode.framing[1],
        "pad_token": asked.pad_token,
        "unk_token": asked.unk_token,
    }
    with write_directory(output) as directory:
        folders = [directory, *(directory / str(size) for size in asked.vocab_sizes)]
        for folder, tokenizer in zip(folders, tokenizers, strict=True):
            tokenizer.save(folder, **named, model_max_length=asked.model_max_length)
            ship_template(root, params.encode.chat, folder)
        with write_atomic(directory / TRAINING_FILE) as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if base:
            with write_atomic(directory / ID_MAP_FILE) as path:
                pq.write_table(id_map(base, tokenizers[0]), path, compression="zstd", write_statistics=False)
        golden = make_golden(directory, tokenizers[0], provenance.samples)
        write_golden(golden, directory)
        of_text = (facts.superwords.text_bytes, facts.n_text_tokens) if facts.superwords else None
        training = measure_training(counts, tokenizers[0], asked, provenance.shards, of_text)
        card = make_card(tokenizers[0], golden, params.publish.license, training)
        write_card(card, directory)
        write_program(directory)
    n_tokens = tokenizers[0].vocab_size
    if n_tokens < asked.vocab_size and not asked.trim:
        say(
            f"train-vocab: WARNING: stopped early at {n_tokens:,} of {asked.vocab_size:,} tokens: no pair is left "
            f"that occurs {asked.pair_count_min:,} times or more. Add text, or lower train_vocab.vocab_size."
        )
    names = {
        "bos_token": named["begin_of_document"],
        "eos_token": named["end_of_document"],
        "pad_token": asked.pad_token,
    }
    form = Form(tokenizers[0], "", {name: text for name, text in names.items() if text is not None})
    if programs := dict.fromkeys(one.program for one in warnings_of(form)):
        say(f"train-vocab: for {' and '.join(programs)}, see `tokenmill check {TOKENIZER_DIRECTORY}`")
    return StageSummary("train-vocab", "run", text_mb=report["text_bytes"] / 1e6, n_tokens=n_tokens)


def import_tokenizer(root: Path, asked: TokenizerSource, chat: Chat | None = None) -> StageSummary:
    """Imports the tokenizer that tokenmill.lock pins into data/tokenizer, instead of training one. `chat`: the chat template to
    write beside it.

    Raises VersionsError if the source now has another tokenizer.
    """
    directory = root / TOKENIZER_DIRECTORY
    before = sha256_directory(directory) if directory.is_dir() else None
    tokenizer = import_pinned(root, pinned(root, asked), directory)
    if ship_template(root, chat, directory):
        renew_conversations(directory, tokenizer)
    if before == sha256_directory(directory):
        say(
            "train-vocab: the tokenizer is the same as before. With an imported one, count and train_vocab have no effect."
        )
    return StageSummary("train-vocab", "imported", n_tokens=tokenizer.vocab_size)


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


def _report(counts: pa.Table, tokenizer: Tokenizer, facts: LearnFacts) -> dict[str, Any]:
    n_bytes = pc.binary_length(counts["pretoken"]).cast("uint64")
    text_bytes = pc.sum(pc.multiply_checked(n_bytes, counts["count"])).as_py() or 0
    if facts.superwords:
        text_bytes = facts.superwords.text_bytes  # count.count_min drops no sentence
    return {
        "n_distinct_pretokens": counts.num_rows,
        "n_pretokens": pc.sum(counts["count"]).as_py() or 0,
        "text_bytes": text_bytes,
        "vocab_size": tokenizer.vocab_size,
        "n_merges": facts.n_merges,
        "last_merge_count": facts.last_count,
        "n_text_tokens": facts.n_text_tokens,
        "bytes_per_token": round(text_bytes / max(facts.n_text_tokens, 1), 6),
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
