"""One thread and several, pass by pass in turns: python -m benchmarks.encode_turns FOLDER THREADS PASSES.

FOLDER is that of `benchmarks.encode_one`. Prints one line of JSON, for "first" (nothing is remembered) and "later" passes the
seconds by number of threads. The ids are the same, or there is no time.
"""

import gc
import json
import sys
import time
from pathlib import Path

import pyarrow as pa

from tokenmill import Tokenizer


def main() -> None:
    folder, threads, n_passes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    texts = json.loads((folder / "documents.json").read_text(encoding="utf-8"))
    batch, tokenizer = pa.array(texts, pa.large_string()), Tokenizer.load(folder)
    gc.disable()
    found = {kind: {n: list[float]() for n in (1, threads)} for kind in ("first", "later")}
    # What the process does once only is not measured.
    assert tokenizer.encode_batch(batch, threads=1).equals(tokenizer.encode_batch(batch, threads=threads))
    for i in range(n_passes):
        for n in (1, threads) if i % 2 else (threads, 1):
            tokenizer.forget()
            for kind in ("first", "later"):
                found[kind][n].append(_seconds(tokenizer, batch, n))
    print(json.dumps(found))


def _seconds(tokenizer: Tokenizer, batch: pa.Array, threads: int) -> float:
    start_s = time.perf_counter()
    ids = tokenizer.encode_batch(batch, threads=threads)
    seconds = time.perf_counter() - start_s
    del ids
    return seconds


if __name__ == "__main__":
    main()
