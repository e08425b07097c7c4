"""Makes an Arrow array of strings from Python's."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def large_strings(values: Sequence[bytes | None]) -> pa.LargeStringArray:
    """The values, which are UTF-8, as large_string; None is null.

    pa.array would import pandas, where that is installed, to see whether a list is of its types: 0.3 s of a process.

    >>> large_strings([b"a", None, "é".encode()]).to_pylist()
    ['a', None, 'é']
    """
    known = [value for value in values if value is not None]
    is_valid = None
    if len(known) < len(values):
        bits = np.packbits([value is not None for value in values], bitorder="little")
        is_valid = pa.py_buffer(bits)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    data = pa.py_buffer(b"".join(known))
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(offsets), data, is_valid)
