"""Trying again what a disk or a network could not do this time; never what is wrong with the data."""

import time
from collections.abc import Callable
from typing import TypeVar

from tokenmill.console import say
from tokenmill.errors import PassingError

T = TypeVar("T")

DELAYS_S = (0.5, 2.0)
"""How long to wait before the second try, and the third, which is the last."""


def with_retries(do: Callable[[], T]) -> T:
    """What `do()` gives. While it raises PassingError it is tried again, as often as there are delays."""
    for delay_s in DELAYS_S:
        try:
            return do()
        except PassingError as error:
            say(f"{error} Trying again in {delay_s:g} s.")
            time.sleep(delay_s)
    return do()
