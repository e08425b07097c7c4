"""Integers that a caller gives, checked."""

import operator
import reprlib
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
