"""Retries transient failures of a disk or network, but never an error in the data."""

import time
from collections.abc import Callable
from typing import TypeVar

from tokenmill.console import say
from tokenmill.errors import PassingError

T = TypeVar("T")

DELAYS_S = (0.5, 2.0)
"""The pause before the second try, and before the third, which is the last."""


def with_retries(do: Callable[[], T]) -> T:
    """The result of `do()`. If it raises PassingError, it is tried again, once for each delay."""
    for delay_s in DELAYS_S:
        try:
            return do()
        except PassingError as error:
            say(f"{error} Trying again in {delay_s:g} s.")
            time.sleep(delay_s)
    return do()
