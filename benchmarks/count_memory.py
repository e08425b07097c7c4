"""make bench-count: 2 GB of text with 30 million distinct pre-tokens, counted in bounded memory; the counts are checked one by one.

The text is generated: word r of 30 million occurs A >> log2(r) times, at least once (Zipf's law in steps), in an order that
strides over all occurrences, so that nothing is near its like. One word in sixteen is longer than what a table's entry holds.
A process of its own counts the file; its peak memory is that of the whole process, Python and its libraries included. What this
does not show: other splits, other lengths of words, and the speed of a disk (the file and the runs are in the page cache).
"""

import argparse
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import record
from benchmarks.harness import options, recording
from benchmarks.process import module_result, peak_mb, timed

LETTERS = np.frombuffer(b"etaoinshrdlcumwf", np.uint8)
DIGITS_MAX = 7  # base 16: 28 bits
PIECE_WORDS = 1 << 19
DOCUMENT_WORDS = 1 << 13


class Corpus:
    """Words 1..n_words; `text_bytes` is about what their occurrences come to."""

    def __init__(self, n_words: int, text_bytes: int) -> None:
        self.n_words = n_words
        ranks = 1 << np.arange(n_words.bit_length())
        self.n_in_class = np.minimum(ranks, n_words + 1 - ranks)
        self.first = ranks
        classes = np.arange(len(ranks))
        mean_bytes = 1 + (classes // 4 + 1) * (1 + 2 / 16)
        most = 1
        while (self.n_in_class * np.maximum(1, most >> classes) * mean_bytes).sum() < text_bytes:
            most += most // 64 + 1
        self.counts = np.maximum(1, most >> classes)
        self.ends = np.cumsum(self.n_in_class * self.counts)
        self.n_occurrences = int(self.ends[-1])
        self.n_documents = -(-self.n_occurrences // DOCUMENT_WORDS)
        stride = int(self.n_occurrences * 0.618)
        while math.gcd(stride, self.n_occurrences) > 1:
            stride += 1
        self.stride = stride

    def pieces(self) -> Iterator[bytes]:
        """The text, a piece at a time: documents are lines, each word has a space before it."""
        for start in range(0, self.n_occurrences, PIECE_WORDS):
            places = np.arange(start, min(start + PIECE_WORDS, self.n_occurrences))
            occurrence = places * self.stride % self.n_occurrences
            kind = np.searchsorted(self.ends, occurrence, "right")
            words = self.first[kind] + occurrence % self.n_in_class[kind]
            text, ends = spelled(words)
            cuts = [0, *ends[DOCUMENT_WORDS - 1 : -1 : DOCUMENT_WORDS].tolist(), len(text)]
            yield b"".join(text[a:b] + b"\n" for a, b in pairwise(cuts))

    def check(self, path: Path) -> None:
        """Every pre-token of a file of counts is a word, or the end of a line, with the count that it must have."""
        n_rows, before = 0, b""
        with pq.ParquetFile(path) as file:
            for i in range(file.num_row_groups):
                table = file.read_row_group(i).combine_chunks()
                keys, found = table["pretoken"].chunk(0), table["count"].to_numpy()
                assert before < keys[0].as_py(), "not sorted"
                before = keys[-1].as_py()
                if n_rows == 0:
                    assert (keys[0].as_py(), found[0]) == (b"\n", self.n_documents)
                    keys, found = keys[1:], found[1:]
                    n_rows += 1
                words = read(keys)
                assert (words >= 1).all() and (words <= self.n_words).all()
                assert spelled(words)[0] == keys.buffers()[2].to_pybytes()[-sum_bytes(keys) :], "no word"
                kind = np.frexp(words.astype(float))[1] - 1
                assert (found == self.counts[kind]).all(), "a wrong count"
                assert pc.all(pc.less(keys[:-1], keys[1:])).as_py() is not False, "not sorted"
                n_rows += len(words)
        assert n_rows == self.n_words + 1, f"{n_rows} rows"


def digits_of(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The base-16 digits of the words, right-aligned, and which of them are there."""
    shifts = np.arange(4 * (DIGITS_MAX - 1), -1, -4)
    return (words[:, None] >> shifts) & 15, (words[:, None] >> shifts) > 0


def spelled(words: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The words' text, each after a space, and where each ends. A word whose last digit is 15 has each letter three times."""
    digits, there = digits_of(words)
    times = there * np.where(words % 16 == 15, 3, 1)[:, None]
    letters = np.column_stack([np.full(len(words), ord(" "), np.uint8), LETTERS[digits]])
    times = np.column_stack([np.ones(len(words), np.int64), times])
    return np.repeat(letters.ravel(), times.ravel()).tobytes(), np.cumsum(times.sum(axis=1))


def sum_bytes(keys: pa.Array) -> int:
    """How many bytes the keys have."""
    return int(offsets_of(keys)[-1] - offsets_of(keys)[0])


def offsets_of(keys: pa.Array) -> np.ndarray:
    """Where keys begin, and the last one ends."""
    return np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)


def read(keys: pa.Array) -> np.ndarray:
    """The numbers of words from their text."""
    data, offsets = np.frombuffer(keys.buffers()[2], np.uint8), offsets_of(keys)
    value = np.zeros(256, np.int64)
    value[LETTERS] = np.arange(16)
    step = np.where(data[offsets[1:] - 1] == LETTERS[15], 3, 1)
    n_digits = (np.diff(offsets) - 1) // step
    words = np.zeros(len(keys), np.int64)
    for i in range(DIGITS_MAX):
        has = n_digits > i
        words[has] = words[has] * 16 + value[data[(offsets[:-1] + 1 + i * step)[has]]]
    return words


def count(path: Path, to: Path, memory_mb_max: int, threads: int) -> None:
    """What the process of its own does: prints one line of JSON."""
    from tokenmill import Counter

    counter = Counter("gpt2", memory_mb_max, threads, to.parent)

    def update() -> None:
        with path.open("rb") as file:
            while lines := file.readlines(8 << 20):
                counter.update(pa.array(lines, pa.binary()))

    counting_s = timed(update).seconds
    n_runs = counter.n_runs
    merging_s = timed(lambda: counter.finish_to(to)).seconds
    print(json.dumps({"counting_s": counting_s, "merging_s": merging_s, "runs": n_runs, "peak_mb": peak_mb()}))


def main() -> None:
    parser = options("count_memory", __doc__)
    parser.add_argument("--text-mb", type=int, default=2000)
    parser.add_argument("--words", type=int, default=30_000_000)
    parser.add_argument("--memory-mb-max", type=int, nargs="+", default=[512, 384])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where there is room for the text and the runs")
    parser.add_argument("--count", type=Path, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.count:
        count(*asked.count, asked.memory_mb_max[0], asked.threads)
        return
    corpus = Corpus(asked.words, asked.text_mb * 1_000_000)
    with recording("count", ("pyarrow",), asked) as measured:
        text, to = measured.folder / "text", measured.folder / "counts.parquet"
        with text.open("wb") as file:
            file.writelines(corpus.pieces())
        n_bytes = text.stat().st_size
        print(
            f"{n_bytes / 1e6:,.0f} MB, {corpus.n_occurrences:,} words, {corpus.n_words:,} distinct, {asked.threads} thread(s)"
        )
        print(
            f"{'memory_mb_max':>14} {' peak MB':>9} {'runs':>5} {'counting s':>11} {'merging s':>10} {'MB/s':>6}  counts"
        )
        for memory_mb_max in asked.memory_mb_max:
            limits = ("--memory-mb-max", memory_mb_max, "--threads", asked.threads)
            done = module_result("benchmarks.count_memory", "--count", text, to, *limits)
            corpus.check(to)
            seconds = done["counting_s"] + done["merging_s"]
            print(
                f"{memory_mb_max:>14} {done['peak_mb']:>9.0f} {done['runs']:>5} {done['counting_s']:>11.1f} "
                f"{done['merging_s']:>10.1f} {n_bytes / 1e6 / seconds:>6.1f}  all right",
                flush=True,
            )
            cell = {"text_bytes": n_bytes, "distinct": corpus.n_words, "memory_mb_max": memory_mb_max}
            cell |= {"cores": asked.threads, "answer": "same", "spilled_runs": done["runs"]}
            cell |= {"runs_s": record.seconds([seconds]), "runs_peak_mb": [round(done["peak_mb"], 1)]}
            measured.cells.append(cell)


if __name__ == "__main__":
    main()
