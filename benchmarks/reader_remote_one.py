"""Reads a dataset once, in a process of its own: by tokenmill, or by another tool in its environment. Prints JSON.

Each sequence of ids is copied into a batch. With a pace, each batch is followed by a pause, as long as a training step that takes
so many MB of ids a second. Time counts from the first sequence, when imports are done. `sum`: of all ids, to compare what was read.
`own_cpu_s`: processor time of this process; `cpu_s`: with that of the processes that it started.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

BATCH = 16
LENGTH = 2048


def _tokenmill(place: str, cache: str, cache_bytes: int, block: int) -> Iterable[Any]:
    import tokenmill_reader

    given: dict[str, Any] = {"cache": cache, "cache_bytes": cache_bytes} if cache else {}
    sequences = tokenmill_reader.open(place, format="arrow", **given).sequences(LENGTH)
    return sequences.shuffle(seed=0, block=block) if block else sequences


def _streaming(place: str, cache: str, cache_bytes: int, block: int) -> Iterator[Any]:
    from streaming import StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    common = {"batch_size": BATCH, "cache_limit": cache_bytes, "shuffle": block > 0, "shuffle_seed": 0}
    # Its own order, py1e over 64 canonical nodes, takes sequences of more shards than the cache holds, and fetches them for ever.
    dataset = StreamingDataset(remote=place, local=cache, shuffle_algo="py1br", num_canonical_nodes=1, **common)
    dataset.shuffle_block_size = max(block, 1) * int(dataset.samples_per_shard[0])
    for sample in dataset:
        yield sample["tokens"]


def _litdata(place: str, cache: str, cache_bytes: int, block: int) -> Iterator[Any]:
    from litdata import StreamingDataset, TokensLoader
    from litdata.streaming import downloader

    downloader._OBSTORE_AVAILABLE = False  # it takes no http:// endpoint; boto3 fetches then
    options = {
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    dataset = StreamingDataset(
        place,
        item_loader=TokensLoader(block_size=LENGTH),
        shuffle=block > 0,
        cache_dir=cache,
        max_cache_size=f"{cache_bytes // 1_000_000}MB",
        storage_options=options,
    )
    for ids in dataset:
        yield ids.numpy()


TOOLS = {"tokenmill": _tokenmill, "streaming": _streaming, "litdata": _litdata}


def main() -> None:
    tool, place, cache, cache_bytes, block, pace, n_max = sys.argv[1:8]
    batch = np.empty((BATCH, LENGTH), np.int64 if tool != "tokenmill" else np.uint16)
    step_s = BATCH * LENGTH * 2 / float(pace) / 1e6 if float(pace) else 0
    total, n_items = 0, 0
    sequences = iter(TOOLS[tool](place, cache, int(cache_bytes), int(block)))
    first = next(sequences)
    start_s = due_s = time.perf_counter()
    before_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    for ids in chain([first], sequences):
        at = n_items % BATCH
        batch[at] = ids
        n_items += 1
        if at == BATCH - 1:
            total += int(batch.sum(dtype=np.int64))
            if step_s:
                due_s = max(due_s + step_s, time.perf_counter())  # time that is lost is not made up for
                time.sleep(max(due_s - time.perf_counter(), 0))
        if n_items == int(n_max):
            break
    seconds = time.perf_counter() - start_s
    del ids, first, sequences  # so that what fetches ends, and its time is counted
    own_s, beside_s = (sum(resource.getrusage(one)[:2]) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own_s -= before_s
    found = {"s": seconds, "own_cpu_s": own_s, "cpu_s": own_s + beside_s, "n_items": n_items, "sum": total}
    print(json.dumps(found), flush=True)
    os._exit(0)  # litdata's threads would go on


if __name__ == "__main__":
    main()
