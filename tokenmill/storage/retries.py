"""Retries transient failures of a disk or network, but never an error in the data."""

import time
from collections.abc import Callable
from itertools import count
from threading import Event
from typing import TypeVar

from tokenmill.console import say
from tokenmill.errors import PassingError

T = TypeVar("T")

DELAYS_S = (0.5, 2.0)
"""The pause before the second try, and before the third, which is the last."""


PATIENCE_S = 60.0
"""How long a storage elsewhere is asked again, from its first failure on."""

_PAUSE_S = (0.5, 5.0)  # the first and the longest


def with_retries(do: Callable[[], T]) -> T:
    """The result of `do()`. If it raises PassingError, it is tried again, once for each delay."""
    for n_tried in count(1):
        try:
            return do()
        except PassingError as error:
            wait_after(error, n_tried)
    raise AssertionError


def wait_after(error: PassingError, n_tried: int) -> None:
    """Waits after the n-th try, which raised `error`. After the last try it raises that error."""
    if n_tried > len(DELAYS_S):
        raise error
    say(f"{error} Trying again in {DELAYS_S[n_tried - 1]:g} s.")
    time.sleep(DELAYS_S[n_tried - 1])


def with_patience(do: Callable[[], T], ended: Event | None = None) -> T:
    """The result of `do()`. As long as it raises PassingError, it is tried again for a minute, or until `ended`."""
    failed_s, pause_s, ended = None, _PAUSE_S[0], ended or Event()
    while True:
        try:
            return do()
        except PassingError as error:
            now_s = time.monotonic()
            if failed_s is None:
                failed_s = now_s
                if not ended.is_set():
                    what = str(error).partition(". ")[0]  # without what to do
                    say(f"{what}. Trying again for {PATIENCE_S:g} s.")
            if now_s - failed_s > PATIENCE_S or ended.wait(pause_s):
                raise
            pause_s = min(pause_s * 2, _PAUSE_S[1])
