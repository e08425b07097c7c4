"""Numbers of things, bytes and seconds as short text for people, and numbers that JSON does not have."""

import math
from typing import Any

from tokenmill_reader.shown import scale_of


def number_of(n: int, noun: str) -> str:
    """A number with its noun, which has an s in the plural.

    >>> number_of(1, "special token"), number_of(2_000, "special token")
    ('1 special token', '2,000 special tokens')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def size_of_total(done_bytes: float, total_bytes: float) -> str:
    """Both numbers in the unit that fits the total.

    >>> size_of_total(500_000, 2_000_000)
    '0.5 of 2.0 MB'
    """
    scale, unit = scale_of(total_bytes)
    decimals = 1 if scale > 1 else 0
    return f"{done_bytes / scale:,.{decimals}f} of {total_bytes / scale:,.{decimals}f} {unit}"


def clock(seconds: float) -> str:
    """A time as minutes:seconds, or from an hour on as hours:minutes:seconds.

    >>> clock(3_725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def finite(value: Any) -> Any:
    """A value of JSON in which every number that JSON does not have, such as NaN, is null.

    >>> finite({"a": [1.5, float("nan")], "b": float("inf")})
    {'a': [1.5, None], 'b': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value
