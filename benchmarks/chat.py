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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import record
from benchmarks.chat_one import LENGTH, N_PROCESSES, Answer, answer_of
from benchmarks.corpus import ROOT, ROOT_CORPUS, SHARED, needed_files
from benchmarks.harness import Cell, in_turns, options, recording, spread
from benchmarks.process import Run, module_result
from benchmarks.project import build_up_to_encode, change_params, empty_project, encode_stage, let_files_age
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
    parser = options("chat", __doc__, runs=5)
    parser.add_argument("--corpus", type=Path, default=_CORPUS, help="JSON lines of instruction, input and output")
    parser.add_argument("--tokenizer", type=Path, default=_QWEN3, help="tokenizer.json of qwen3")
    parser.add_argument("--interop", type=Path, default=ROOT / ".interop-venv", help="the environment that has TRL")
    asked = parser.parse_args()
    needed_files(asked.corpus, asked.tokenizer)
    with recording("chat", ("pyarrow", "numpy", "jinja2"), asked) as measured:
        measured.cells.extend(measure(measured.folder, measured.versions, asked))


class Measured(NamedTuple):
    """A run of one way, what it made, and the versions of its tools. The run's result is the seconds of loading the
    tokenizer, or of reading the rows before it."""

    run: Run
    answer: Answer
    n_sequences: int
    versions: dict[str, str]


def measure(folder: Path, versions: dict[str, str], asked: argparse.Namespace) -> list[Cell]:
    """The cells of all ways, which take turns. Adds the versions of other tools to `versions`."""
    project = folder / "project"
    make_project(project, asked.corpus, asked.tokenizer)
    shutil.copy(asked.tokenizer, folder / "tokenizer.json")
    (folder / "template.jinja").write_text(template_text("qwen3"), encoding="utf-8")
    (folder / "rows.jsonl").write_bytes(_lines(asked.corpus))
    python = asked.interop / "bin/python"
    ways = {_OWN: partial(_own, project)}
    if python.is_file():
        ways |= {f"TRL, {n} process{'es' * (n > 1)}": partial(_trl, folder, n, python) for n in N_PROCESSES}
    else:
        print(f"{asked.interop} is not there, so TRL is left out; `make test-interop` makes it")
    results = in_turns(ways, asked.runs)
    expected = results[_OWN][0].answer
    for name, measured in results.items():
        for answer in (run.answer for run in measured):
            assert answer == expected, f"{name}: other ids or masks: {answer}, not {expected}"
        versions |= measured[0].versions
    _show(expected, results)
    return [
        {
            "name": "instructions to packed sequences",
            "way": name,
            "cores": 2,
            **expected._asdict(),
            "n_sequences": measured[-1].n_sequences,
            "answer": "same" if len(ways) > 1 else "not compared",
            "runs_s": record.seconds(one.run.seconds for one in measured),
            "runs_cpu_s": record.seconds(one.run.cpu_s for one in measured),
            "runs_load_s" if name == _OWN else "runs_read_s": record.seconds(one.run.result for one in measured),
        }
        for name, measured in results.items()
    ]


def make_project(root: Path, corpus: Path, tokenizer: Path) -> None:
    """A project with these samples and this tokenizer, built up to its encode stage."""
    empty_project(root, "inline", grouped=True)
    shutil.copy(corpus, root / "data/raw")
    let_files_age()
    change_params(root, {}, "source", _SOURCE)
    change_params(root, {}, "encode", _ENCODE)
    build_up_to_encode(root, tokenizer)


def _own(project: Path) -> Measured:
    """The encode stage, with the ids and masks of the dataset's documents."""
    run = encode_stage(project)
    tokens = project / "data/tokens"
    manifest = read_manifest(tokens)
    columns = ["input_ids", "loss_mask"]
    table = pa.concat_tables(
        pq.read_table(tokens / shard.name, columns=columns, partitioning=None) for shard in manifest.shards
    )
    n_sequences = sum(part.n_items for one in manifest.sets for part in one.parts)
    return Measured(run, answer_of(table["input_ids"], table["loss_mask"], 0), n_sequences, {})


def _lines(corpus: Path) -> bytes:
    compression = "zstd" if corpus.suffix == ".zst" else None
    with pa.input_stream(corpus, compression=compression) as file:
        return bytes(file.read())


def _trl(folder: Path, n_processes: int, python: Path) -> Measured:
    """What the process of TRL says."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    (folder / "cache").mkdir()
    os.sync()
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    result = module_result("benchmarks.chat_one", n_processes, folder, python=python, environment=offline)
    # Reading the rows is before its seconds and not in them.
    run = Run(result["seconds"], result["cpu_s"], result["read_s"])
    return Measured(run, Answer(*result["answer"]), result["n_sequences"], result["versions"])


def _show(answer: Answer, results: dict[str, list[Measured]]) -> None:
    print(
        f"{answer.n_conversations:,} conversations, {answer.n_tokens:,} tokens, {answer.n_trained:,} of them trained, to sequences "
        f"of {LENGTH:,}"
    )
    own = _medians(results[_OWN])
    for name, measured in results.items():
        run = _medians(measured)
        more = f"{run.cpu_s:6.2f} s of processor time; {measured[-1].n_sequences:,} sequences; "
        if name == _OWN:
            more += f"looking for mistakes and loading the tokenizer took {run.result:.2f} s"
        else:
            more += f"{run.seconds / own.seconds:.1f} × tokenmill, {run.cpu_s / own.cpu_s:.1f} of processor time, "
            more += f"{run.seconds / (own.seconds - own.result):.1f} with the tokenizer loaded; "
            more += f"before it {run.result:.2f} s to read"
        print(f"{name:<28} {spread([one.run.seconds for one in measured], '7.2f')}  {more}", flush=True)


def _medians(measured: Sequence[Measured]) -> Run:
    return Run(*map(statistics.median, zip(*(one.run for one in measured), strict=True)))


if __name__ == "__main__":
    main()
