"""train-vocab, last part: what training.json says of a training, and the lines that are printed of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.artifacts.learned_with import REGEX_KEYS, LearnedWith, OfSuperwords
from tokenmill.config.training_params import Extend, TrainVocab
from tokenmill.corpus.provenance import Provenance
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.pipeline.memory import Memory
from tokenmill.quantities import number_of
from tokenmill.stages.train_vocab_learn import LearnFacts
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.training.bpe import changed_documents


class Entry(NamedTuple):
    """An entry of training.json, and the lines that train-vocab prints of it, without the stage's name."""

    key: str
    value: Any
    lines: Sequence[str] = ()


def report_of(counts: pa.Table, tokenizer: Tokenizer, facts: LearnFacts) -> dict[str, Any]:
    """The entries of training.json that every training has."""
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


def refused_entry(asked: TrainVocab, facts: LearnFacts) -> Entry:
    """The entry of train_vocab.forbid and protect."""
    keys = [name for name in REGEX_KEYS if getattr(asked, name)]
    words = f"train_vocab.{' and '.join(keys)} refused {number_of(facts.n_refused, 'token')}"
    return Entry("n_refused", facts.n_refused, [words])


def learned_with(settings: TrainVocab, facts: LearnFacts) -> LearnedWith:
    """What the model card says of these settings."""
    superwords, superwords_facts = settings.superwords, facts.superwords
    return LearnedWith(
        forbid=settings.forbid,
        protect=settings.protect,
        n_refused=facts.n_refused,
        superwords=None
        if superwords is None or superwords_facts is None
        else OfSuperwords(
            transition=superwords.transition,
            words_max=superwords.words_max,
            n_tokens_by_words=superwords_facts.by_words(),
        ),
    )


def extended_entry(
    root: Path, provenance: Provenance, old: Tokenizer, new: Tokenizer, extended: Extend, memory: Memory
) -> Entry:
    """The entry of train_vocab.extend: the number of added tokens, and of old documents that get different ids. Old documents are
    read like the counted ones."""
    n_documents = n_changed = 0
    readings, source = provenance.readings_of_shards(), provenance.source()
    asked = "train_vocab.extend.old_glob"
    for shard in find_shards(root, extended.old_glob, asked, source) if extended.old_glob else ():
        for batch in read_batches(shard, readings.get(shard.name, source.reading), limits=memory.limits):
            n_documents += len(batch.texts)
            n_changed += changed_documents(old, new, batch.texts)
    value = {
        "digest": extended.digest,
        "n_tokens_added": new.vocab_size - old.vocab_size,
        "n_old_documents": n_documents,
        "n_old_documents_changed": n_changed,
    }
    words = f"{n_changed:,} of {n_documents:,} documents of the old text get different ids."
    return Entry("extended", value, [words] if extended.old_glob else [])
