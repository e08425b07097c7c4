"""The sha256 of texts in Arrow arrays, and the keys that are its first bytes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill import _core

Keys = npt.NDArray[np.uint64]


def text_digests(texts: pa.LargeStringArray) -> pa.FixedSizeBinaryArray:
    """The sha256 of each text in UTF-8; fixed_size_binary[32]. A null has that of the empty text."""
    return _core.sha256_each(texts)


def text_keys(sha256: pa.FixedSizeBinaryArray | pa.BinaryArray) -> Keys:
    """The key of each document, the first 8 bytes, little-endian, of its digest: uint64. `sha256`: digests of 32 bytes. Raises
    ValueError for nulls, ArrowInvalid for other sizes.

    >>> text_keys(pa.array([bytes([1, 2]) + bytes(30)])).tolist()
    [513]
    """
    if sha256.null_count:
        raise ValueError(f"digests: expected one for each document; found {sha256.null_count} nulls.")
    if not len(sha256):
        return np.empty(0, np.uint64)
    digests = sha256.cast(pa.binary(32))
    bytes_of_all = np.frombuffer(digests.buffers()[1], np.uint8, len(digests) * 32, digests.offset * 32)
    return np.ascontiguousarray(bytes_of_all.reshape(-1, 32)[:, :8]).view("<u8").ravel().astype(np.uint64)
