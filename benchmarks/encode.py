"""make bench-encode: tools that encode, side by side: english, code and multilingual text with five tokenizers.

Every tool's ids are compared with those of `tokenizers` before its time is printed. The tools take turns, each run in a
process of its own; shown are the median of the runs' first passes (fresh text: nothing is remembered yet) and that of
all later passes. What several threads of tokenmill are against one is measured once more in one process, in turns, and
beside it what as many threads reach that have nothing in common: what a machine gives differs by more between two
processes and from minute to minute. Where others disturb it, the fastest runs say what it is without them. Documents
with the text of a special token are left out, which the tools treat differently, and all text is brought into NFC,
because one of the tokenizers asks for it. The llama3 column is the vocabulary of cl100k with the split pattern of
llama3; special tokens behind a gap of ids are left out, with which two tools do not load. What this does not show:
loading, memory, files. It needs the corpus and the tokenizers that stand beside the project where it is developed; without
them, `--texts english --tokenizers trained` encodes the sample in data/raw with a tokenizer that is trained on it.
"""

import json
import os
import statistics
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ENGLISH, SHARED, first, needed_files, texts_of
from benchmarks.encode_one import TOOLS
from benchmarks.harness import Cell, bytes_of, in_turns, options, recording, verdict, why_untimed
from benchmarks.process import module_result, run_module
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.pretokenizers import patterns

TEXTS = ("english", "code", "multilingual")
TOKENIZERS = {
    "gpt2": "gpt-2",
    "cl100k": "cl100k_base",
    "o200k": "o200k_base",
    "qwen2": "qwen3",
    "llama3": "cl100k_base",
}
TRAINED = "trained"  # on the documents themselves: 32,768 tokens with gpt2's pattern
SLOW = ("tokenizers", "tiktoken")  # measured once, one pass
LATER_PASSES = 3
TURNS = 25
PACKAGES = ("tokenizers", "tiktoken", "gigatoken", "snaptokens", "fastokens", "tokie", "splintr-rs")


def main() -> None:
    parser = options("encode", __doc__, runs=5)
    parser.add_argument("--mb", type=int, default=16)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    parser.add_argument("--tokenizers", nargs="+", choices=[*TOKENIZERS, TRAINED], default=[*TOKENIZERS])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=[*TOOLS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--turns", type=int, default=TURNS, help="of one thread and several in one process; 0: none")
    asked = parser.parse_args()
    if (asked.texts, asked.tokenizers) != (["english"], [TRAINED]):
        needed_files(ENGLISH)
    sections = {threads: record.begin(section_of(threads), PACKAGES, asked) for threads in asked.threads}
    several = [threads for threads in asked.threads if threads > 1 and "tokenmill" in asked.tools and asked.turns]
    with recording("threads", (), asked) as turns:
        for text in asked.texts:
            normalized = (unicodedata.normalize("NFC", one) for one in texts_of(text) if "<|" not in one)
            kept = first(normalized, asked.mb * 10**6)
            (turns.folder / "documents.json").write_text(json.dumps(kept), encoding="utf-8")
            n_bytes = bytes_of(kept)
            for tokenizer in asked.tokenizers:
                _write_tokenizer(tokenizer, kept, turns.folder)
                named = {"text": text, "tokenizer": tokenizer, "text_bytes": n_bytes}
                for threads, section in sections.items():
                    print(f"\n{text}, {tokenizer}: {n_bytes / 1e6:.1f} MB, {threads} of {os.cpu_count()} cores")
                    cells = _measure_all(asked.tools, turns.folder, threads, asked.runs, n_bytes)
                    section["cells"] += [named | {"cores": threads} | cell for cell in cells]
                for threads in several:
                    turns.cells.append(named | {"cores": threads} | _measure_turns(turns.folder, threads, asked.turns))
        for section in sections.values():
            record.keep(section, asked.record)


def section_of(threads: int) -> str:
    """The section of a record for so many threads: on one core, which other work disturbs less, one may measure more often."""
    return "encode" if threads == 1 else f"encode_{threads}"


def _write_tokenizer(name: str, texts: list[str], folder: Path) -> None:
    """tokenizer.json with this split pattern and without a normalizer, and the same for tiktoken."""
    if name == TRAINED:
        counter = Counter("gpt2")
        counter.update(texts)
        tokenizer = train_vocab(counter, 32_768, "gpt2", ["<|endoftext|>"])
        tokenizer.save(folder)
    else:
        tokenizer = _write_published(name, folder)
    meta = {"pattern": patterns.steps_of(str(tokenizer.pattern))[0], "special_tokens": tokenizer.special_tokens}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def _write_published(name: str, folder: Path) -> Tokenizer:
    document = json.loads((SHARED / "tokenizers" / TOKENIZERS[name] / "tokenizer.json").read_text(encoding="utf-8"))
    document["normalizer"] = None
    n_ids = len(document["model"]["vocab"])
    n = cut_at_gap(document)
    document["added_tokens"] = [one for one in document["added_tokens"] if one["id"] < n or n == n_ids]
    if name == "llama3":
        document["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": patterns.steps_of(name)[0]}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    tokenizer = Tokenizer.load(path)
    assert tokenizer.pattern == name, (tokenizer.pattern, tokenizer.engine_reason)
    tokenizer.save(folder)
    path.write_text(json.dumps(document), encoding="utf-8")  # as published: the tools may know it by its looks
    return tokenizer


def cut_at_gap(document: dict[str, Any]) -> int:
    """Leaves out the tokens behind the first gap of ids, with which some tools do not load; the number of those before it."""
    vocabulary = document["model"]["vocab"]
    ids = set(vocabulary.values())
    n = next(i for i in range(len(ids) + 1) if i not in ids)
    document["model"]["vocab"] = {token: i for token, i in vocabulary.items() if i < n}
    return n


def _measure_all(tools: list[str], folder: Path, threads: int, n_runs: int, n_bytes: int) -> list[Cell]:
    """The cells of all tools, which take turns; printed, too."""

    def measure(tool: str, n_passes: int) -> dict[str, Any]:
        return run_module("benchmarks.encode_one", tool, folder, threads, n_passes)

    expected = module_result("benchmarks.encode_one", "tokenizers", folder, threads, 1)
    fast = in_turns({tool: partial(measure, tool, 1 + LATER_PASSES) for tool in tools if tool not in SLOW}, n_runs)
    slow = {tool: [expected if tool == "tokenizers" else measure(tool, 1)] for tool in tools if tool in SLOW}
    own = _speeds(fast["tokenmill"], n_bytes) if "tokenmill" in tools else None
    cells = []
    for tool in tools:
        runs = slow.get(tool) or fast[tool]
        cell = {"tool": tool} | verdict(runs, expected["answer"])
        if cell.get("answer") != "same":
            print(f"  {tool:<17} {why_untimed(cell)}")
        else:
            cell |= _runs_of(runs, n_bytes)
            speeds = _speeds(runs, n_bytes)
            line = f"  {tool:<17} first {speeds[0]:7.1f} MB/s, later {speeds[1]:7.1f} MB/s"
            if own and tool != "tokenmill":
                line += f"  tokenmill: {own[0] / speeds[0]:5.2f} × and {own[1] / speeds[1]:5.2f} ×"
            print(line, flush=True)
        cells.append(cell)
    return cells


def _runs_of(runs: list[dict[str, Any]], n_bytes: int) -> Cell:
    cell: Cell = {}
    for kind, passes in (("first", slice(1)), ("later", slice(1, None))):
        seconds = [second for run in runs for second in run["seconds"][passes]]
        cell[f"runs_{kind}_s"] = record.seconds(seconds)
        cell[f"runs_{kind}_cpu_s"] = record.seconds(second for run in runs for second in run["cpu_s"][passes])
        cell[f"runs_{kind}_mb_per_s"] = record.mb_per_s(n_bytes, seconds)
    return cell


def _measure_turns(folder: Path, threads: int, n_turns: int) -> dict[str, Any]:
    found = run_module("benchmarks.encode_turns", folder, threads, n_turns, LATER_PASSES)
    if "failed" in found:
        print(f"\n{threads} threads against one: {found['failed']}")
        return found
    print(f"\n{threads} threads against one, medians of {n_turns} turns in one process, and the fastest of each:")
    for kind in ("first", "later"):
        for name, of in (("", statistics.median), (" fastest", min)):
            one, several, apart = (of(found[kind][way]) for way in ("one", "several", "apart"))
            times = f"{one * 1e3:.1f}, {several * 1e3:.1f} and {apart * 1e3:.1f} ms"
            print(f"  {kind:<5}{name:<8} {one / several:.2f} ×, with nothing in common {one / apart:.2f} × ({times})")
    return {f"runs_{kind}_{way}_s": record.seconds(seconds) for kind in found for way, seconds in found[kind].items()}


def _speeds(runs: list[dict[str, Any]], n_bytes: int) -> tuple[float, float]:
    """MB/s of the first passes and of the later ones; of a single pass both."""
    first = statistics.median(run["seconds"][0] for run in runs)
    later = statistics.median(second for run in runs for second in run["seconds"][1:] or run["seconds"])
    return n_bytes / 1e6 / first, n_bytes / 1e6 / later


if __name__ == "__main__":
    main()
