"""Gives random, damaged input to what reads files of others: `python -m tests.fuzz [TARGET …] [--seconds N] [--seed N] [--once]`.

Each try has a seed. A find is anything but a good end or an error of tokenmill's own: another exception, an abort, a try
that takes more than 10 seconds or 1 GB, reserves more than 2 GB, or opens a file outside by a link, and what a target says.
Its seed is printed, and its files are kept in .tokenmill/fuzz. Exit code 0: there were no finds.
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz.tries import TARGETS, run_tries

_KEPT = Path(".tokenmill/fuzz")


def main() -> int:
    """The command line; 1 for a find."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="for each target")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the first try; each next try has the next number"
    )
    parser.add_argument("--once", action="store_true", help="only this seed, to repeat a find")
    asked = parser.parse_args()
    return max([_fuzz(name, asked.seed, asked.seconds, asked.once) for name in asked.targets or TARGETS])


def _fuzz(name: str, seed: int, seconds: float, once: bool) -> int:
    """Tries a target, in a process that is started again behind each find. 1 for a find."""
    print(f"{name}: from seed {seed}", flush=True)
    first_seed, n_finds = seed, 0
    with tempfile.TemporaryDirectory(prefix="tokenmill-fuzz-") as folder:
        base = Path(folder)
        (base / "refused").write_text("")
        while True:
            child = get_context("spawn").Process(target=run_tries, args=(name, seed, seconds, once, base))
            child.start()
            child.join()
            if child.exitcode == 0:
                seed = int((base / "seed").read_text())
                break
            said = (base / "said").read_text(errors="replace").strip()
            assert (base / "seed").exists(), said  # the target could not be prepared
            seed = int((base / "seed").read_text())
            n_finds += 1
            kept = _KEPT / f"{name}-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(base / "try", kept, symlinks=True, copy_function=_copy)
            (kept / "said.txt").write_text(said)
            what = re.findall(r"^(?:Fatal Python error|Timeout|[\w.]*Error)\b.*", said, re.MULTILINE)
            print(
                f"{name}: find with seed {seed} (exit code {child.exitcode}), kept in {kept}: {what[-1] if what else ''}",
                flush=True,
            )
            if once:
                break
            seed += 1
        n_refused = (base / "refused").stat().st_size
    print(f"{name}: {seed - first_seed + 1:,} tries, {n_refused:,} refused, {n_finds} finds", flush=True)
    return int(n_finds > 0)


def _copy(source: str, there: str) -> None:
    if Path(source).is_file():  # a FIFO has nothing to keep
        shutil.copy2(source, there)


if __name__ == "__main__":
    sys.exit(main())
