"""make bench-chat: instruction samples from a file to a packed dataset with loss masks, by tokenmill and by TRL.

The samples are 15,494 rows of instruction, input and output; the tokenizer and the template are those of qwen3; sequences have
2,048 tokens and are packed by best fit, longer conversations are cut. tokenmill's time is its whole encode stage in a process of
its own, with two workers and an empty unit store: it looks for mistakes of the build and loads and checks the tokenizer, which a
build does once and whose share is told apart, reads the file, and writes documents, tables and the sequences to the disk. TRL's
time is SFTTrainer._prepare_dataset alone, with a tokenizer that is loaded and from rows of messages that it has read before, in
one process and in two; it runs in .interop-venv, which `make test-interop` makes, and is left out without it. Ids and masks of
every row before packing are compared before a time counts. What this does not show: corpora of more than one file, of which the
workers share the work, long conversations, and tools.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import record
from benchmarks.chat_one import LENGTH, N_PROCESSES, Answer, answer_of
from benchmarks.corpus import ROOT, ROOT_CORPUS, SHARED
from benchmarks.process import run_module
from benchmarks.project import StageRun, build_up_to_encode, change_params, empty_project, encode_stage
from tokenmill.chat.named import template_text
from tokenmill.dataset.manifest import read_manifest

_CORPUS = ROOT_CORPUS / "instruct.jsonl.zst"
_QWEN3 = SHARED / "tokenizers/qwen3/tokenizer.json"
_SOURCE = {
    "id_column": None,
    "template": {"user": ["{instruction}", "{input}"], "assistant": "{output}"},
}
_ENCODE = {
    "chat": {"template": "qwen3"},
    "end_of_document": None,
    "formats": ["arrow"],
    "pack": {"length": LENGTH, "mode": "best_fit", "long": "cut", "labels": True},
}
_OWN = "tokenmill, encode stage"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chat", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--corpus", type=Path, default=_CORPUS, help="JSON lines of instruction, input and output")
    parser.add_argument("--tokenizer", type=Path, default=_QWEN3, help="tokenizer.json of qwen3")
    parser.add_argument("--interop", type=Path, default=ROOT / ".interop-venv", help="the environment that has TRL")
    record.add_option(parser)
    asked = parser.parse_args()
    for path in (asked.corpus, asked.tokenizer):
        if not path.is_file():
            raise SystemExit(
                f"{path}: not found; bench-chat needs the corpus and the tokenizer. Name others by options."
            )
    section = record.begin("chat", ("pyarrow", "numpy", "jinja2"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-chat-") as name:
        section["cells"] += measure(Path(name), section["versions"], asked)
    record.keep(section, asked.record)


def measure(folder: Path, versions: dict[str, str], asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells of all ways, which take turns. Adds the versions of other tools to `versions`."""
    project = folder / "project"
    make_project(project, asked.corpus, asked.tokenizer)
    shutil.copy(asked.tokenizer, folder / "tokenizer.json")
    (folder / "template.jinja").write_text(template_text("qwen3"), encoding="utf-8")
    (folder / "rows.jsonl").write_bytes(_lines(asked.corpus))
    python = asked.interop / "bin/python"
    ways = {f"TRL, {n} process{'es' * (n > 1)}": n for n in N_PROCESSES} if python.is_file() else {}
    if not ways:
        print(f"{asked.interop} is not there, so TRL is left out; `make test-interop` makes it")
    runs: dict[str, list[StageRun]] = {name: [] for name in (_OWN, *ways)}
    n_sequences: dict[str, int] = {}
    expected: Answer | None = None
    for _ in range(asked.runs):
        runs[_OWN].append(encode_stage(project))
        found, n_sequences[_OWN] = own_answer(project / "data/tokens")
        assert expected in (None, found), "tokenmill's ids or masks differ from those of the run before"
        expected = found
        for name, n in ways.items():
            other = _trl(folder, n, python)
            assert Answer(*other["answer"]) == expected, (
                f"{name}: other ids or masks: {other['answer']}, not {expected}"
            )
            # In place of loading the tokenizer: reading the rows, which is before its seconds and not in them.
            runs[name].append(StageRun(other["seconds"], other["cpu_s"], other["read_s"]))
            n_sequences[name] = other["n_sequences"]
            versions |= other["versions"]
    assert expected is not None
    _show(expected, runs, n_sequences)
    return [
        {
            "name": "instructions to packed sequences",
            "way": name,
            "cores": 2,
            **expected._asdict(),
            "n_sequences": n_sequences[name],
            "answer": "same" if ways else "not compared",
            "runs_s": record.seconds(run.seconds for run in measured),
            "runs_cpu_s": record.seconds(run.cpu_s for run in measured),
            "runs_load_s" if name == _OWN else "runs_read_s": record.seconds(run.load_s for run in measured),
        }
        for name, measured in runs.items()
    ]


def make_project(root: Path, corpus: Path, tokenizer: Path) -> None:
    """A project with these samples and this tokenizer, built up to its encode stage."""
    empty_project(root, "inline", grouped=True)
    shutil.copy(corpus, root / "data/raw")
    time.sleep(2.1)  # a file as young as its digest is not remembered
    change_params(root, {}, "source", _SOURCE)
    change_params(root, {}, "encode", _ENCODE)
    build_up_to_encode(root, tokenizer)


def own_answer(tokens: Path) -> tuple[Answer, int]:
    """The ids and masks of a dataset's documents, and the number of its sequences."""
    manifest = read_manifest(tokens)
    columns = ["input_ids", "loss_mask"]
    table = pa.concat_tables(
        pq.read_table(tokens / shard.name, columns=columns, partitioning=None) for shard in manifest.shards
    )
    n_sequences = sum(part.n_items for one in manifest.sets for part in one.parts)
    return answer_of(table["input_ids"], table["loss_mask"], 0), n_sequences


def _lines(corpus: Path) -> bytes:
    compression = "zstd" if corpus.suffix == ".zst" else None
    with pa.input_stream(corpus, compression=compression) as file:
        return bytes(file.read())


def _trl(folder: Path, n_processes: int, python: Path) -> dict[str, Any]:
    """What the process of TRL says."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    (folder / "cache").mkdir()
    os.sync()
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    found = run_module("benchmarks.chat_one", n_processes, folder, python=python, environment=offline)
    if "failed" in found:
        raise SystemExit(f"TRL: {found['failed']}")
    return found


def _show(answer: Answer, runs: dict[str, list[StageRun]], n_sequences: dict[str, int]) -> None:
    print(
        f"{answer.n_conversations:,} conversations, {answer.n_tokens:,} tokens, {answer.n_trained:,} of them trained, to sequences "
        f"of {LENGTH:,}"
    )
    own = _medians(runs[_OWN])
    for name, measured in runs.items():
        found = _medians(measured)
        more = f"{found.cpu_s:6.2f} s of processor time; {n_sequences[name]:,} sequences; "
        if name == _OWN:
            more += f"looking for mistakes and loading the tokenizer took {found.load_s:.2f} s"
        else:
            ratios = [
                found.seconds / own.seconds,
                found.cpu_s / own.cpu_s,
                found.seconds / (own.seconds - own.load_s),
            ]
            more += f"{ratios[0]:.1f} × tokenmill, {ratios[1]:.1f} of processor time, {ratios[2]:.1f} with the tokenizer loaded; "
            more += f"before it {found.load_s:.2f} s to read"
        print(f"{name:<28} {_range([run.seconds for run in measured])}  {more}", flush=True)


def _medians(measured: Sequence[StageRun]) -> StageRun:
    return StageRun(*map(statistics.median, zip(*measured, strict=True)))


def _range(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):7.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
