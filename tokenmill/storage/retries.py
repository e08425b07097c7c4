"""Retries transient failures of a disk or network, but never an error in the data."""

import time
from collections.abc import Callable
from itertools import count
from threading import Event
from typing import TypeVar

from tokenmill.console import say
from tokenmill.errors import PassingError
from tokenmill_reader import object_errors
from tokenmill_reader.object_errors import PATIENCE_S

T = TypeVar("T")

DELAYS_S = (0.5, 2.0)
"""The pause before the second try, and before the third, which is the last."""


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
    return object_errors.with_patience(do, PassingError, say, ended, PATIENCE_S)
