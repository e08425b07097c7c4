"""make bench-hard: one pre-token of 20 kB and of 2 MB for each shape that makes merging slow somewhere, on one core.

No split pattern: each text is one pre-token, merged anew each time. The vocabulary is one that was learned from half of the
shapes and from the project's sample. Each answer is decoded and compared with its text before its time counts, and the
one of 20 kB with that of `tokenizers`. Then, with each named split pattern and the same checks, 4 MB and 16 MB of one
character again and again, for one of each class that the patterns tell apart. What this does not show: text of several words.
"""

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import tokenizers

from benchmarks import record
from benchmarks.corpus import documents
from benchmarks.harness import Cell, options, recording
from benchmarks.process import timed
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.pretokenizers.patterns import names, steps_of

SHORT_BYTES, LONG_BYTES = 20_000, 2_000_000
RUNS = 5
CLASS_BYTES = (4_000_000, 16_000_000)
CLASS_RUNS = 3
CLASSES = ["a", "A", "é", "中", "ǅ", "\u0301", "1", "٣", "!", "😀", " ", "\t", "\n", "\u00a0"]


def main() -> None:
    asked = options("hard_shapes", __doc__).parse_args()
    with recording("hard", ("tokenizers",), asked) as measured:
        shapes = {name: shape[: LONG_BYTES // len(shape[0].encode())] for name, shape in _shapes().items()}
        document = _document(shapes)
        measured.cells.extend(_of_shapes(shapes, document))
        print()
        measured.cells.extend(_of_patterns(document))


def _of_shapes(shapes: dict[str, str], document: dict[str, Any]) -> Iterator[Cell]:
    tokenizer, judge = _loaded(document, None)
    print(f"{'shape':<20} {'20 kB':>10} {'2 MB':>10} {'per byte':>9}   lowest of {RUNS}, one core")
    for name, text in shapes.items():
        short = text[: SHORT_BYTES // len(text[0].encode())]
        assert tokenizer.encode(short) == judge.encode(short).ids, name
        assert tokenizer.decode(tokenizer.encode_batch([text], threads=1).values) == text, name
        again = 8  # calls a measurement of the short text
        runs_short_s = [_measure(tokenizer, [short] * again) / again for _ in range(RUNS)]
        runs_long_s = [_measure(tokenizer, [text]) for _ in range(RUNS)]
        yield {"shape": name} | _cell(len(short.encode()), runs_short_s)
        yield {"shape": name} | _cell(len(text.encode()), runs_long_s)
        short_s, long_s = min(runs_short_s), min(runs_long_s)
        ratio = (long_s / len(text.encode())) / (short_s / len(short.encode()))
        print(f"{name:<20} {1000 * short_s:7.2f} ms {1000 * long_s:7.1f} ms {ratio:7.2f} ×")


def _of_patterns(document: dict[str, Any]) -> Iterator[Cell]:
    how = f"the highest of {len(CLASSES)} classes, lowest of {CLASS_RUNS}"
    print(f"{'pattern':<20} {'4 MB':>10} {'16 MB':>10} {'ratio':>9}   {how}")
    for name in names():
        tokenizer, judge = _loaded(document, name)
        for one in CLASSES:
            short = one * (SHORT_BYTES // len(one.encode()))
            assert tokenizer.encode(short) == judge.encode(short).ids, (name, ascii(one))
        seconds = {one: [_of_class(tokenizer, one, n_bytes) for n_bytes in CLASS_BYTES] for one in CLASSES}
        for one, pair in seconds.items():
            for n_bytes, runs_s in zip(CLASS_BYTES, pair, strict=True):
                yield {"pattern": name, "character": ascii(one)} | _cell(n_bytes, runs_s)
        one = max(seconds, key=lambda one: min(seconds[one][1]) / min(seconds[one][0]))
        short_s, long_s = map(min, seconds[one])
        print(f"{name:<20} {1000 * short_s:7.1f} ms {1000 * long_s:7.1f} ms {long_s / short_s:7.2f} ×   {one!a}")


def _cell(n_bytes: int, runs_s: list[float]) -> Cell:
    return {"text_bytes": n_bytes, "cores": 1, "answer": "same", "runs_cpu_s": record.seconds(runs_s)}


def _of_class(tokenizer: Tokenizer, one: str, n_bytes: int) -> list[float]:
    text = one * (n_bytes // len(one.encode()))
    assert tokenizer.decode(tokenizer.encode_batch([text], threads=1).values) == text, ascii(one)
    return [_measure(tokenizer, [text]) for _ in range(CLASS_RUNS)]


def _measure(tokenizer: Tokenizer, texts: list[str]) -> float:
    array = pa.array(texts, pa.large_string())
    return timed(lambda: tokenizer.encode_batch(array, threads=1)).cpu_s


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


def _document(shapes: dict[str, str]) -> dict[str, Any]:
    """A tokenizer.json whose vocabulary knows the shapes."""
    words = [text[i : i + 40] for text in shapes.values() for i in range(0, 400_000, 40)]
    counter = Counter("gpt2")
    counter.update(words + documents(4_000_000))
    with tempfile.TemporaryDirectory() as folder:
        train_vocab(counter, 32_768, "gpt2").save(folder)
        document: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    return document


def _loaded(document: dict[str, Any], pattern: str | None) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(document | {"pre_tokenizer": pre_tokenizer_of(steps_of(pattern))}), encoding="utf-8")
        return Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))


if __name__ == "__main__":
    main()
