"""The sha256 of texts in Arrow arrays."""

import hashlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def text_digests(texts: pa.LargeStringArray) -> pa.FixedSizeBinaryArray:
    """The sha256 of each text in UTF-8; fixed_size_binary[32]. A null has that of the empty text."""
    _, offsets, values = texts.buffers()
    ends = memoryview(offsets).cast("b").cast("q")[texts.offset : texts.offset + len(texts) + 1] if len(texts) else [0]
    text = memoryview(values) if values is not None else b""
    digests = b"".join(_digests(text, ends))
    return pa.Array.from_buffers(pa.binary(32), len(texts), [None, pa.py_buffer(digests)])


def _digests(text: Any, ends: Any) -> Iterable[bytes]:
    sha256 = hashlib.sha256
    start = ends[0]
    for end in ends[1:]:
        yield sha256(text[start:end]).digest()
        start = end
