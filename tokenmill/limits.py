"""Limits of a process that runs what may go wrong, so that it ends alone."""

import resource


def limit_memory(bytes_max: int) -> None:
    """Lets this process allocate so many bytes, or fewer if it may have fewer already. Past that, an allocation fails, as by
    MemoryError. It writes no core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
