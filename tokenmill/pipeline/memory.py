"""How much memory a build may hold, and what this process held at most."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenmill.corpus.limits import BATCH_BYTES, Limits
from tokenmill.errors import ParamsError

# Measured, in MB: Python, DVC and the libraries of all stages hold 200, with Prefect 330.
_BASE_MB = {"inline": 256, "threads": 384}
_SHARE_MB_MIN = 160
# Encoding held 27.7 bytes for each byte of a document of 100 MB that was one pre-token, counting 7.8 of one in UCS-4.
_HELD_FOR_A_BYTE = 28
_HELD_OF_A_BLOCK = 3  # compressed, decompressed, and as an array

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # proc(5), clear_refs


@dataclass(frozen=True)
class Memory:
    """`run.memory_mb_max` divided: what Prefect, DVC and the libraries take, and the `share_mb` of each of `workers`.

    Of a share, in millions of bytes, a quarter is for what is kept (tables of counts, cache of an encoder), a quarter for what
    a file format makes read at once, and half for the documents that are worked on.
    """

    mb_max: int
    base_mb: int
    workers: int

    @property
    def share_mb(self) -> int:
        """What one worker may hold."""
        return (self.mb_max - self.base_mb) // self.workers

    @property
    def kept_mib(self) -> int:
        """What a worker may keep, in MiB."""
        return int(self.share_mb * 1e6 / 4) >> 20

    @property
    def limits(self) -> Limits:
        """What a worker may read at once: a document is never shorter than a batch."""
        return Limits(
            document_bytes_max=max(BATCH_BYTES, int(self.share_mb * 1e6 / 2 / _HELD_FOR_A_BYTE)),
            block_bytes_max=int(self.share_mb * 1e6 / 4 / _HELD_OF_A_BLOCK),
        )


def divide(mb_max: int, engine: Literal["inline", "threads"], workers: int) -> Memory:
    """The memory of up to `workers` workers: fewer, where there would be too little for each. Raises ParamsError when there is
    not enough for one."""
    base_mb = _BASE_MB[engine]
    if mb_max < base_mb + _SHARE_MB_MIN:
        raise ParamsError(
            f"run.memory_mb_max: found {mb_max}; allowed: {base_mb + _SHARE_MB_MIN} or more with run.engine: {engine}, of which "
            f"{base_mb} MB are for Python and its libraries.",
            code="TM110",
        )
    return Memory(mb_max, base_mb, min(workers, (mb_max - base_mb) // _SHARE_MB_MIN))


def release_unused() -> None:
    """Gives back to the system what was freed.

    Where each stage kept what the one before it had freed, a build of 10 GB under `memory_mb_max` 600 held 653 MB.
    """
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()


def reset_peak() -> None:
    """From now on, `peak_mb` looks back to this moment; without /proc it looks back further."""
    if (_PROCESS / "clear_refs").exists():
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peak_mb() -> float | None:
    """The largest resident set since `reset_peak`, in millions of bytes; None where the system does not tell."""
    if not (_PROCESS / "status").exists():
        return None
    lines = (_PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    found = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 / 1e6 if found else None
