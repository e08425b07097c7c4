"""make bench-verify: how fast `tokenmill verify` checks a dataset of 512 MB of text and one of 2 GB, with documents and without.

The corpus is that of ../shared/corpus/english, in several copies under other names. Each check is a process of its own, start and
imports included, and all files are in the page cache. A warm-up run comes first and is not timed. Bytecode is cached, as for an
installed package. What this does not show: a slow disk, and a dataset in one file, which one thread checks.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.plan import make_project
from tokenmill.dataset.manifest import read_manifest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=[8, 32], help="of 64 MB each, for each dataset")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("verify", ("pyarrow", "tokenizers", "tiktoken"), asked)
    for n_copies in asked.copies:
        with tempfile.TemporaryDirectory(prefix="bench-verify-") as folder:
            section["cells"] += measure(Path(folder) / "english", n_copies, asked)
    record.keep(section, asked.record)


def measure(project: Path, n_copies: int, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells of one dataset."""
    make_project(project, "english", asked.shared, "inline")
    raw = project / "data/raw"
    for path in sorted(raw.iterdir()):
        for i in range(1, n_copies):
            shutil.copy(path, raw / f"copy-{i}-{path.name}")
    run(project, "build", "-q")
    text_bytes = read_manifest(project / "data/tokens").text_bytes
    cells = []
    for name, options in (("with documents", ()), ("without", ("--no-source",))):
        run(project, "verify", "-q", *options)
        seconds = [run(project, "verify", "-q", *options) for _ in range(asked.runs)]
        rates = record.mb_per_s(text_bytes, seconds)
        print(
            f"{text_bytes / 1e6:,.0f} MB {name}, MB/s: {', '.join(f'{rate:.0f}' for rate in sorted(rates))}", flush=True
        )
        cells.append({"name": name, "text_bytes": text_bytes, "runs_s": record.seconds(seconds)})
    return cells


def run(project: Path, *arguments: str) -> float:
    """The seconds that a command takes, which must end well."""
    start_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "tokenmill", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
