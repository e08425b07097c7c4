"""The calls that run now, in all threads, of the core and of the `tokenizers` library. Nothing stops one of the library."""

from collections.abc import Iterator
from contextlib import contextmanager

from tokenmill import _core

_of_the_library: list[str] = []


@contextmanager
def counted(place: str) -> Iterator[None]:
    """Counts a call of the library while the block runs."""
    _of_the_library.append(place)
    try:
        yield
    finally:
        _of_the_library.remove(place)


def n_running() -> int:
    """The number of calls."""
    return _core.n_calls() + len(_of_the_library)
