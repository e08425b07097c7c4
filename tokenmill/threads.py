"""How many threads a call may use."""

import operator
import os


def threads_or_all(threads: int | None) -> int:
    """`threads`, or for None as many as this process has cores. Raises ValueError below 1, TypeError for no integer."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    expected = f"threads: found {threads!r}; expected an integer of 1 or more, or None for all cores."
    try:
        n = operator.index(threads)
    except TypeError:
        raise TypeError(expected) from None
    if n < 1:
        raise ValueError(expected)
    return n
