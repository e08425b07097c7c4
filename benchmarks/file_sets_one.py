"""One tool makes a dataset of JSON lines, in a process of its own: python -m benchmarks.file_sets_one TOOL FOLDER PATH...

FOLDER holds shards/*.jsonl, tokenizer.json, end.json (the token that ends every document, and its id) and out, which is empty.
Every PATH is a folder of further packages: the environment that has the tools of the formats need not have every encoder. Two
processes share the shards, as each tool does it by itself or in its examples. Prints one line of JSON: the seconds without the
imports, the processor time of all processes, a digest of the ids of all documents, in whatever order, and the tools' versions.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import timed

N_PROCESSES = 2
CHUNK_BYTES = 1 << 26
_BATCH_BYTES = 1 << 23

Ways = tuple[Callable[[Path], None], Callable[[Path], Iterable[Any]]]


def main() -> None:
    tool, folder = sys.argv[1], Path(sys.argv[2])
    sys.path += sys.argv[3:]  # behind what the environment has, whose versions fit together
    make, read = WAYS[tool]
    format, encoder = tool.split(", ")
    package, module = PACKAGES[format]
    for name in (module, encoder):  # before the time counts and the processes begin
        __import__(name)
    run = timed(lambda: make(folder))
    answer = digest(read(folder / "out"), end_of(folder)[1])
    versions = {name: version(name) for name in (package, encoder)}
    print(json.dumps({"seconds": run.seconds, "cpu_s": run.cpu_s, "answer": answer, "versions": versions}))


def digest(arrays: Iterable[Any], end_id: int) -> list[int]:
    """A number for all documents, and how many they are. The arrays hold whole documents, each with the id that ends it."""
    n, total = 0, 0
    for ids in arrays:
        ids = np.asarray(ids).astype("<u4")
        ends = np.flatnonzero(ids == end_id) + 1
        assert ends.size and ends[-1] == ids.size, "the last document does not end"
        for one in np.split(ids, ends[:-1]):
            n, total = n + 1, total + int.from_bytes(hashlib.sha256(one.tobytes()).digest()[:8], "little")
    return [total % 2**64, n]


def flat_arrays(folder: Path, suffix: str) -> Iterator[Any]:
    """The ids in files that hold nothing else, of two bytes each."""
    for path in sorted(folder.rglob(f"*{suffix}")):
        yield np.fromfile(path, "<u2")


def litdata_chunks(folder: Path) -> Iterator[Any]:
    """The ids in chunks of litdata: the number of items, where each begins, and their ids."""
    for path in sorted(folder.rglob("*.bin")):
        content = np.fromfile(path, np.uint8)
        n_items = int(content[:4].view("<u4")[0])
        first, end = content[4 : 8 + 4 * n_items].view("<u4")[[0, -1]].tolist()
        yield content[first:end].view("<u2")


def mds_samples(folder: Path) -> Iterator[Any]:
    """The ids of each sample that the library's own reader finds."""
    from streaming import LocalDataset

    for local in sorted({path.parent for path in folder.rglob("index.json")}):
        for sample in LocalDataset(str(local)):
            yield sample["input_ids"]


def end_of(folder: Path) -> tuple[str, int]:
    """The token that ends every document, and its id."""
    token, id_ = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    return token, id_


def _shards(folder: Path) -> list[str]:
    return [str(path) for path in sorted((folder / "shards").iterdir())]


def _texts(shard: str) -> Iterator[list[str]]:
    """The texts of a shard, in batches that are worth an encoder's while."""
    with Path(shard).open("rb") as lines:
        while some := lines.readlines(_BATCH_BYTES):
            yield [json.loads(line)["text"] for line in some]


def _encoded(shards: Iterable[str], folder: Path) -> Iterator[Any]:
    """The ids of each document, uint16, with the end, by gigatoken."""
    import awkward
    import gigatoken

    end = np.array([end_of(folder)[1]], np.uint16)
    tokenizer = gigatoken.Tokenizer(str(folder / "tokenizer.json"))
    for shard in shards:
        for texts in _texts(shard):
            batch = tokenizer.encode_batch(texts, parallel=False)
            ends = np.cumsum(awkward.to_numpy(awkward.num(batch)))
            for ids in np.split(awkward.to_numpy(awkward.flatten(batch)).astype(np.uint16), ends[:-1]):
                yield np.concatenate([ids, end])


def _in_processes(work: Callable[[Path, int], None]) -> Callable[[Path], None]:
    """Each process has every second shard, and an output of its own."""

    def make(folder: Path) -> None:
        with ProcessPoolExecutor(N_PROCESSES, mp_context=get_context("fork")) as pool:
            for future in [pool.submit(work, folder, i) for i in range(N_PROCESSES)]:
                future.result()

    return make


def _megatron(folder: Path, i: int) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    stem = folder / "out" / f"{i}_text_document"
    builder = IndexedDatasetBuilder(f"{stem}.bin", dtype=np.uint16)
    for ids in _encoded(_shards(folder)[i::N_PROCESSES], folder):
        builder.add_document(ids, [len(ids)])
    builder.finalize(f"{stem}.idx")


def _mds(folder: Path, i: int) -> None:
    from streaming import MDSWriter

    columns = {"input_ids": "ndarray:uint16"}
    with MDSWriter(out=str(folder / "out" / str(i)), columns=columns, size_limit=CHUNK_BYTES) as writer:
        for ids in _encoded(_shards(folder)[i::N_PROCESSES], folder):
            writer.write({"input_ids": ids})


def _litdata(folder: Path) -> None:
    from litdata import TokensLoader, optimize

    optimize(
        fn=partial(_tensors, folder=folder),
        inputs=_shards(folder),
        output_dir=str(folder / "out"),
        chunk_bytes=CHUNK_BYTES,
        num_workers=N_PROCESSES,
        item_loader=TokensLoader(),
        start_method="fork",
        verbose=False,
    )


def _tensors(shard: str, folder: Path) -> Iterator[Any]:
    import torch

    for ids in _encoded([shard], folder):
        yield torch.from_numpy(ids)


def _datatrove(folder: Path) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(folder / "shards")),
            DocumentTokenizer(
                str(folder / "out"),
                str(folder / "tokenizer.json"),
                eos_token=end_of(folder)[0],
                shuffle_documents=False,
            ),
        ],
        tasks=N_PROCESSES,
        workers=N_PROCESSES,
        start_method="fork",
        logging_dir=str(folder / "logs"),
    ).run()


WAYS: dict[str, Ways] = {
    "megatron, gigatoken": (_in_processes(_megatron), lambda out: flat_arrays(out, ".bin")),
    "datatrove, tokenizers": (_datatrove, lambda out: flat_arrays(out, ".ds")),
    "mds, gigatoken": (_in_processes(_mds), mds_samples),
    "litdata, gigatoken": (_litdata, litdata_chunks),
}
"""Each format by its own library with an encoder; and how to read the ids of documents again."""


PACKAGES = {
    "megatron": ("megatron-core", "megatron.core.datasets.indexed_dataset"),
    "datatrove": ("datatrove", "datatrove.pipeline.tokens"),
    "mds": ("mosaicml-streaming", "streaming"),
    "litdata": ("litdata", "litdata"),
}
"""The package of each format, and the module of it that takes seconds to import, with torch for the most part."""

if __name__ == "__main__":
    main()
