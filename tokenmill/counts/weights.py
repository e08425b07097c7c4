"""Weights of texts, as exact fractions."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

Weight: TypeAlias = int | str | Fraction

_WHOLE_MAX = 2**64 - 1  # the core's limit


def weight_of(value: object) -> Fraction:
    """A weight as a fraction, from an int, a Fraction or a text such as "3/2" or "1.5". Raises ValueError.

    >>> weight_of("3/2")
    Fraction(3, 2)
    """
    try:
        if isinstance(value, int | str | Fraction) and not isinstance(value, bool) and Fraction(value) >= 0:
            return Fraction(value)
    except (ValueError, ZeroDivisionError):
        pass
    raise ValueError(f'found {value!r:.60}; allowed: a whole number, or a text such as "3/2" or "1.5", 0 or more')


def over_one_denominator(weights: Sequence[Fraction]) -> tuple[list[int], int]:
    """The weights as whole numbers over a common denominator, and that denominator. Raises ValueError beyond 64 bits.

    >>> over_one_denominator([Fraction(3, 2), Fraction(1, 3)])
    ([9, 2], 6)
    """
    denominator = math.lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * denominator) for weight in weights]
    if max(denominator, *whole, 0) > _WHOLE_MAX:
        raise ValueError("over their common denominator they are beyond 64 bits; allowed: simpler fractions")
    return whole, denominator
