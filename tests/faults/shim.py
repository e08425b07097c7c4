"""Counts file calls of a process, makes them fail, or sends a signal before one: the Python side of shim.c.

A library preloaded before libc, and not strace: it needs a C compiler alone, counts the calls of all threads in one row, acts
inside forked processes that have all modules loaded (a try costs one second instead of six), and a traced build is not slower.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")
_LIBRARY = "TOKENMILL_FAULTS_SHIM"


def run_with_shim(module: str, arguments: Sequence[str]) -> int:
    """Runs a module in a Python that has the shim; its exit code."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-shim-") as folder:
        library = Path(folder) / "shim.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), _LIBRARY: str(library)}
        return subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=False).returncode


def is_there() -> bool:
    """Whether this process has the shim; processes that it starts by name then do not."""
    os.environ.pop("LD_PRELOAD", None)
    return os.environ.pop(_LIBRARY, None) is not None


def missing() -> str | None:
    """What to install for the shim, if anything."""
    return None if shutil.which("cc") else "a C compiler is missing: install gcc (Debian: apt-get install gcc)"


def arm(
    below: Path, kinds: Sequence[str] = (), part: str = "", n: int = 0, error: int = 0, signal: int = 0, log: int = -1
) -> None:
    """From now on watches this process's calls on files below a folder (see faults_arm in shim.c)."""
    which = f" {' '.join(kinds)} " if kinds else ""
    ctypes.CDLL(None).faults_arm(
        str(below).encode(), part.encode(), which.encode(), ctypes.c_long(n), error, signal, log
    )


def shuffle(below: Path, seed: int) -> None:
    """From now on lists the folders below a folder in an order that follows from `seed`, from 1."""
    ctypes.CDLL(None).faults_shuffle(str(below).encode(), ctypes.c_uint(seed))
