"""make bench-verify: how fast `tokenmill verify` checks a dataset, with its documents and without.

The corpus is that of ../shared/corpus/english, in several copies under other names. Each check is a process of its own, and all
files are in the page cache. What this does not show: a slow disk, and a dataset in one file, which one thread checks.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.plan import make_project
from tokenmill.dataset.manifest import read_manifest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--copies", type=int, default=8, help="of 64 MB each")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("verify", ("pyarrow", "tokenizers", "tiktoken"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-verify-") as folder:
        project = Path(folder) / "english"
        make_project(project, "english", asked.shared, "inline")
        raw = project / "data/raw"
        for path in sorted(raw.iterdir()):
            for i in range(1, asked.copies):
                shutil.copy(path, raw / f"copy-{i}-{path.name}")
        run(project, "build", "-q")
        text_bytes = read_manifest(project / "data/tokens").text_bytes
        for name, options in (("with documents", ()), ("without", ("--no-source",))):
            seconds = [run(project, "verify", "-q", *options) for _ in range(asked.runs)]
            rates = record.mb_per_s(text_bytes, seconds)
            print(
                f"{name}: {text_bytes / 1e6:,.0f} MB of text, MB/s: {', '.join(f'{rate:.0f}' for rate in sorted(rates))}"
            )
            section["cells"].append({"name": name, "text_bytes": text_bytes, "runs_s": record.seconds(seconds)})
    record.keep(section, asked.record)


def run(project: Path, *arguments: str) -> float:
    """The seconds that a command takes, which must end well."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tokenmill", *arguments], cwd=project, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
