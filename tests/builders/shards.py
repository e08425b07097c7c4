"""Files of documents in every format, and what the reader finds in them."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokenmill.config.sources import Reading
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.reader import Batch, Shard, find_shards, read_batches
from tokenmill.errors import CorpusError

Rows = list[tuple[str, str]]  # id, text
SEPARATOR = "<|>"
HARD_ROWS = [("a", "plain"), ("b", ""), ("7", "naïve 東京 🙂 \x00 \u2028 \r\n"), ("", '"\\/\t'), ("e", "é" * 40)]


def zstd(data: bytes) -> bytes:
    """One frame, whose header has the length."""
    return pa.Codec("zstd").compress(data, asbytes=True)


def jsonl(rows: Rows) -> bytes:
    return b"".join(json.dumps({"id": i, "more": [1, {"x": None}], "text": t}).encode() + b"\n" for i, t in rows)


def array(rows: Rows, indent: int | None = None) -> str:
    return json.dumps([{"id": i, "more": [1, {"x": "]},"}], "text": t} for i, t in rows], indent=indent)


def table(rows: Rows, kind: pa.DataType | None = None) -> pa.Table:
    texts = pa.array([t for _, t in rows], pa.string())
    return pa.table(
        {
            "id": pa.array([i for i, _ in rows], pa.string()),
            "text": texts.dictionary_encode() if kind == "dictionary" else texts.cast(kind or pa.string()),
            "more": pa.array([None] * len(rows), pa.int8()),
        }
    )


def records(rows: Rows, separator: str = ",", line_end: str = "\n") -> bytes:
    """A .csv file. Each value with a carriage return is in quotes, which Python's writer leaves out."""
    file = StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator=line_end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([("id", "more", "text"), *((i, 1, t) for i, t in rows)])
    return file.getvalue().encode()


def write_ipc(path: Path, rows: pa.Table, new: Callable[..., Any]) -> None:
    with pa.OSFile(str(path), "wb") as file, new(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)


def shard(path: Path) -> Shard:
    return find_shards(path.parent, path.name)[0]


def read(path: Path, id_column: str | None = "id", separator: str | None = None, **options: Any) -> list[Batch]:
    """The batches of a file that is read without a limit, unless one is given."""
    reading = Reading(options.pop("text_column", "text"), id_column, separator)
    limits = options.pop("limits", UNBOUNDED)
    limits = replace(limits, batch_bytes=options.pop("batch_bytes", limits.batch_bytes))
    return list(read_batches(shard(path), reading, limits=limits, **options))


def texts_of(batches: list[Batch]) -> list[str]:
    return [text for batch in batches for text in batch.texts.to_pylist()]


def error_of(path: Path, **options: Any) -> str:
    """The error of reading a file: one line that names the file."""
    with pytest.raises(CorpusError) as raised:
        read(path, **options)
    assert path.name in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def conversation_table(rows: list[dict[str, Any]]) -> pa.Table:
    """A table in which structs have null for each key that a row lacks. Without tools, their column is of nulls."""
    names = list(dict.fromkeys([*(name for row in rows for name in row), "tools"]))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
