"""One measurement in a process of its own: python -m benchmarks.one TASK TOOL FILE; prints one line of JSON.

FILE holds the input: lines of text (count, train), or a JSON list of documents (encode). One core: the process binds
itself to it before any tool is imported. The time is that of the call alone, the memory the peak of the process.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VOCAB_SIZE = 10_000
N_COMPARED = 9_000  # learned tokens; gigabpe begins with the bytes that occur, and so learns some more
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
END = "<|endoftext|>"


def main() -> None:
    task, tool, file = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    work, answer = TASKS[task, tool](file)
    seconds = []
    result = None
    for _ in range(2 if task == "encode" else 1):  # encoding: over fresh text, and once more
        start_s = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start_s)
    peak = peak_mb()
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "answer": answer_of(answer(result))}))


def answer_of(answer: Any) -> str:
    """What two tools' answers are compared by."""
    import hashlib  # 4 MB, which no tool is to be blamed for

    return hashlib.sha256(json.dumps(answer).encode()).hexdigest()


def peak_mb() -> float:
    """The process's own peak: what getrusage says begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


Prepared = tuple[Callable[[], Any], Callable[[Any], Any]]


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines(keepends=True)


def _documents(file: Path) -> list[str]:
    found: list[str] = json.loads(file.read_text(encoding="utf-8"))
    return found


def learned(tokens: list[str], n_compared: int = N_COMPARED) -> list[str]:
    """The first learned tokens as bytes in hex, from the characters that stand for bytes in a tokenizer.json."""
    from tokenmill import _core

    order = _core.byte_order()
    prints = [byte for byte in order if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    characters = {chr(byte): byte for byte in prints}
    characters |= {chr(256 + i): byte for i, byte in enumerate(order[len(prints) :])}
    first = [token for token in tokens if len(token) > 1][:n_compared]
    return [bytes(characters[character] for character in token).hex() for token in first]


# Counting and training. Counting alone, for tools that only train: a vocabulary of two tokens more than the bytes.


def _tokenmill_count(file: Path) -> Prepared:
    import pyarrow  # noqa: F401 — the table is made with it: not to be imported while the time is taken

    from tokenmill import Counter

    lines = _lines(file)

    def work() -> Any:
        counter = Counter("gpt2", threads=1)
        counter.update(lines)
        return counter.finish()

    return work, lambda table: None


def _tokenmill_train(file: Path) -> Prepared:
    from tokenmill import Counter, train_vocab

    lines = _lines(file)

    def work() -> Any:
        counter = Counter("gpt2", threads=1)
        counter.update(lines)
        return train_vocab(counter, VOCAB_SIZE, "gpt2", pair_count_min=1, threads=1)

    def answer(tokenizer: Any) -> Any:
        return [tokenizer.token_bytes(id).hex() for id in range(256, 256 + N_COMPARED)]

    return work, answer


def _tokenizers(vocab_size: int) -> Callable[[Path], Prepared]:
    def prepare(file: Path) -> Prepared:
        import tokenizers
        from tokenizers import models, pre_tokenizers, trainers

        lines = _lines(file)
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)

        def answer(_: Any) -> Any:
            vocabulary = tokenizer.get_vocab()
            return learned(sorted(vocabulary, key=vocabulary.__getitem__))

        return lambda: tokenizer.train_from_iterator(lines, trainer), answer

    return prepare


def _rustbpe(vocab_size: int) -> Callable[[Path], Prepared]:
    def prepare(file: Path) -> Prepared:
        import rustbpe

        lines = _lines(file)
        tokenizer = rustbpe.Tokenizer()
        return lambda: tokenizer.train_from_iterator(iter(lines), vocab_size, pattern=GPT2), lambda _: None

    return prepare


def _gigabpe(vocab_size: int) -> Callable[[Path], Prepared]:
    def prepare(file: Path) -> Prepared:
        import gigabpe

        def answer(result: Any) -> Any:
            vocabulary = result[0]
            return learned(sorted(vocabulary, key=vocabulary.__getitem__))

        return lambda: gigabpe.train_bpe(
            [str(file)], vocab_size, special_tokens=[], pretokenizer="bytelevel", threads=1
        ), answer

    return prepare


def _gigatoken(vocab_size: int) -> Callable[[Path], Prepared]:
    def prepare(file: Path) -> Prepared:
        import gigatoken

        text = file.read_bytes()
        return lambda: gigatoken.train_bpe(text, vocab_size, []), lambda _: None

    return prepare


# Encoding with the tokenizer that stands beside the input.


def _tokenmill_encode(file: Path) -> Prepared:
    from tokenmill import Tokenizer

    texts = _documents(file)
    tokenizer = Tokenizer.load(file.parent / "tokenizer")
    return lambda: tokenizer.encode_batch(texts, threads=1), lambda batch: batch.to_pylist()


def _tokenizers_encode(file: Path) -> Prepared:
    import tokenizers

    texts = _documents(file)
    tokenizer = tokenizers.Tokenizer.from_file(str(file.parent / "tokenizer/tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return lambda: tokenizer.encode_batch_fast(texts), lambda batch: [one.ids for one in batch]


def _tiktoken_encode(file: Path) -> Prepared:
    import base64

    import tiktoken

    texts = _documents(file)
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (
            line.split() for line in (file.parent / "tokenizer/vocab.tiktoken").read_bytes().splitlines()
        )
    }
    encoding = tiktoken.Encoding("bench", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={END: 0})
    return lambda: encoding.encode_ordinary_batch(texts, num_threads=1), lambda batch: batch


def _gigatoken_encode(file: Path) -> Prepared:
    import gigatoken

    texts = _documents(file)
    tokenizer = gigatoken.Tokenizer(str(file.parent / "tokenizer/tokenizer.json"))
    return lambda: tokenizer.encode_batch(texts, parallel=False), lambda batch: batch.to_list()


TASKS: dict[tuple[str, str], Callable[[Path], Prepared]] = {
    ("count", "tokenmill"): _tokenmill_count,
    ("count", "tokenizers"): _tokenizers(258),
    ("count", "rustbpe"): _rustbpe(258),
    ("count", "gigabpe"): _gigabpe(258),
    ("count", "gigatoken"): _gigatoken(258),
    ("train", "tokenmill"): _tokenmill_train,
    ("train", "tokenizers"): _tokenizers(VOCAB_SIZE),
    ("train", "rustbpe"): _rustbpe(VOCAB_SIZE),
    ("train", "gigabpe"): _gigabpe(VOCAB_SIZE),
    ("train", "gigatoken"): _gigatoken(VOCAB_SIZE),
    ("encode", "tokenmill"): _tokenmill_encode,
    ("encode", "tokenizers"): _tokenizers_encode,
    ("encode", "tiktoken"): _tiktoken_encode,
    ("encode", "gigatoken"): _gigatoken_encode,
}

if __name__ == "__main__":
    main()
