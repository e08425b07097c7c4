"""The limits of a child process that handles what others made, such as a chat template, and how it ended."""

import resource
import signal


def limit_memory(bytes_max: int) -> None:
    """Lets this process allocate so many bytes, or fewer if it may have fewer already. Past that, an allocation fails, as by
    MemoryError. It writes no core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def how_ended(code: int) -> str:
    """How a child process ended, in words. `code`: its exit code; the negative number of a signal."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
