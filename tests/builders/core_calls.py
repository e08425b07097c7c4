"""What the core learns, and encoders of the core, from values of Python."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill import _core

ORDER = _core.byte_order()
BYTES = [bytes([byte]) for byte in ORDER]
Pair = tuple[bytes, bytes]


def learned(
    counts: dict[bytes, int], n_tokens: int, least: int = 1, longest: int | None = None,
    forbidden: Sequence[bytes] = (), score: str = "count",
) -> tuple[list[Pair], pa.Table]:  # fmt: skip
    """The merges as bytes, and the table that the core gave."""
    pretokens = pa.array(list(counts), pa.binary())
    numbers = pa.array(list(counts.values()), pa.uint64())
    goal = (n_tokens, score, least, longest, list(forbidden))
    table = table_of(_core.train(pretokens, numbers, BYTES, 256, *goal, None, None, None)[0])
    # A token's id does not tell when it was made where a pair came up again, so the bytes are found by repetition.
    tokens = {place: bytes([byte]) for place, byte in enumerate(ORDER)}
    rows = list(zip(*(table[name].to_pylist() for name in ("left", "right", "token")), strict=True))
    for _ in rows:
        for left, right, token in rows:
            if left in tokens and right in tokens:
                tokens[token] = tokens[left] + tokens[right]
        if all(token in tokens for _, _, token in rows):
            break
    return [(tokens[left], tokens[right]) for left, right, _ in rows], table


def table_of(merges: bytes) -> pa.Table:
    """Merges as the core gives them, in columns."""
    columns = list(zip(*struct.iter_unpack("<IIIQ", merges), strict=True)) or [()] * 4
    kinds = [pa.uint32()] * 3 + [pa.uint64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["left", "right", "token", "count"])


def source_text() -> list[str]:
    """Fifty modules of the standard library."""
    paths = sorted(Path(json.__file__).parent.parent.glob("*.py"))
    return [path.read_text(encoding="utf-8") for path in paths[:50]]


def encoder(
    tokens: dict[bytes, int], merges: list[Pair], steps: list[str] | None = None,
    added: list[tuple[int, bytes, bool]] = [], ignore_merges: bool = False,  # noqa: B006
) -> Any:  # fmt: skip
    vocabulary = pa.record_batch(
        {"id": pa.array(list(tokens.values()), pa.uint32()), "token": pa.array(list(tokens), pa.binary())}
    )
    rows = [(tokens[a], tokens[b], rank, tokens[a + b]) for rank, (a, b) in enumerate(merges)]
    names = ("left", "right", "rank", "token")
    merged = pa.record_batch({name: pa.array([row[i] for row in rows], pa.uint32()) for i, name in enumerate(names)})
    extra = pa.record_batch({
        "id": pa.array([row[0] for row in added], pa.uint32()),
        "token": pa.array([row[1] for row in added], pa.binary()),
        "in_text": pa.array([row[2] for row in added], pa.bool_()),
    })  # fmt: skip
    return _core.Encoder([] if steps is None else steps, vocabulary, merged, extra, ignore_merges)
