"""make bench: count, train and encode, side by side on one core; the tools take turns, so that a noisy machine is fair.

Answers are compared with those of tokenizers before a time is printed: the first 9,000 learned tokens, the ids of every
document; counts alone are not compared here, but in tests/. What this does not show: several cores, other languages, files
(the text is in memory, but gigabpe reads its file itself), and whether rustbpe (which has its own order among equally frequent
pairs) and gigatoken (which gets the text whole, not line by line) learned well: their tokens are not compared.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.corpus import ENGLISH, ROOT, documents, lines
from benchmarks.one import END, TASKS, VOCAB_SIZE
from tokenmill import Counter, train_vocab

NOT_COMPARED = {("count", tool) for _, tool in TASKS} | {("train", "rustbpe"), ("train", "gigatoken")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--mb", type=int, default=64, help="text to count and train on")
    parser.add_argument("--encode-mb", type=int, default=16, help="text to encode")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    say_where(("tokenizers", "tiktoken", "rustbpe", "gigabpe", "gigatoken"))
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


def say_where(tools: tuple[str, ...]) -> None:
    """Prints commit, CPU, the versions of Python and of the tools, and what text there is."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    versions = " ".join(f"{name} {version(name)}" for name in tools)
    print(f"commit {commit.stdout.strip()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{versions}; {'english documents' if ENGLISH.is_dir() else 'the sample in data/raw'}")


if __name__ == "__main__":
    main()
