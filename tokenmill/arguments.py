"""Arguments that a caller gives, checked."""

import operator
import os
import reprlib
import sys
from typing import Any


def at_least(least: int, value: Any, name: str, otherwise: str = "") -> int:
    """The value as an int. Raises ValueError for a smaller one, TypeError for no integer."""
    try:
        n = operator.index(value)
    except TypeError:
        n = None
    if n is None or n < least:
        kind = TypeError if n is None else ValueError
        raise kind(f"{name}: found {reprlib.repr(value):.60}; expected an integer of {least} or more{otherwise}.")
    return n


def threads_or_all(threads: int | None) -> int:
    """`threads`, or for None as many as this process has cores. Raises ValueError below 1, TypeError for no integer."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = at_least(1, threads, "threads", ", or None for all cores")
    return min(n, sys.maxsize)  # the core's type; it begins no more than there is work for
