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

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ENGLISH, SHARED, first, texts_of
from benchmarks.encode import TEXTS, cut_at_gap
from benchmarks.encode_one import quarter
from benchmarks.process import run_module
from tokenmill.pretokenizers import patterns

TOOLS = ("tokenmill", "tokenmill, Arrow", "gigatoken", "snaptokens", "fastokens")
TOKENIZERS = ("qwen3", "qwen3 normalized", "llama3", "llama-2-spm", "superbpe-200k")
_MORE_TOOLS = {"llama-2-spm": ("tokie", "splintr")}
_N_ADDED = 256
_MARKS = ("<|", "<s>", "</s>", "<unk>")  # of special tokens


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    parser.add_argument("--tokenizers", nargs="+", choices=TOKENIZERS, default=TOKENIZERS)
    record.add_option(parser)
    asked = parser.parse_args()
    if not ENGLISH.is_dir():
        sys.exit(f"{SHARED}: expected the corpus and the tokenizers that the project is measured with.")
    section = record.begin(
        "encode_published", ("tokenizers", "gigatoken", "snaptokens", "fastokens", "tokie", "splintr-rs"), asked
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for text in asked.texts:
            unmarked = (one for one in texts_of(text) if not any(mark in one for mark in _MARKS))
            texts = first(unmarked, asked.mb * 10**6)
            (folder / "documents.json").write_text(json.dumps(texts), encoding="utf-8")
            n_bytes = sum(len(one.encode()) for one in texts[quarter(texts) :])
            for tokenizer in asked.tokenizers:
                (folder / "tokenizer.json").write_text(json.dumps(_document(tokenizer)), encoding="utf-8")
                print(f"\n{text}, {tokenizer}: {n_bytes / 1e6:.1f} MB after a quarter more, one core")
                named = {"text": text, "tokenizer": tokenizer, "text_bytes": n_bytes, "cores": 1}
                section["cells"] += [
                    named | cell
                    for cell in _measure_all(folder, (*TOOLS, *_MORE_TOOLS.get(tokenizer, ())), asked.runs, n_bytes)
                ]
    record.keep(section, asked.record)


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


def _measure_all(folder: Path, tools: tuple[str, ...], n_runs: int, n_bytes: int) -> list[dict[str, Any]]:
    def measure(tool: str) -> dict[str, Any]:
        return run_module("benchmarks.encode_one", tool, folder, 1, 1, "QUARTER")

    expected = measure("tokenizers")
    if "failed" in expected:
        sys.exit(f"tokenizers: {expected['failed']}")
    found = {tool: [measure(tool)] for tool in tools}
    able = [tool for tool, [first] in found.items() if first.get("answer") == expected["answer"]]
    for i in range(1, n_runs if able else 1):
        at = i % len(able)
        for tool in able[at:] + able[:at]:
            found[tool].append(measure(tool))
    cells: list[dict[str, Any]] = [_cell("tokenizers", [expected], n_bytes)]
    print(f"  tokenizers        {cells[0]['runs_mb_per_s'][0]:7.1f} MB/s", flush=True)
    speeds: dict[str, float] = {}
    for tool, runs in found.items():
        failed = [one["failed"] for one in runs if "failed" in one]
        if failed or any(one["answer"] != expected["answer"] for one in runs):
            print(f"  {tool:<17} {failed[0] if failed else 'other ids than those of tokenizers: no time'}")
            cells.append({"tool": tool} | ({"failed": failed[0]} if failed else {"answer": "other"}))
            continue
        cells.append(_cell(tool, runs, n_bytes))
        speeds[tool] = statistics.median(cells[-1]["runs_mb_per_s"])
        print(f"  {tool:<17} {speeds[tool]:7.1f} MB/s", flush=True)
    others = [speed for tool, speed in speeds.items() if not tool.startswith("tokenmill")]
    for tool in TOOLS[:2] if others else ():
        if tool in speeds:
            print(f"  {tool}: {speeds[tool] / max(others):.2f} × the fastest other tool")
    return cells


def _cell(tool: str, runs: list[dict[str, Any]], n_bytes: int) -> dict[str, Any]:
    seconds = [one["seconds"][0] for one in runs]
    return {
        "tool": tool, "answer": "same", "runs_s": record.seconds(seconds),
        "runs_cpu_s": record.seconds(one["cpu_s"][0] for one in runs), "runs_mb_per_s": record.mb_per_s(n_bytes, seconds),
    }  # fmt: skip


if __name__ == "__main__":
    main()
