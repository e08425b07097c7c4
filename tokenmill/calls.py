"""What a signal has to wait for: calls of the core and of the `tokenizers` library, in all threads, and Python's import lock.
Nothing stops a call of the library."""

import _thread
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep
from types import FrameType
from typing import Any

from tokenmill import _core

Handler = Callable[[int, FrameType | None], Any]

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_AGAIN_S = 0.02
_of_the_library: list[str] = []
_deferred: list[int] = []  # signals that are sent again


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
        if not _is_importing(frame):
            self._handler(number, frame)
            return
        if number in _deferred:
            return
        _deferred.append(number)
        if len(_deferred) == 1:  # else a thread has begun
            with suppress(RuntimeError):  # the system gives no thread
                # threading.Thread would wait here for its thread, in Python, where the next signal may arrive.
                _thread.start_new_thread(_send_again, ())


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the import system was interrupted; also while this module deferred another signal."""
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM


def _send_again() -> None:
    while _deferred:
        sleep(_AGAIN_S)
        os.kill(os.getpid(), _deferred.pop(0))
