"""How many threads a call may use."""

import os


def threads_or_all(threads: int | None) -> int:
    """`threads`, or for None as many as this process has cores. Raises ValueError below 1 and for no integer."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads: found {threads!r}; expected 1 or more, or None for all cores.")
    return threads
