"""make bench-remap: `tokenmill remap` beside encoding the documents again, for a tokenizer that was trimmed to half of its tokens.

The corpora are those of ../shared/corpus, each with a tokenizer of 16,384 tokens that was learned from it. Each run is a process
of its own, start and imports included, and all files are in the page cache. The answer is checked before a time counts: both
datasets have the same digest of their tokens. What this does not show: fetching documents, which only encoding needs.
"""

import argparse
import shutil
from pathlib import Path

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.harness import Cell, in_turns, options, recording
from benchmarks.project import corpus_project, run_tokenmill
from tokenmill import Tokenizer
from tokenmill.config.load_params import load_params
from tokenmill.dataset.manifest import read_manifest


def main() -> None:
    parser = options("remap", __doc__, runs=5)
    parser.add_argument("--corpora", nargs="+", default=["english", "code", "multilingual"])
    parser.add_argument("--keep", type=int, default=8192, help="the tokens that stay, of 16,384")
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    asked = parser.parse_args()
    with recording("remap", ("pyarrow",), asked) as measured:
        for corpus in asked.corpora:
            measured.cells.extend(measure(measured.folder / corpus, corpus, asked))
            shutil.rmtree(measured.folder / corpus)


def measure(project: Path, corpus: str, asked: argparse.Namespace) -> list[Cell]:
    """The cells of one corpus."""
    corpus_project(project, corpus, asked.shared)
    for stage in ("count", "train-vocab", "encode"):
        run_tokenmill(project, "build", "-q", "--only", stage)
    shutil.copytree(project / "data", project / "before", ignore=shutil.ignore_patterns("raw"))
    trim(project, asked.keep)
    run_tokenmill(project, "build", "-q", "--only", "train-vocab")
    manifest = read_manifest(project / "before/tokens")

    def remap() -> float:
        shutil.rmtree(project / "remapped", ignore_errors=True)
        return run_tokenmill(project, "remap", "-q", "before/tokens", "remapped", "--to", "data/tokenizer").cpu_s

    def encode_again() -> float:
        return run_tokenmill(project, "build", "-q", "--only", "encode", "--force").cpu_s

    runs = in_turns({"remap": remap, "encode again": encode_again}, asked.runs)
    digests = {read_manifest(project / side / "tokens").tokens_digest() for side in ("data", "remapped")}
    assert len(digests) == 1, "the remapped tokens are not those of the documents"
    cells = []
    for name, cpu_s in runs.items():
        rates = ", ".join(f"{rate:.0f}" for rate in sorted(record.mb_per_s(manifest.text_bytes, cpu_s)))
        print(f"{corpus}, {name}: {rates} MB/s of text; {manifest.n_tokens:,} old tokens", flush=True)
        cell = {"name": name, "text": corpus, "text_bytes": manifest.text_bytes, "n_tokens": manifest.n_tokens}
        cells.append(cell | {"answer": "same", "runs_cpu_s": record.seconds(cpu_s)})
    return cells


def trim(project: Path, keep: int) -> None:
    """Makes params.yaml trim the tokenizer that was set aside."""
    digest = Tokenizer.load(project / "before/tokenizer").digest
    params = project / "params.yaml"
    text = params.read_text(encoding="utf-8")
    asked = f"trim: {{from: before/tokenizer, digest: {digest}, keep: {keep}, counts: null}}"
    params.write_text(text.replace("trim: null", asked, 1), encoding="utf-8")
    assert load_params(params).train_vocab.trim is not None


if __name__ == "__main__":
    main()
