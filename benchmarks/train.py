"""make bench-train: counting plus merging, side by side; every tool in a process of its own, the tools taking turns.

Input is what each tool wants: a text file (tokenmill, line by line, and gigabpe), lines or the text in memory (the others). The
time is that of counting and merging, reading of files included; beside it stands the processor time of all threads, which other
work on the machine changes less. The memory is the process's peak. The first learned tokens of
tokenmill and gigabpe are compared with those of tokenizers before a time is printed, where tokenizers takes part. What this does
not show: whether rustbpe (another order among equally frequent pairs), bpeasy (tokens no longer than it is told) and gigatoken
(the text whole, not line by line) learned well, nor superwords, whose merges tests compare with a naive trainer; and of counting
alone, whether the counts are right, which tests show.
"""

import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.corpus import ROOT_CORPUS, by_language, lines_of
from benchmarks.harness import Cell, in_turns, options, recording, runs_of, verdict, why_untimed
from benchmarks.process import Run, run_module
from benchmarks.train_one import COUNTING
from tokenmill.counts.spill import SCHEMA
from tokenmill.counts.table import write_counts

TOOLS = ("tokenmill", "tokenizers", "rustbpe", "bpeasy", "gigabpe", "gigatoken")
FAST = ("tokenmill", "gigabpe", "gigatoken")


def main() -> None:
    parser = options("train", __doc__, runs=5)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=[*BENCHES])
    asked = parser.parse_args()
    with recording("train", TOOLS[1:], asked) as measured:
        for name in asked.only:
            folder = measured.folder / name
            folder.mkdir()
            for cells in BENCHES[name](folder, asked.runs):
                measured.cells.extend(cells)
            shutil.rmtree(folder)


def english(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """64 MB, 10,000 tokens, one core."""
    n_bytes = _write(folder, lines_of("english"))
    yield _side_by_side("english", n_bytes, folder, TOOLS, 10_000, 1, runs)


def counting(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """64 MB, one core: counting alone by tokenmill, and by the others with a vocabulary of two tokens more than the bytes."""
    n_bytes = _write(folder, lines_of("english"))
    yield _side_by_side("english, counting alone", n_bytes, folder, TOOLS, COUNTING, 1, runs)


def mixed(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """168 MB, 50,000 tokens, two cores."""
    n_bytes = _write(folder, lines_of("english", "code", "multilingual"))
    yield _side_by_side("mixed", n_bytes, folder, TOOLS, 50_000, 2, runs)


def large(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """1.2 GB: seven copies of the mixed text, another letter changed in each; without tokenizers, which takes minutes."""
    n_bytes = _write(folder, _copies(7))
    yield _side_by_side("large", n_bytes, folder, FAST, 50_000, 2, min(runs, 3))


def distinct(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """10 million distinct pre-tokens that count 10⁹ bytes and more: from counts, which the others cannot begin with."""
    pretokens, counts = heavy_tail(10_000_000)
    write_counts(pa.table([pretokens, counts], schema=SCHEMA), folder / "counts.parquet")
    yield _side_by_side("distinct", None, folder, {"tokenmill": "counts"}, 50_000, 2, min(runs, 3))


def nosplit(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """Texts without a split: each one pre-token. The published figures of a fast trainer in Python: 1.00 s and 8.15 s."""
    for name, vocab_size in (("taylorswift.txt", 10_000), ("proust_0300511.txt", 100_000)):
        text = (ROOT_CORPUS / name).read_bytes()
        (folder / "text.txt").write_bytes(text)
        what = f"{name} without a split"
        yield _side_by_side(what, len(text), folder, {"tokenmill": "nosplit"}, vocab_size, 1, runs)


def parity(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """10 MB in 21 languages, 8,000 tokens: parity-aware BPE, and that of tokenizers; on one core."""
    for language, texts in by_language(10_000_000).items():
        lines = [line for text in texts for line in text.splitlines(keepends=True)]
        (folder / f"{language}.txt").write_text("".join(lines), encoding="utf-8")
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    tools = {"tokenmill": "parity", "tokenizers": "parity_of_tokenizers"}
    yield _side_by_side("languages served alike", n_bytes, folder, tools, 8_000, 1, min(runs, 3))


def superwords(folder: Path, runs: int) -> Iterator[list[Cell]]:
    """Learns 10,000 tokens from 64 MB on one core: with both phases of superwords, and within words alone. No other tool is
    compared: supergigatoken is not in the package registry, and BpeTrainer has one split pattern, so it has no second phase."""
    n_bytes = _write(folder, lines_of("english"))
    tools = {"tokenmill": "superwords", "tokenmill, within words": "words_of_o200k"}
    yield _side_by_side("superwords", n_bytes, folder, tools, 10_000, 1, min(runs, 3))


def growth(folder: Path, _runs: int) -> Iterator[list[Cell]]:
    """How the time grows with the text and with the vocabulary; one core."""
    everything = list(lines_of("english", "code", "multilingual"))
    rng = np.random.default_rng(0)
    everything = [everything[i] for i in rng.permutation(len(everything))]
    sizes = [(mb, 32_000) for mb in (10, 20, 40, 80, 160)] + [(160, n) for n in (1_000, 4_000, 16_000, 64_000)]
    for mb, vocab_size in sizes:
        n_bytes = _write(folder, _first(everything, mb * 10**6))
        yield _side_by_side(f"growth, {mb} MB", n_bytes, folder, ("tokenmill",), vocab_size, 1, 1)


BENCHES = {
    "english": english, "counting": counting, "mixed": mixed, "large": large, "distinct": distinct, "nosplit": nosplit,
    "growth": growth, "parity": parity, "superwords": superwords,
}  # fmt: skip


def heavy_tail(n: int) -> tuple[pa.Array, pa.Array]:
    """`n` distinct pre-tokens of letters, sorted, the k-th by rank counting about 1 / k of the first: the same each time."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    rng = np.random.default_rng(1)
    words: set[bytes] = set()
    while len(words) < n:
        rows = letters[np.minimum(rng.geometric(0.12, (1 << 20, 12)) - 1, 25)]
        lengths = rng.integers(4, 13, len(rows))
        words.update(b" " + row[:length].tobytes() for row, length in zip(rows, lengths, strict=True))
    ranked = sorted(words)[:n]
    ranks = rng.permutation(n) + 1
    counts = np.maximum(1, (60_000_000 / ranks)).astype(np.uint64)
    return pa.array(ranked, pa.binary()), pa.array(counts)


def _copies(n: int) -> Iterator[str]:
    for letter in "abcdefg"[:n]:
        for line in lines_of("english", "code", "multilingual"):
            yield line.replace(letter, "q")


def _first(lines: list[str], n_bytes_max: int) -> Iterator[str]:
    n_bytes = 0
    for line in lines:
        n_bytes += len(line.encode())
        if n_bytes > n_bytes_max:
            return
        yield line


def _write(folder: Path, lines: Iterator[str]) -> int:
    """The lines as a text file; what comes back is their bytes."""
    with (folder / "text.txt").open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
    return (folder / "text.txt").stat().st_size


def _side_by_side(
    name: str,
    n_bytes: int | None,
    folder: Path,
    tools: Sequence[str] | Mapping[str, str],
    vocab_size: int,
    cores: int,
    runs: int,
) -> list[Cell]:
    """The cells of the tools, which take turns; printed, too. A mapping names the entry of TOOLS in train_one for each."""
    entries = tools if isinstance(tools, Mapping) else {tool: tool for tool in tools}
    ways = {
        tool: partial(run_module, "benchmarks.train_one", entry, folder, vocab_size, cores)
        for tool, entry in entries.items()
    }
    results = in_turns(ways, runs)
    expected = next((run["answer"] for run in results.get("tokenizers", []) if run.get("answer")), None)
    cells = []
    for tool, measured in results.items():
        cell: Cell = {"text": name, "text_bytes": n_bytes, "vocab_size": vocab_size, "cores": cores, "tool": tool}
        cell |= verdict(measured, expected)
        if cell.get("answer", "other") != "other":
            cell |= runs_of((Run(run["seconds"], run["cpu_s"]) for run in measured), n_bytes)
            cell["runs_peak_mb"] = [round(run["peak_mb"], 1) for run in measured]
        cells.append(cell)
    _print(cells)
    return cells


def _print(cells: list[Cell]) -> None:
    own = next(cell for cell in cells if cell["tool"] == "tokenmill")
    text_mb = f": {own['text_bytes'] / 1e6:.1f} MB" if own["text_bytes"] else ""
    head = f"{own['text']}{text_mb}, {own['vocab_size']:,} tokens, {own['cores']} core(s)"
    print(f"\n{head}; median (lowest – highest)", flush=True)
    for cell in cells:
        if "runs_s" not in cell:
            print(f"  {cell['tool']:<11} {why_untimed(cell)}")
            continue
        runs_s = cell["runs_s"]
        middle, peak = statistics.median(runs_s), statistics.median(cell["runs_peak_mb"])
        cpu_s = statistics.median(cell["runs_cpu_s"])
        ratio = cpu_s / statistics.median(own["runs_cpu_s"]) if "runs_s" in own else float("nan")
        print(
            f"  {cell['tool']:<11} {middle:8.3f} s ({min(runs_s):.3f} – {max(runs_s):.3f})  "
            f"processor {cpu_s:8.3f} s = {ratio:6.2f} × tokenmill's  peak {peak:6.0f} MB  {cell['answer']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
