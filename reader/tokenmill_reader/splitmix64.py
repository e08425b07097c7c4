"""The mixer of splitmix64: 64 bits to 64 bits, one to one, where each bit of the input changes half of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


def mix(values: npt.NDArray[np.uint64], scratch: npt.NDArray[np.uint64]) -> None:
    """Replaces each value by its mix; `scratch`, of the same shape, is overwritten.

    Source: the last step of splitmix64 (Steele, Lea and Flood 2014, with the constants of Stafford's variant 13).

    >>> values = np.array([0, 1], np.uint64)
    >>> mix(values, np.empty_like(values))
    >>> values.tolist()
    [0, 6238072747940578789]
    """
    for shift, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR), (31, None)):
        np.right_shift(values, np.uint64(shift), out=scratch)
        np.bitwise_xor(values, scratch, out=values)
        if factor is not None:
            np.multiply(values, factor, out=values)
