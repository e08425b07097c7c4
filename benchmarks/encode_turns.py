"""One thread and several, in turns: python -m benchmarks.encode_turns FOLDER THREADS TURNS LATER_PASSES.

FOLDER is that of `benchmarks.encode_one`. A turn is a first pass (nothing is remembered) and LATER_PASSES more. Prints one
line of JSON, for "first" and "later" passes the seconds of "one" thread, of "several", and of as many "apart": each has a
tokenizer and a part of the text of its own, and nothing in common with the others but the machine. The ids of all are
the same, or there is no time.
"""

import gc
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.process import timed
from tokenmill import Tokenizer


def main() -> None:
    folder, (threads, n_turns, n_later) = Path(sys.argv[1]), map(int, sys.argv[2:])
    texts = json.loads((folder / "documents.json").read_text(encoding="utf-8"))
    batch, tokenizer = pa.array(texts, pa.large_string()), Tokenizer.load(folder)
    parts, tokenizers = _parts(batch, threads), [Tokenizer.load(folder) for _ in range(threads)]
    gc.disable()
    # What the process does once only is not measured.
    assert tokenizer.encode_batch(batch, threads=1).equals(tokenizer.encode_batch(batch, threads=threads))
    with ThreadPoolExecutor(threads) as pool:
        ways: dict[str, Callable[[], Any]] = {
            "one": lambda: tokenizer.encode_batch(batch, threads=1),
            "several": lambda: tokenizer.encode_batch(batch, threads=threads),
            "apart": lambda: list(pool.map(lambda own, part: own.encode_batch(part, threads=1), tokenizers, parts)),
        }
        assert pa.concat_arrays(ways["apart"]()).equals(ways["one"]())
        found = {kind: {way: list[float]() for way in ways} for kind in ("first", "later")}
        for i in range(n_turns):
            for way in ways if i % 2 else reversed(ways):
                tokenizer, *tokenizers = (
                    one.shared_in(folder) for one in (tokenizer, *tokenizers)
                )  # with empty caches
                for kind in ("first", *["later"] * n_later):
                    found[kind][way].append(timed(ways[way]).seconds)
    print(json.dumps(found))


def _parts(batch: pa.Array, n: int) -> list[pa.Array]:
    """The texts in order, in `n` parts of about as many bytes."""
    ends = pc.binary_length(batch).to_numpy().cumsum()
    cuts = [*ends.searchsorted([ends[-1] * i // n for i in range(n)]), len(batch)]
    return [batch[cuts[i] : cuts[i + 1]] for i in range(n)]


if __name__ == "__main__":
    main()
