"""The memory of this process: how much it has, and what it gives back."""

import ctypes
import os
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """The memory that this process has now, in bytes, without pages of files, which the system may take back; 0 where /proc lacks
    it."""
    try:
        _size, resident, of_files, *_ = map(int, _STATM.read_bytes().split())
    except OSError:
        return 0
    return (resident - of_files) * _PAGE_BYTES


def give_memory_back() -> None:
    """Gives freed memory back to the system: that of Arrow and, with glibc, that of Python and its libraries.

    Without this, each stage kept what earlier ones had freed: a build of 10 GB under `memory_mb_max` 600 took 653 MB. And glibc
    keeps a freed block between blocks that are in use: a process that reads many long texts, one at a time, would hold as much
    memory as for all of them."""
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
