"""Measures how large the columns of `keep_columns` become in the document index, on the shards of a sample."""

import time
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import read_batches
from tokenmill.dataset.kept_columns import KEPT, kept_reading
from tokenmill.features.plan.sampling import Excerpt


class KeptRates(NamedTuple):
    """What the kept columns of some documents are and cost: `n_bytes` in the document index, `seconds` to read them."""

    n_bytes: int
    seconds: float


def measure_kept(n_documents: Mapping[Excerpt, int], limits: Limits) -> KeptRates:
    """Reads the columns of as many rows of each excerpt as it has documents here, and writes them as a unit's index has them."""
    start_s, n_bytes = time.perf_counter(), 0
    for excerpt, n in n_documents.items():
        source = excerpt.shard.source
        assert source is not None
        if not source.keep_columns:
            continue
        shape, sink = pa.schema([KEPT]), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, shape, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            for batch in read_batches(excerpt.shard, kept_reading(source), excerpt.part, lambda _: None, limits):
                some = batch.slice(0, n)
                writer.write_batch(pa.RecordBatch.from_arrays([some.messages], schema=shape))
                n -= len(some.texts)
                if not n:
                    break
        n_bytes += sink.tell()
    return KeptRates(n_bytes, time.perf_counter() - start_s)
