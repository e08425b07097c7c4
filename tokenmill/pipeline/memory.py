"""Divides the memory of a build among its workers, and measures the peak of this process."""

import os
from dataclasses import dataclass
from pathlib import Path

from tokenmill.config.params import RunOptions
from tokenmill.corpus.limits import BATCH_BYTES, HELD_OF_A_BLOCK, Limits
from tokenmill.errors import ParamsError
from tokenmill.process_memory import resident_bytes

# Measured, in MB: Python, DVC and the libraries of all stages take 200; with Prefect, 330.
_BASE_MB = {"inline": 256, "threads": 384, "dask": 384, "ray": 384}
_PROCESS_MB = 256  # of a worker process of Dask or Ray, with the libraries of all stages
_OBJECT_MB = 24  # per worker, for blocks of the object that it reads, including those read ahead
_SHARE_MB_MIN = 160
# Measured on a document of 100 MB that was one pre-token: encoding takes 27.7 bytes per byte; counting 7.8 for one in UCS-4.
# Writing the ids of one with an id for each byte takes 26.
# A conversation takes up to 37 if it has the text of a special token and a character outside the Basic Multilingual Plane (20 MB
# measured): Python then holds its JSON, its strings, and both renderings with 4 bytes a character.
_HELD_FOR_A_BYTE = 28
_OVER = 1.2  # how much larger than planned a process may become before its unit is stopped

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # proc(5), clear_refs


@dataclass(frozen=True)
class Memory:
    """The division of `run.memory_mb_max`: `base_mb` for Prefect, DVC and the libraries, and `share_mb` for each of `workers`.

    A quarter of a share (in millions of bytes) is for what a worker keeps: tables of counts or an encoder's cache. A quarter is for
    blocks that a file format forces it to read at once. Half is for the documents that it works on, of which a quarter for those
    that are left out of the unit. `process_bytes_max`: where a process with workers stops its unit.
    """

    mb_max: int
    base_mb: int
    workers: int
    is_elsewhere: bool = False
    """Whether the workers are in a cluster elsewhere; `workers` is then the number of units of one task."""
    process_bytes_max: int | None = None

    @property
    def share_mb(self) -> int:
        """The memory of one worker, in MB."""
        return (self.mb_max - self.base_mb) // self.workers

    @property
    def own_threads(self) -> int:
        """The number of threads for what the build does itself, such as reading digests and training."""
        return len(os.sched_getaffinity(0)) if self.is_elsewhere else self.workers

    @property
    def kept_mb(self) -> int:
        """The memory for what a worker keeps, in MB."""
        return self.share_mb // 4

    @property
    def limits(self) -> Limits:
        """The largest document and block that a worker may read. The limit of a document is at least a batch."""
        return Limits(
            document_bytes_max=max(BATCH_BYTES, int(self.share_mb * 1e6 / 2 / _HELD_FOR_A_BYTE)),
            block_bytes_max=int(self.share_mb * 1e6 / 4 / HELD_OF_A_BLOCK),
            held_bytes_max=int(self.share_mb * 1e6 / 8),
            process_bytes_max=self.process_bytes_max,
        )


def n_workers(asked: int | None) -> int:
    """The number of units that run at the same time: `asked`, or one for each core that this process may use."""
    return asked or len(os.sched_getaffinity(0))


def asked_workers(run: RunOptions) -> int:
    """The number of units that run at the same time, if memory allows: run.workers, or else one for each core that this process may
    use. In a cluster elsewhere: the number of units of one task, by default one."""
    if run.workers is not None:
        return run.workers
    return 1 if run.address is not None else len(os.sched_getaffinity(0))


def divide(run: RunOptions, reads_objects: bool = False) -> Memory:
    """Divides the memory among the workers, among fewer if each would get too little. Raises ParamsError if there is too little for
    one.

    In a cluster elsewhere, it is the memory of each worker process. Worker processes on this machine share it with the build.
    `reads_objects`: whether documents are in object storage.
    """
    n_own = 0 if run.engine in ("inline", "threads") or run.address is not None else 1
    base_mb, worker_mb = _BASE_MB[run.engine], n_own * _PROCESS_MB + (_OBJECT_MB if reads_objects else 0)
    mb_max = run.memory_mb_max
    if mb_max < base_mb + worker_mb + _SHARE_MB_MIN:
        raise ParamsError(
            "run.memory_mb_max",
            f"found {mb_max}; allowed: {base_mb + worker_mb + _SHARE_MB_MIN} or more with run.engine: {run.engine}, "
            f"of which {base_mb + worker_mb} MB are for Python and its libraries.",
            code="TM110",
        )
    workers = min(asked_workers(run), (mb_max - base_mb) // (worker_mb + _SHARE_MB_MIN))
    is_elsewhere = run.engine in ("dask", "ray") and run.address is not None
    if is_elsewhere:
        process_mb = float(mb_max)
    elif n_own:
        process_mb = (mb_max - base_mb) / workers
    else:  # a process that had taken more before the build began has a program of its own around it
        process_mb = mb_max + max(0.0, resident_bytes() / 1e6 - base_mb)
    return Memory(mb_max, base_mb + workers * worker_mb, workers, is_elsewhere, int(_OVER * process_mb * 1e6))


def reset_peak() -> None:
    """Makes `peak_mb` measure from now on. Without /proc it does nothing."""
    if (_PROCESS / "clear_refs").exists():
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peak_mb() -> float | None:
    """The largest resident set since `reset_peak`, in millions of bytes; None if /proc lacks it."""
    if not (_PROCESS / "status").exists():
        return None
    lines = (_PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    found = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 / 1e6 if found else None
