"""One tool encodes a batch in a process of its own: python -m benchmarks.encode_one TOOL FOLDER THREADS PASSES [QUARTER].

FOLDER holds documents.json (a list), tokenizer.json, vocab.tiktoken and meta.json (the split pattern, the special tokens). The
process binds itself to as many cores as threads before any tool is imported. Prints one line of JSON: the seconds of each
pass and its processor time, over fresh text first, and a digest of all ids. With QUARTER, the first quarter of the text is encoded
before, and the passes are over the rest.
"""

import base64
import gc
import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.process import bind, timed

Prepared = tuple[Callable[[list[str]], Any], Callable[[Any], Any], Callable[[Any], str]]
"""What makes the batch that the tool takes, what encodes it, and what gives the digest of the ids."""


def main() -> None:
    tool, folder, threads, n_passes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    warms = "QUARTER" in sys.argv[5:]
    bind(threads)
    texts: list[str] = json.loads((folder / "documents.json").read_text(encoding="utf-8"))
    take, work, digest = TOOLS[tool](folder, threads)
    gc.disable()  # what tools that give Python lists would pay for their millions of objects is another matter
    n_warm = quarter(texts) if warms else 0
    if warms:
        work(take(texts[:n_warm]))
    batch = take(texts[n_warm:])
    seconds, cpu_s, result = [], [], None
    for _ in range(n_passes):
        result = None  # the memory is free again before the next pass
        pass_s, pass_cpu_s, result = timed(lambda: work(batch))
        seconds.append(pass_s)
        cpu_s.append(pass_cpu_s)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "answer": digest(result)}))


def quarter(texts: list[str]) -> int:
    """How many of the first texts are a quarter of all bytes."""
    total, n_bytes = sum(len(one.encode()) for one in texts), 0
    for i, one in enumerate(texts):
        if n_bytes * 4 >= total:
            return i
        n_bytes += len(one.encode())
    return len(texts)


def _of_lists(lists: Iterable[Any]) -> str:
    import numpy as np

    digest = hashlib.sha256()
    for ids in lists:
        digest.update(len(ids).to_bytes(8, "little") + np.asarray(ids, np.uint32).tobytes())
    return digest.hexdigest()


def _of_flat(result: tuple[Any, Any]) -> str:
    """Of all ids, and where each list ends; both as bytes, or as arrays with the lists' lengths."""
    import numpy as np

    ids, ends = result
    if isinstance(ids, bytes):
        ids, ends = np.frombuffer(ids, np.uint32), np.frombuffer(ends, np.uint64)[1:]
    else:
        ends = np.cumsum(ends)
    return _of_lists(np.split(ids, ends[:-1].astype(np.int64)))


def _same(texts: list[str]) -> list[str]:
    return texts


def _tokenmill(arrow: bool) -> Callable[[Path, int], Prepared]:
    def prepare(folder: Path, threads: int) -> Prepared:
        import pyarrow as pa

        from tokenmill import Tokenizer

        tokenizer = Tokenizer.load(folder)
        return (
            (lambda texts: pa.array(texts, pa.large_string())) if arrow else _same,
            lambda batch: tokenizer.encode_batch(batch, threads=threads),
            lambda found: _of_lists(one.values.to_numpy() for one in found),
        )

    return prepare


def _tokenizers(folder: Path, threads: int) -> Prepared:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return (
        _same,
        lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        lambda batch: _of_lists(one.ids for one in batch),
    )


def _tiktoken(folder: Path, threads: int) -> Prepared:
    import tiktoken

    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    lines = (folder / "vocab.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    encoding = tiktoken.Encoding(
        "bench", pat_str=meta["pattern"], mergeable_ranks=ranks, special_tokens=meta["special_tokens"]
    )
    return _same, lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads), _of_lists


def _gigatoken(folder: Path, threads: int) -> Prepared:
    import gigatoken

    tokenizer = gigatoken.Tokenizer(str(folder / "tokenizer.json"))
    return (
        _same,
        lambda texts: tokenizer.encode_batch(texts, parallel=threads > 1),
        lambda batch: _of_lists(batch.to_list()),
    )


def _flat(module: str, load: str) -> Callable[[Path, int], Prepared]:
    def prepare(folder: Path, threads: int) -> Prepared:
        made: Any = __import__(module)
        for name in load.split("."):
            made = getattr(made, name)
        tokenizer = made(str(folder / "tokenizer.json"))
        return _same, tokenizer.encode_batch_flat, _of_flat

    return prepare


TOOLS: dict[str, Callable[[Path, int], Prepared]] = {
    "tokenizers": _tokenizers,
    "tokenmill": _tokenmill(arrow=False),
    "tokenmill, Arrow": _tokenmill(arrow=True),
    "gigatoken": _gigatoken,
    "snaptokens": _flat("snaptokens", "Tokenizer.from_file"),
    "fastokens": _flat("fastokens", "Tokenizer.from_file"),
    "tokie": _flat("tokie", "Tokenizer.from_json"),
    "splintr": _flat("splintr", "from_json"),
    "tiktoken": _tiktoken,
}

if __name__ == "__main__":
    main()
