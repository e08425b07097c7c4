"""make bench-hard: one pre-token of 20 kB and of 2 MB for each shape that makes merging slow somewhere, on one core.

No split pattern: each text is one pre-token, merged anew each time. The vocabulary is one that was learned from half of the
shapes and from the project's sample. Each answer is decoded and compared with its text before its time counts, and the
one of 20 kB with that of `tokenizers`. What this does not show: text with spaces.
"""

import json
import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import tokenizers

from benchmarks.corpus import documents
from tokenmill import Counter, Tokenizer, train_vocab

SHORT_BYTES, LONG_BYTES = 20_000, 2_000_000
RUNS = 5


def main() -> None:
    shapes = {name: shape[: LONG_BYTES // len(shape[0].encode())] for name, shape in _shapes().items()}
    tokenizer, judge = _tokenizer(shapes)
    print(f"{'shape':<20} {'20 kB':>10} {'2 MB':>10} {'per byte':>9}   lowest of {RUNS}, one core")
    for name, text in shapes.items():
        short = text[: SHORT_BYTES // len(text[0].encode())]
        assert tokenizer.encode(short) == judge.encode(short).ids, name
        assert tokenizer.decode(tokenizer.encode_batch([text], threads=1).values) == text, name
        again = 8  # calls a measurement of the short text
        short_s = min(_measure(tokenizer, [short] * again) for _ in range(RUNS)) / again
        long_s = min(_measure(tokenizer, [text]) for _ in range(RUNS))
        ratio = (long_s / len(text.encode())) / (short_s / len(short.encode()))
        print(f"{name:<20} {1000 * short_s:7.2f} ms {1000 * long_s:7.1f} ms {ratio:7.2f} ×")


def _measure(tokenizer: Tokenizer, texts: list[str]) -> float:
    array = pa.array(texts, pa.large_string())
    start_s = time.process_time()
    tokenizer.encode_batch(array, threads=1)
    return time.process_time() - start_s


def _shapes() -> dict[str, str]:
    chosen = random.Random(0)
    fibonacci, longer = "a", "ab"
    while len(fibonacci) < LONG_BYTES:
        fibonacci, longer = longer, longer + fibonacci

    def some(alphabet: str, n: int = LONG_BYTES) -> str:
        return "".join(chosen.choices(alphabet, k=n))

    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "one letter": "a" * LONG_BYTES,
        "two letters in turn": "ab" * (LONG_BYTES // 2),
        "random letters": some(letters),
        "Fibonacci string": fibonacci,
        "digits": some("0123456789"),
        "base64": some(letters + letters.upper() + "0123456789+/"),
        "DNA": some("ACGT"),
        "Chinese": some("".join(map(chr, range(0x4E00, 0x4E00 + 3000))), LONG_BYTES // 3),
    }


def _tokenizer(shapes: dict[str, str]) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    words = [text[i : i + 40] for text in shapes.values() for i in range(0, 400_000, 40)]
    counter = Counter("gpt2")
    counter.update(words + documents(4_000_000))
    with tempfile.TemporaryDirectory() as folder:
        train_vocab(counter, 32_768, "gpt2").save(folder)
        path = Path(folder) / "tokenizer.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        document["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
        path.write_text(json.dumps(document), encoding="utf-8")
        return Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))


if __name__ == "__main__":
    main()
