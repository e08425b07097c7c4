"""make bench: count, train and encode, side by side on one core; the tools take turns, so that a noisy machine is fair.

Answers are compared with those of tokenizers before a time is printed: the first 9,000 learned tokens, the ids of every
document; counts alone are not compared here, but in tests/. What this does not show: several cores, other languages, files
(the text is in memory, but gigabpe reads its file itself), and whether rustbpe (which has its own order among equally frequent
pairs) and gigatoken (which gets the text whole, not line by line) learned well: their tokens are not compared.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ENGLISH, ROOT, documents, lines
from benchmarks.one import END, TASKS, VOCAB_SIZE
from tokenmill import Counter, train_vocab

NOT_COMPARED = {("count", tool) for _, tool in TASKS} | {("train", "rustbpe"), ("train", "gigatoken")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--mb", type=int, default=64, help="text to count and train on")
    parser.add_argument("--encode-mb", type=int, default=16, help="text to encode")
    parser.add_argument("--runs", type=int, default=3)
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("side_by_side", ("tokenizers", "tiktoken", "rustbpe", "gigabpe", "gigatoken"), asked)
    print("english documents" if ENGLISH.is_dir() else "the sample in data/raw")
    with tempfile.TemporaryDirectory() as folder:
        text, batch = Path(folder) / "text.txt", Path(folder) / "documents.json"
        n_bytes = {"count": _write_lines(text, asked.mb), "encode": _write_documents(batch, asked.encode_mb)}
        n_bytes["train"] = n_bytes["count"]
        for task in ("count", "train", "encode"):
            tools = [tool for one, tool in TASKS if one == task]
            found = {tool: [] for tool in tools}
            for _ in range(asked.runs):
                for tool in tools:
                    found[tool].append(_measure(task, tool, batch if task == "encode" else text))
            _print(task, n_bytes[task], found)
            section["cells"] += [_cell(task, tool, n_bytes[task], found) for tool in tools]
    record.keep(section, asked.record)


def _write_lines(path: Path, mb: int) -> int:
    path.write_text("".join(lines(mb * 10**6)), encoding="utf-8")
    return path.stat().st_size


def _write_documents(path: Path, mb: int) -> int:
    texts = documents(mb * 10**6)
    path.write_text(json.dumps(texts), encoding="utf-8")
    counter = Counter("gpt2")
    counter.update(texts)
    train_vocab(counter, 32_768, "gpt2", [END]).save(path.parent / "tokenizer")
    return sum(len(text.encode()) for text in texts)


def _measure(task: str, tool: str, file: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.one", task, tool, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit {done.returncode}: {last}"}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # gigatoken prints what it does
    return measured


def _print(task: str, n_bytes: int, found: dict[str, list[dict[str, Any]]]) -> None:
    head = {"count": "count", "train": f"train, vocab_size {VOCAB_SIZE:,}", "encode": "encode, vocab_size 32,768"}[task]
    print(f"\n{head}: {n_bytes / 1e6:.1f} MB of text, one core; median of {len(found['tokenmill'])} (lowest – highest)")
    own = _seconds(found["tokenmill"])
    expected = {run.get("answer") for run in found["tokenizers"]}
    for tool, runs in found.items():
        failed = [run["failed"] for run in runs if "failed" in run]
        if failed:
            print(f"  {tool:<11} {failed[0]}")
            continue
        compared = (task, tool) not in NOT_COMPARED
        if compared and {run["answer"] for run in runs} != expected:
            print(f"  {tool:<11} another answer than that of tokenizers: no time")
            continue
        answer = "same answer" if compared else "not compared"
        seconds = _seconds(runs)
        middle = statistics.median(seconds)
        ratio = middle / statistics.median(own)
        peak = statistics.median(run["peak_mb"] for run in runs)
        print(
            f"  {tool:<11} {middle:7.2f} s ({min(seconds):.2f} – {max(seconds):.2f})  {n_bytes / 1e6 / middle:7.1f} MB/s  "
            f"{ratio:5.1f} × tokenmill's time  peak {peak:5.0f} MB{_again(task, n_bytes, runs)}  {answer}"
        )


def _again(task: str, n_bytes: int, runs: list[dict[str, Any]]) -> str:
    if task != "encode":
        return ""
    return f"  again {n_bytes / 1e6 / statistics.median(run['seconds'][1] for run in runs):6.1f} MB/s"


def _seconds(runs: list[dict[str, Any]]) -> list[float]:
    return [run["seconds"][0] for run in runs if "seconds" in run]


def _cell(task: str, tool: str, n_bytes: int, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    runs = found[tool]
    named = {"task": task, "tool": tool, "text_bytes": n_bytes, "cores": 1}
    if failed := [run["failed"] for run in runs if "failed" in run]:
        return named | {"failed": failed[0]}
    compared = (task, tool) not in NOT_COMPARED
    if compared and {run["answer"] for run in runs} != {run.get("answer") for run in found["tokenizers"]}:
        return named | {"answer": "other"}
    cell = named | {
        "answer": "same" if compared else "not compared",
        "runs_s": record.seconds(_seconds(runs)),
        "runs_mb_per_s": record.mb_per_s(n_bytes, _seconds(runs)),
        "runs_peak_mb": [round(run["peak_mb"], 1) for run in runs],
    }
    return cell | ({"runs_again_s": record.seconds(run["seconds"][1] for run in runs)} if task == "encode" else {})


if __name__ == "__main__":
    main()
