"""make bench-remap: `tokenmill remap` beside encoding the documents again, for a tokenizer that was trimmed to half of its tokens.

The corpora are those of ../shared/corpus, each with a tokenizer of 16,384 tokens that was learned from it. Each run is a process
of its own, start and imports included, and all files are in the page cache. The answer is checked before a time counts: both
datasets have the same digest of their tokens. What this does not show: fetching documents, which only encoding needs.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.plan import make_project
from tokenmill import Tokenizer
from tokenmill.config.load_params import load_params
from tokenmill.dataset.manifest import read_manifest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remap", description=__doc__)
    parser.add_argument("--corpora", nargs="+", default=["english", "code", "multilingual"])
    parser.add_argument("--keep", type=int, default=8192, help="the tokens that stay, of 16,384")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("remap", ("pyarrow",), asked)
    for corpus in asked.corpora:
        with tempfile.TemporaryDirectory(prefix="bench-remap-") as folder:
            section["cells"] += measure(Path(folder) / corpus, corpus, asked)
    record.keep(section, asked.record)


def measure(project: Path, corpus: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells of one corpus."""
    make_project(project, corpus, asked.shared, "inline")
    run(project, "build", "-q", "--only", "count")
    run(project, "build", "-q", "--only", "train-vocab")
    run(project, "build", "-q", "--only", "encode")
    shutil.copytree(project / "data", project / "before", ignore=shutil.ignore_patterns("raw"))
    trim(project, asked.keep)
    run(project, "build", "-q", "--only", "train-vocab")
    manifest = read_manifest(project / "before/tokens")
    sides = {
        "remap": ("remap", "-q", "before/tokens", "remapped", "--to", "data/tokenizer"),
        "encode again": ("build", "-q", "--only", "encode", "--force"),
    }
    runs: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(asked.runs):
        for name, command in sides.items():
            shutil.rmtree(project / "remapped", ignore_errors=True) if name == "remap" else None
            runs[name].append(run(project, *command))
        digests = {read_manifest(project / one / "tokens").tokens_digest() for one in ("data", "remapped")}
        assert len(digests) == 1, "the remapped tokens are not those of the documents"
    cells = []
    for name, seconds in runs.items():
        rates = record.mb_per_s(manifest.text_bytes, seconds)
        n = manifest.n_tokens
        print(
            f"{corpus}, {name}: {', '.join(f'{rate:.0f}' for rate in sorted(rates))} MB/s of text; {n:,} old tokens",
            flush=True,
        )
        more = {"text": corpus, "text_bytes": manifest.text_bytes, "n_tokens": n, "answer": "same"}
        cells.append({"name": name, **more, "runs_cpu_s": record.seconds(seconds)})
    return cells


def trim(project: Path, keep: int) -> None:
    """Makes params.yaml trim the tokenizer that was set aside."""
    digest = Tokenizer.load(project / "before/tokenizer").digest
    params = project / "params.yaml"
    text = params.read_text(encoding="utf-8")
    asked = f"trim: {{from: before/tokenizer, digest: {digest}, keep: {keep}, counts: null}}"
    params.write_text(text.replace("trim: null", asked, 1), encoding="utf-8")
    assert load_params(params).train_vocab.trim is not None


def run(project: Path, *arguments: str) -> float:
    """The seconds of processor time that a command takes, which must end well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "tokenmill", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
