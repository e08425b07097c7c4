"""make bench-encode, part two: tokenizers as they are published, with their normalizer and their added tokens, on one core.

The first quarter of the text is encoded before, in the same process, and the rest is timed once: text that is new to a tool that
is at work. The tools take turns; shown is the median of the runs. Every tool's ids are compared with those of `tokenizers` before
its time counts. Documents with the text of a special token, which tools treat differently, are left out; nothing is normalized
before.

    qwen3             as published: NFC, 26 added tokens, twelve of them not special
    qwen3 normalized  the same, with added tokens that are sought in the normalized text
    llama3            cl100k's vocabulary with llama3's split pattern, and 256 added tokens, as Llama 3 has
    llama-2-spm       as published: characters and bytes in place of a split, as SentencePiece has it; also by tokie and splintr
    superbpe-200k     as published: tokens of several words, whose pre-tokens are sentences
"""

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.corpus import ENGLISH, SHARED, first, needed_files, texts_of
from benchmarks.encode import TEXTS, cut_at_gap
from benchmarks.encode_one import quarter
from benchmarks.harness import Cell, bytes_of, in_turns, options, recording, runs_of, verdict, why_untimed
from benchmarks.process import Run, module_result, run_module
from tokenmill.pretokenizers import patterns

TOOLS = ("tokenmill", "tokenmill, Arrow", "gigatoken", "snaptokens", "fastokens")
TOKENIZERS = ("qwen3", "qwen3 normalized", "llama3", "llama-2-spm", "superbpe-200k")
PACKAGES = ("tokenizers", "gigatoken", "snaptokens", "fastokens", "tokie", "splintr-rs")
_MORE_TOOLS = {"llama-2-spm": ("tokie", "splintr")}
_N_ADDED = 256
_MARKS = ("<|", "<s>", "</s>", "<unk>")  # of special tokens


def main() -> None:
    parser = options("published", __doc__, runs=3)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    parser.add_argument("--tokenizers", nargs="+", choices=TOKENIZERS, default=TOKENIZERS)
    asked = parser.parse_args()
    needed_files(ENGLISH)
    with recording("encode_published", PACKAGES, asked) as measured:
        for text in asked.texts:
            unmarked = (one for one in texts_of(text) if not any(mark in one for mark in _MARKS))
            texts = first(unmarked, asked.mb * 10**6)
            (measured.folder / "documents.json").write_text(json.dumps(texts), encoding="utf-8")
            n_bytes = bytes_of(texts[quarter(texts) :])
            for name in asked.tokenizers:
                (measured.folder / "tokenizer.json").write_text(json.dumps(_document(name)), encoding="utf-8")
                print(f"\n{text}, {name}: {n_bytes / 1e6:.1f} MB after a quarter more, one core")
                named = {"text": text, "tokenizer": name, "text_bytes": n_bytes, "cores": 1}
                cells = _measure_all(measured.folder, (*TOOLS, *_MORE_TOOLS.get(name, ())), asked.runs, n_bytes)
                measured.cells.extend(named | cell for cell in cells)


def _document(name: str) -> dict[str, Any]:
    source = {"llama3": "cl100k_base", "qwen3 normalized": "qwen3"}.get(name, name)
    document: dict[str, Any] = json.loads(
        (SHARED / "tokenizers" / source / "tokenizer.json").read_text(encoding="utf-8")
    )
    if name == "qwen3 normalized":
        for one in document["added_tokens"]:
            one["normalized"] = True
    if name == "llama3":
        document["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": patterns.steps_of(name)[0]}
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        n = cut_at_gap(document)
        document["added_tokens"] = [
            {"id": n + i, "content": f"<|reserved_special_token_{i}|>"} | flags for i in range(_N_ADDED)
        ]
    return document


def _measure_all(folder: Path, tools: tuple[str, ...], n_runs: int, n_bytes: int) -> list[Cell]:
    expected = module_result("benchmarks.encode_one", "tokenizers", folder, 1, 1, "QUARTER")
    ways = {tool: partial(run_module, "benchmarks.encode_one", tool, folder, 1, 1, "QUARTER") for tool in tools}
    results = in_turns(ways, 1)
    able = [tool for tool, [result] in results.items() if result.get("answer") == expected["answer"]]
    for tool, more in in_turns({tool: ways[tool] for tool in able}, n_runs - 1 if able else 0).items():
        results[tool] += more
    cells = []
    for tool, measured in {"tokenizers": [expected], **results}.items():
        cell = {"tool": tool} | verdict(measured, expected["answer"])
        if cell.get("answer") == "same":
            cell |= runs_of([Run(run["seconds"][0], run["cpu_s"][0]) for run in measured], n_bytes)
            print(f"  {tool:<17} {statistics.median(cell['runs_mb_per_s']):7.1f} MB/s", flush=True)
        else:
            print(f"  {tool:<17} {why_untimed(cell)}")
        cells.append(cell)
    speeds = {cell["tool"]: statistics.median(cell["runs_mb_per_s"]) for cell in cells[1:] if "runs_mb_per_s" in cell}
    others = [speed for tool, speed in speeds.items() if not tool.startswith("tokenmill")]
    for tool in TOOLS[:2] if others else ():
        if tool in speeds:
            print(f"  {tool}: {speeds[tool] / max(others):.2f} × the fastest other tool")
    return cells


if __name__ == "__main__":
    main()
