"""One training in a process of its own: python -m benchmarks.train_one TOOL FOLDER VOCAB_SIZE CORES; prints a line of JSON.

FOLDER holds text.txt, or counts.parquet. The process binds itself to the cores before any
tool is imported. The time is from the input as the tool wants it to its vocabulary; what encodes with that is not in it.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.one import GPT2, answer_of, learned, peak_mb

Prepared = tuple[Callable[[], Any], Callable[[Any], Any]]


def main() -> None:
    tool, folder, vocab_size, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    os.environ |= {"RAYON_NUM_THREADS": str(cores), "TOKENIZERS_PARALLELISM": "true" if cores > 1 else "false"}
    work, answer = TOOLS[tool](folder, vocab_size, cores)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    peak = peak_mb()
    found = answer(result)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "peak_mb": peak, "answer": found and answer_of(found)}))


def _tokenmill(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import Counter, train_vocab

    def work() -> Any:
        counter = Counter("gpt2", threads=cores)
        n_bytes = 1 << 16 if cores == 1 else cores << 20  # several threads count what comes in megabytes
        with (folder / "text.txt").open("rb") as file:
            while lines := file.readlines(n_bytes):
                counter.update(lines)
        return train_vocab(counter, vocab_size, "gpt2", pair_count_min=1, threads=cores)

    def answer(tokenizer: Any) -> Any:
        return [
            tokenizer.token_bytes(id).hex() for id in range(256, min(256 + vocab_size * 9 // 10, tokenizer.vocab_size))
        ]

    return work, answer


def _counts(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import train_vocab
    from tokenmill.counts.table import read_counts

    return lambda: train_vocab(
        read_counts(folder / "counts.parquet"), vocab_size, "gpt2", threads=cores
    ), lambda _: None


def _nosplit(folder: Path, vocab_size: int, cores: int) -> Prepared:
    from tokenmill import Counter, train_vocab

    text = (folder / "text.txt").read_bytes()

    def work() -> Any:
        counter = Counter(None, threads=cores)
        counter.update([text])
        return train_vocab(counter, vocab_size, None, pair_count_min=1, threads=cores)

    return work, lambda _: None


def _lines(folder: Path) -> list[str]:
    with (folder / "text.txt").open(encoding="utf-8", newline="") as file:
        return file.readlines()


def _tokenizers(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    lines = _lines(folder)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)

    def answer(_: Any) -> Any:
        vocabulary = tokenizer.get_vocab()
        return learned(sorted(vocabulary, key=vocabulary.__getitem__), vocab_size * 9 // 10)

    return lambda: tokenizer.train_from_iterator(lines, trainer), answer


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

    def answer(result: Any) -> Any:
        vocabulary = result[0]
        return learned(sorted(vocabulary, key=vocabulary.__getitem__), vocab_size * 9 // 10)

    return work, answer


def _gigatoken(folder: Path, vocab_size: int, _cores: int) -> Prepared:
    import gigatoken

    text = (folder / "text.txt").read_bytes()
    return lambda: gigatoken.train_bpe(text, vocab_size, []), lambda _: None


TOOLS: dict[str, Callable[[Path, int, int], Prepared]] = {
    "tokenmill": _tokenmill,
    "counts": _counts,
    "nosplit": _nosplit,
    "tokenizers": _tokenizers,
    "rustbpe": _rustbpe,
    "bpeasy": _bpeasy,
    "gigabpe": _gigabpe,
    "gigatoken": _gigatoken,
}

if __name__ == "__main__":
    main()
