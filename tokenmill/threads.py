"""How many threads a call may use."""

import os
import sys

from tokenmill.integers import at_least


def threads_or_all(threads: int | None) -> int:
    """`threads`, or for None as many as this process has cores. Raises ValueError below 1, TypeError for no integer."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = at_least(1, threads, "threads", ", or None for all cores")
    return min(n, sys.maxsize)  # the core's type; it begins no more than there is work for
