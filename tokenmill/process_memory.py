"""The memory of this process: how much it has, and what it gives back."""

import ctypes
import os
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
    """Gives freed memory back to the system. glibc keeps a freed block between blocks that are in use: a process that reads many
    long texts, one at a time, would hold as much memory as for all of them. Does nothing with another C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
