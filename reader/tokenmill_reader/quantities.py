"""Numbers of bytes as short text for people."""

from __future__ import annotations

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(n_bytes: float) -> str:
    """A number of bytes, such as 12 bytes, 4.5 kB or 1.2 GB.

    >>> size(4_500)
    '4.5 kB'
    """
    scale, unit = scale_of(n_bytes)
    return f"{n_bytes / scale:,.1f} {unit}" if scale > 1 else f"{n_bytes:.0f} bytes"


def scale_of(n_bytes: float) -> tuple[float, str]:
    """The unit that fits a number of bytes: how many bytes it has, and its name."""
    return next(((scale, unit) for scale, unit in _UNITS if n_bytes >= scale * 0.99995), (1, "bytes"))
