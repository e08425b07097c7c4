"""One training in a process of its own: python -m benchmarks.train_one TOOL FOLDER VOCAB_SIZE CORES; prints a line of JSON.

FOLDER holds text.txt, counts.parquet, or a file of text for each language. The process binds itself to the cores before any
tool is imported. The time is from the input as the tool wants it to its vocabulary; what encodes with that is not in it.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.process import bind, peak_mb, timed

COUNTING = 258
"""The vocabulary that stands for counting alone: two tokens more than the bytes, for tools that only train."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
Prepared = tuple[Callable[[], Any], Callable[[Any], Any]]


def main() -> None:
    tool, folder, vocab_size, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    bind(cores)
    work, answer = TOOLS[tool](folder, vocab_size, cores)
    seconds, cpu_s, result = timed(work)
    peak = peak_mb()
    found = None if vocab_size == COUNTING else answer(result)
    import hashlib  # 4 MB, which no tool is to be blamed for

    digest = found and hashlib.sha256(json.dumps(found).encode()).hexdigest()
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "peak_mb": peak, "answer": digest}))


def _learned(vocabulary: dict[str, int], vocab_size: int) -> list[str]:
    """The first nine tenths of the tokens as bytes in hex, from the characters that stand for bytes in a tokenizer.json."""
    from tokenmill.tokenizer.model import bytes_of

    tokens = [token for token in sorted(vocabulary, key=vocabulary.__getitem__) if len(token) > 1]
    return [(bytes_of(token) or b"").hex() for token in tokens[: vocab_size * 9 // 10]]


def _learned_by_tokenmill(tokenizer: Any, vocab_size: int) -> list[str]:
    """The same of a tokenizer of tokenmill."""
    n_ids = min(256 + vocab_size * 9 // 10, tokenizer.vocab_size)
    return [tokenizer.token_bytes(id).hex() for id in range(256, n_ids)]


def _counted(folder: Path, pattern: str, cores: int) -> Any:
    """The counts of the lines of text.txt."""
    from tokenmill import Counter

    counter = Counter(pattern, threads=cores)
    n_bytes = 1 << 16 if cores == 1 else cores << 20  # several threads count what comes in megabytes
    with (folder / "text.txt").open("rb") as file:
        while lines := file.readlines(n_bytes):
            counter.update(lines)
    return counter


def _tokenmill(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import train_vocab

    if vocab_size == COUNTING:
        import pyarrow  # noqa: F401 — the table is made with it: not to be imported while the time is taken

    def work() -> Any:
        counter = _counted(folder, "gpt2", cores)
        if vocab_size == COUNTING:
            return counter.finish()
        return train_vocab(counter, vocab_size, "gpt2", pair_count_min=1)

    return work, lambda tokenizer: _learned_by_tokenmill(tokenizer, vocab_size)


def _counts(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import train_vocab
    from tokenmill.counts.table import read_counts

    return lambda: train_vocab(read_counts(folder / "counts.parquet"), vocab_size, "gpt2"), lambda _: None


def _nosplit(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import Counter, train_vocab

    text = (folder / "text.txt").read_bytes()

    def work() -> Any:
        counter = Counter(None, threads=cores)
        counter.update([text])
        return train_vocab(counter, vocab_size, None, pair_count_min=1)

    return work, lambda _: None


def _lines(folder: Path) -> list[str]:
    with (folder / "text.txt").open(encoding="utf-8", newline="") as file:
        return file.readlines()


def _untrained() -> Any:
    """A tokenizer of the tokenizers library with bytes and nothing more."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _tokenizers(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    from tokenizers import pre_tokenizers, trainers

    lines, tokenizer = _lines(folder), _untrained()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)

    return lambda: tokenizer.train_from_iterator(lines, trainer), lambda _: _learned(tokenizer.get_vocab(), vocab_size)


def _languages(folder: Path) -> dict[str, list[str]]:
    """The lines of each language. Every tenth one also measures it, for want of parallel text."""
    return {path.stem: path.read_text(encoding="utf-8").splitlines(keepends=True) for path in sorted(folder.iterdir())}


def _parity(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import Counter
    from tokenmill.training.bpe import Goal
    from tokenmill.training.parity import learn_parity

    texts = _languages(folder)

    def counted(lines: list[str]) -> Any:
        counter = Counter("gpt2", threads=cores)
        counter.update(lines)
        return counter.finish()

    def work() -> Any:
        groups = {name: counted(lines) for name, lines in texts.items()}
        dev = {name: counted(lines[::10]) for name, lines in texts.items()}
        return learn_parity(groups, [vocab_size], "gpt2", [], Goal(pair_count_min=1), dev=dev).tokenizers[0]

    return work, lambda tokenizer: _learned_by_tokenmill(tokenizer, vocab_size)


def _parity_of_tokenizers(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    from tokenizers import pre_tokenizers, trainers

    texts, tokenizer = _languages(folder), _untrained()
    trainer = trainers.ParityBpeTrainer(
        num_merges=vocab_size - 256,
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    def work() -> None:
        dev = [iter(lines[::10]) for lines in texts.values()]
        trainer.train_from_iterator(tokenizer, [iter(lines) for lines in texts.values()], dev_iterators=dev)

    return work, lambda _: _learned(tokenizer.get_vocab(), vocab_size)


_WORDS, _SENTENCES = "o200k", "superbpe"


def _words_of_o200k(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import train_vocab

    return lambda: train_vocab(_counted(folder, _WORDS, cores), vocab_size, _WORDS), lambda _: None


def _superwords(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import train_vocab
    from tokenmill.training.bpe import Goal, Running
    from tokenmill.training.superwords import learn_superwords

    n_first = 256 + (vocab_size - 256) * 4 // 5  # as transition: 0.8

    def work() -> Any:
        base = train_vocab(_counted(folder, _WORDS, cores), n_first, _WORDS)
        sentences = _counted(folder, _SENTENCES, cores).finish()
        goal, running = Goal(words_max=4), Running(threads=cores)
        return learn_superwords(base, sentences.to_batches, _SENTENCES, vocab_size, goal, running)

    return work, lambda _: None


def _rustbpe(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    import rustbpe

    lines = _lines(folder)
    tokenizer = rustbpe.Tokenizer()
    return lambda: tokenizer.train_from_iterator(iter(lines), vocab_size, pattern=GPT2), lambda _: None


def _bpeasy(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    import bpeasy

    lines: Iterator[str] = iter(_lines(folder))
    return lambda: bpeasy.train_bpe(lines, GPT2, 128, vocab_size), lambda _: None


def _gigabpe(folder: Path, vocab_size: int, cores: int) -> Prepared:
    import gigabpe

    def work() -> Any:
        file = str(folder / "text.txt")
        return gigabpe.train_bpe([file], vocab_size, special_tokens=[], pretokenizer="bytelevel", threads=cores)

    return work, lambda result: _learned(result[0], vocab_size)


def _gigatoken(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    import gigatoken

    text = (folder / "text.txt").read_bytes()
    return lambda: gigatoken.train_bpe(text, vocab_size, []), lambda _: None


TOOLS: dict[str, Callable[[Path, int, int], Prepared]] = {
    "tokenmill": _tokenmill,
    "counts": _counts,
    "nosplit": _nosplit,
    "tokenizers": _tokenizers,
    "parity": _parity,
    "words_of_o200k": _words_of_o200k,
    "superwords": _superwords,
    "parity_of_tokenizers": _parity_of_tokenizers,
    "rustbpe": _rustbpe,
    "bpeasy": _bpeasy,
    "gigabpe": _gigabpe,
    "gigatoken": _gigatoken,
}

if __name__ == "__main__":
    main()
