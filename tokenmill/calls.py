"""What a signal has to wait for: calls of the core and of the `tokenizers` library, in all threads, and Python's import lock.
Nothing stops a call of the library."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType
from typing import Any

from tokenmill import _core

Handler = Callable[[int, FrameType | None], Any]

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_AGAIN_S = 0.02
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


class OutsideImports:
    """A handler of signals that calls `handler`. While Python's import system is at work with its locks, it sends the signal again
    later.

    An exception there would leave the lock of all imports taken: the next import of another thread would wait for ever, and the
    main thread for that one. Python waits for this lock without heeding signals, and runs their handlers as soon as it has it
    (CPython 3.11, `_get_module_lock`): each signal that arrives during the wait would do so.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM:
            again = Timer(_AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            self._handler(number, frame)
