"""train-vocab: counts of pre-tokens → tokenizer, or a published tokenizer taken in its place."""

import time
from pathlib import Path

import pyarrow.compute as pc

from tokenmill.cards import make_card, measure_training, write_card
from tokenmill.console import StageSummary, progress, say
from tokenmill.counts import read_counts
from tokenmill.files import write_directory
from tokenmill.golden import write_golden
from tokenmill.golden_making import make_golden, sample_texts
from tokenmill.layout import COUNTS_FILE, TOKENIZER_DIRECTORY
from tokenmill.params import Source, TrainVocab
from tokenmill.params import Tokenizer as Asked
from tokenmill.pins import pinned
from tokenmill.shards import find_shards
from tokenmill.taking import take_pinned
from tokenmill.training import train_vocab as learn


def train_vocab(
    root: Path,
    source: Source,
    pattern: str | None,
    params: TrainVocab,
    end_of_document: str | None,
    license: str | None,
    threads: int,
) -> StageSummary:
    """Learns the vocabulary from data/counts and writes data/tokenizer, with its golden vectors and its card.

    The card is part of the stage's output, not of its publication: so a version is the very directory that was built.

    A corpus too small for the size asked gives a smaller vocabulary, and a line that says how many tokens it has.
    Raises CountsError, ParamsError.
    """
    start_s = time.monotonic()
    counts = read_counts(root / COUNTS_FILE)
    n_done = 0
    with progress("train-vocab", params.vocab_size, "tokens") as advance:

        def show(n_tokens: int, _n_merges: int) -> None:
            nonlocal n_done
            advance(n_tokens - n_done)
            n_done = n_tokens

        tokenizer = learn(
            counts,
            vocab_size=params.vocab_size,
            pattern=pattern,
            special_tokens=params.special_tokens,
            pair_count_min=params.pair_count_min,
            token_bytes_max=params.token_bytes_max,
            threads=threads,
            progress=show,
        )
    with write_directory(root / TOKENIZER_DIRECTORY) as directory:
        tokenizer.save(directory, end_of_document=end_of_document)
        shards = find_shards(root, source.glob)
        golden = make_golden(directory, tokenizer, sample_texts(shards, source))
        write_golden(golden, directory)
        write_card(
            make_card(tokenizer, golden, license, measure_training(counts, tokenizer, params, shards)), directory
        )
    if tokenizer.vocab_size < params.vocab_size:
        say(
            f"train-vocab: stopped early at {tokenizer.vocab_size:,} of {params.vocab_size:,} tokens: no pair is left that "
            f"occurs {params.pair_count_min:,} times or more. Add text, or lower train_vocab.vocab_size."
        )
    text_bytes = pc.sum(pc.multiply(pc.binary_length(counts["pretoken"]).cast("uint64"), counts["count"])).as_py() or 0
    return StageSummary(
        "train-vocab",
        "run",
        text_mb=text_bytes / 1e6,
        n_tokens=tokenizer.vocab_size,
        seconds=time.monotonic() - start_s,
    )


def take_tokenizer(root: Path, asked: Asked) -> StageSummary:
    """Brings the tokenizer that tokenmill.lock pins into data/tokenizer, in the place of training one.

    Raises VersionsError when what is there now is another.
    """
    start_s = time.monotonic()
    tokenizer = take_pinned(root, pinned(root, asked), root / TOKENIZER_DIRECTORY)
    return StageSummary("train-vocab", "taken", n_tokens=tokenizer.vocab_size, seconds=time.monotonic() - start_s)
