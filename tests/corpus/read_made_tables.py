"""Makes tables at random whose values are many or long, writes them, reads them under a small limit, and prints the memory it took.

`python -m tests.corpus.read_made_tables FOLDER FORMAT N_FILES`. It is a process of its own, whose peak can be measured.
"""

import json
import random
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config.sources import Conversations, Reading
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import find_shards
from tokenmill.errors import CorpusError
from tokenmill.pipeline.memory import Memory, peak_mb, reset_peak
from tokenmill.process_memory import give_memory_back

LIMITS = Memory(mb_max=416, base_mb=256, workers=1).limits
_ADDRESS_BYTES_MAX = 4 << 30  # so that a reader without limits is stopped by an error and harms nobody
_PLAIN_BYTES_MAX = 25 << 20  # more take too long to write
_DECODED_BYTES_MAX = 250 << 20


def main(folder: Path, format: str, n_files: int) -> None:
    """Prints a line of JSON for each file: its number, bytes, what it is, the megabytes its reading took, and the documents, or the
    words of the refusal."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES_MAX, _ADDRESS_BYTES_MAX))
    for i in range(n_files):
        rng = random.Random(f"{format} {i}")
        path = folder / f"{i:03}.{format}"
        is_of_conversations = rng.random() < 0.5
        what, n_rows = (write_arrow if format == "arrow" else write_parquet)(rng, path, is_of_conversations)
        (shard,) = find_shards(folder, path.name)
        give_memory_back()
        reset_peak()
        before_mb = peak_mb()
        assert before_mb is not None
        conversations = Conversations("value", None, None) if is_of_conversations else None
        found: dict[str, Any] = {}
        try:
            batches = read_batches(
                shard, Reading("value", "id", None, conversations), limits=LIMITS, on_bad=lambda bad: None
            )
            found["n_documents"] = sum(len(batch.texts) for batch in batches)
        except CorpusError as error:
            found["refused"] = str(error)
        peak = peak_mb()
        assert peak is not None
        print(
            json.dumps(
                {"i": i, "n_bytes": path.stat().st_size, "what": what, "mb": peak - before_mb, "n_rows": n_rows} | found
            ),
            flush=True,
        )
        path.unlink()


def write_arrow(rng: random.Random, path: Path, is_of_conversations: bool) -> tuple[str, int]:
    """Writes a file of Arrow. Gives what it is, in words, and its rows."""
    table, what = _table(rng, is_of_conversations, ["plain", "dictionary", "view"])
    compression = rng.choice([None, "lz4", "zstd", "zstd"])
    new = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
    n_rows = -(-len(table) // rng.choice([1, 1, 3, 20]))
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, n_rows)
    return f"{what}, {new.__name__}, {compression}, batches of {n_rows}", len(table)


def write_parquet(rng: random.Random, path: Path, is_of_conversations: bool) -> tuple[str, int]:
    """Writes a file of Parquet. Gives what it is, in words, and its rows."""
    encoding = rng.choice(["dictionary", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
    table, what = _table(rng, is_of_conversations, ["dictionary" if encoding == "dictionary" else "plain"])
    column = "value.list.element.content" if is_of_conversations else "value"
    options: dict[str, Any] = {
        "compression": rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "data_page_size": rng.choice([1 << 14, 1 << 20, 1 << 24]),
        "dictionary_pagesize_limit": 1 << 24,
        "write_batch_size": rng.choice([16, 1024]),
        "row_group_size": max(len(table) // rng.choice([1, 1, 3]), 1),
    }
    encodings = (
        {"use_dictionary": True}
        if encoding == "dictionary"
        else {"use_dictionary": False, "column_encoding": {column: encoding}}
    )
    pq.write_table(table, path, store_schema=False, **encodings, **options)
    return f"{what}, {encoding}, {options}", len(table)


def _table(rng: random.Random, is_of_conversations: bool, kinds: list[str]) -> tuple[pa.Table, str]:
    """A table with the columns id and value, texts or lists of messages; and what it is."""
    kind = rng.choice(kinds)
    n_long = int(10 ** rng.uniform(1, 6.6))  # bytes of a long value
    n_values = int(10 ** rng.uniform(0, 4.5))
    n_values = max(min(n_values, (_PLAIN_BYTES_MAX if kind == "plain" else _DECODED_BYTES_MAX) // n_long), 1)
    texts = [rng.choice("abc") * rng.choice([n_long, n_long // 2, 3]) for _ in range(rng.choice([1, 2, 5]))]
    which = np.random.default_rng(rng.randrange(1 << 30)).integers(0, len(texts), n_values).astype(np.int32)
    values: pa.Array = pa.DictionaryArray.from_arrays(pa.array(which), pa.array(texts))
    if kind == "plain":
        values = values.cast(pa.large_string()).cast(pa.string())
    if kind == "view":
        base = pa.array(texts).cast(pa.string_view())
        views = np.frombuffer(base.buffers()[1], "<i8").reshape(-1, 2)[which].tobytes()
        values = pa.Array.from_buffers(pa.string_view(), n_values, [None, pa.py_buffer(views), *base.buffers()[2:]])
    per_row = 1
    if is_of_conversations:
        per_row = rng.choice([1, 3, 1000, n_values])
        roles: pa.Array = pa.DictionaryArray.from_arrays(pa.array(which % 2), pa.array(["user", "assistant"]))
        numbers = pa.array(which % 2, pa.int8())
        messages = pa.StructArray.from_arrays(
            [roles if kind != "plain" else roles.cast(pa.string()), values, numbers], ["role", "content", "n"]
        )
        offsets = [*range(0, n_values, per_row), n_values]
        values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), messages)
    ids = pa.array([f"{i}" for i in range(len(values))])
    return pa.table({"id": ids, "value": values}), f"{kind}, {n_values} values of {n_long} bytes, {per_row} a row"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
