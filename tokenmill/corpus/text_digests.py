"""The sha256 of texts in Arrow arrays."""

import pyarrow as pa

from tokenmill import _core


def text_digests(texts: pa.LargeStringArray) -> pa.FixedSizeBinaryArray:
    """The sha256 of each text in UTF-8; fixed_size_binary[32]. A null has that of the empty text."""
    return _core.sha256_each(texts)
