"""make bench-verify: how fast `tokenmill verify` checks a dataset of 512 MB of text and one of 2 GB, with documents and without.

The corpus is that of ../shared/corpus/english, in several copies under other names. Each check is a process of its own, start and
imports included, and all files are in the page cache. A warm-up run comes first and is not timed. Bytecode is cached, as for an
installed package. What this does not show: a slow disk, and a dataset in one file, which one thread checks.
"""

import argparse
import shutil
from pathlib import Path

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.harness import Cell, options, recording
from benchmarks.project import corpus_project, run_tokenmill
from tokenmill.dataset.manifest import read_manifest


def main() -> None:
    parser = options("verify", __doc__, runs=5)
    parser.add_argument("--copies", type=int, nargs="+", default=[8, 32], help="of 64 MB each, for each dataset")
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    asked = parser.parse_args()
    with recording("verify", ("pyarrow", "tokenizers", "tiktoken"), asked) as measured:
        for n_copies in asked.copies:
            project = measured.folder / "english"
            measured.cells.extend(measure(project, n_copies, asked))
            shutil.rmtree(project)


def measure(project: Path, n_copies: int, asked: argparse.Namespace) -> list[Cell]:
    """The cells of one dataset."""
    corpus_project(project, "english", asked.shared)
    raw = project / "data/raw"
    for path in sorted(raw.iterdir()):
        for i in range(1, n_copies):
            shutil.copy(path, raw / f"copy-{i}-{path.name}")
    run_tokenmill(project, "build", "-q")
    text_bytes = read_manifest(project / "data/tokens").text_bytes
    cells = []
    for name, arguments in (("with documents", ()), ("without", ("--no-source",))):
        _warm_up, *runs = (run_tokenmill(project, "verify", "-q", *arguments) for _ in range(1 + asked.runs))
        seconds = [run.seconds for run in runs]
        rates = ", ".join(f"{rate:.0f}" for rate in sorted(record.mb_per_s(text_bytes, seconds)))
        print(f"{text_bytes / 1e6:,.0f} MB {name}, MB/s: {rates}", flush=True)
        cells.append({"name": name, "text_bytes": text_bytes, "runs_s": record.seconds(seconds)})
    return cells


if __name__ == "__main__":
    main()
