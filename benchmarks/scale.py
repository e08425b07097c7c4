"""make bench-scale: how large a corpus the planner can carry, without a cluster and without the corpus.

The lists of shards are generated; the cutting, the keys, the batches, the manifest and DVC's folder object are the real ones, with
invented digests. The seconds of a stage follow from this machine's speed and a list schedule, so they leave out storage, network,
start-up and the driver. The speed is that of Counter and Tokenizer on text in memory. What this does not show: a build of that
size, validating, and the shard listing of a real disk or bucket.
"""

import argparse
import gc
import hashlib
import heapq
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import record
from benchmarks.corpus import documents
from benchmarks.harness import bytes_of, options
from benchmarks.process import module_result, peak_mb, timed
from tokenmill import Counter, train_vocab
from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.shards import Shard, ShardRange
from tokenmill.corpus.units import Unit, cut
from tokenmill.dataset.entries import InputRows, InputShard, OutputShard, ReadingEntry
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.pipeline.task_batches import groups_of, tasks_max
from tokenmill.pipeline.unit_content import content
from tokenmill.rounds import Task
from tokenmill.storage.unit_store import unit_key
from tokenmill_reader.manifest import MANIFEST_FILE

SCENARIOS = {
    "52 GB": (200, 52 * 10**9, 1, 16),
    "1 TB": (10_000, 10**12, 64, 16),
    "10 TB": (100_000, 10**13, 64, 16),
    "100 TB": (1_000_000, 10**14, 64, 16),
}
"""Files, their bytes in all, machines, and cores a machine."""

UNIT_BYTES_MIN, UNIT_BYTES_MAX = 1_000_000, 64_000_000
MEMORY_BYTES_MAX = 14 << 30  # of the process that plans, so that it cannot take the machine down
TEXT_BYTES = 64_000_000
STEPS_END = ("_s", "_peak_mb")
"""How the names of what is measured end; seconds of a schedule end in `computed`."""

C = TypeVar("C")


class InventedDigests:
    """Stands for the digests of files that do not exist. A .parquet larger than a unit has row groups that fill units of the full
    size, as the planner puts them together."""

    def __init__(self, n_bytes: dict[Path, int]) -> None:
        self._n_bytes = n_bytes
        self.seen: dict[Path, Any] = {}  # the signatures of files that were read

    def known(self, path: Path, word: str, kind: object) -> None:
        """No file was read before."""

    def fact(
        self, path: Path, word: str, kind: Callable[[str, list[tuple[ShardRange, str]]], C], find: Callable[[], C]
    ) -> C:
        digest = invented(str(path))
        n_bytes = self._n_bytes[path]
        if not word.startswith("parts"):
            return kind(digest, [])
        starts = range(0, n_bytes, UNIT_BYTES_MAX)
        sizes = [min(UNIT_BYTES_MAX, n_bytes - start) for start in starts]
        return kind(digest, [(ShardRange(4 * i, 4 * i + 4, n, i, 1), digest) for i, n in enumerate(sizes)])

    def save(self) -> None:
        """Nothing is kept."""


def main() -> None:
    parser = options("scale", __doc__)
    parser.add_argument("--only", choices=SCENARIOS, nargs="+", default=list(SCENARIOS), help="these corpora")
    parser.add_argument("--one", choices=SCENARIOS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print_planned(asked.one)
        return
    section = record.begin("scale", ("dvc", "pydantic", "msgspec"), asked)
    speed = speeds()
    print(json.dumps({"mb_per_s": speed}))
    for name in asked.only:
        n_files, n_bytes, machines, cores = SCENARIOS[name]
        found = module_result("benchmarks.scale", "--one", name, tells_progress=True)
        found |= stages_s(
            found.pop("batches_of_one_core", None), found.pop("batches_of_one_machine", None), speed, name
        )
        found = {key: value if isinstance(value, str) else round(value, 2) for key, value in found.items()}
        measured = [key for key in found if key.endswith(STEPS_END)]
        runs = {f"runs_{key}": [found[key]] for key in measured}
        runs |= {f"runs_{stage}_mb_per_s": [round(n, 1)] for stage, n in speed.items()}
        cell = {"corpus": name, "files": n_files, "file_bytes": n_bytes, "machines": machines, "cores": cores}
        cell |= {key: value for key, value in found.items() if key not in measured}
        section["cells"].append(cell | runs)
        print(json.dumps({name: found}), flush=True)
        record.keep(section, asked.record)  # the next corpus may not fit in memory


Batches = list[list[int]]


def stages_s(
    of_core: Batches | None, of_machine: Batches | None, speed: dict[str, float], name: str
) -> dict[str, float]:
    """The seconds of each stage by a list schedule, from the bytes of the units in batches for one core and for one machine. None
    where there is one machine, or no memory was left."""
    _, _, machines, cores = SCENARIOS[name]
    computed: dict[str, float] = {}
    for batches, one in ((of_core, "core"), (of_machine, "machine")):
        if batches is None:
            continue
        computed[f"n_batches_of_one_{one}"] = len(batches)
        for stage, mb_per_s in speed.items():
            in_s = [[n / 1e6 / mb_per_s for n in batch] for batch in batches]
            if one == "core":
                computed[f"{stage}_of_one_core_computed"] = makespan_s(map(sum, in_s), machines * cores)
                computed[f"{stage}_of_units_computed"] = makespan_s(chain.from_iterable(in_s), machines * cores)
            else:
                of_batches = [makespan_s(batch, cores) for batch in in_s]
                computed[f"{stage}_of_one_machine_computed"] = makespan_s(of_batches, machines)
    return computed


def print_planned(name: str) -> None:
    """Prints one line of JSON: what the process of its own measured, up to the end of its memory."""
    found: dict[str, Any] = {}
    try:
        planned(name, found)
    except MemoryError:
        found["out_of_memory_after"] = [key for key in found if key.endswith("_peak_mb")][-1][: -len("_peak_mb")]
    print(json.dumps(found))


def planned(name: str, found: dict[str, Any]) -> None:
    """Puts into `found` what the driver does for a corpus: seconds, bytes, and the peak of this process after each step.

    Raises MemoryError behind MEMORY_BYTES_MAX.
    """
    n_files, n_bytes, machines, cores = SCENARIOS[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    start_s = time.perf_counter()

    def step(what: str) -> None:
        nonlocal start_s
        found[f"{what}_s"] = time.perf_counter() - start_s
        found[f"{what}_peak_mb"] = peak_mb()
        print(f"{name}: {what}: {found[f'{what}_s']:.1f} s, {found[f'{what}_peak_mb']:,.0f} MB", file=sys.stderr)
        gc.collect()
        start_s = time.perf_counter()

    source = DocumentSource(None, (), Reading("text", "id"), "as_text", 1.0, None)
    names = [f"data/raw/{i // 1000:04}/part-{i:07}.parquet" for i in range(n_files)]
    shards = [Shard(Path("/corpus", one), one, n_bytes // n_files, source) for one in names]
    step("list")
    digests = InventedDigests({shard.path: shard.n_bytes for shard in shards})
    corpus = cut(shards, digests, UNIT_BYTES_MIN, UNIT_BYTES_MAX, 2)  # type: ignore[arg-type]
    step("cut")
    found["n_units"] = len(corpus.units)
    for one, n_slots in (("core", machines * cores), ("machine", machines)):
        if one == "machine" and machines == 1:
            continue
        tasks = [Task(name=unit.name, key=unit.name, unit=unit) for unit in corpus.units]
        batches = groups_of(tasks, tasks_max(n_slots))
        found[f"batches_of_one_{one}"] = [[task.n_bytes for task in batch] for batch in batches]
    step("batches")
    keys = [unit_key(stage="encode", content=content(unit, with_rows=True)) for unit in corpus.units]
    step("keys")
    manifest = manifest_of(shards, corpus.units, keys)
    step("manifest_make")
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as directory:
        write_manifest(manifest, Path(directory))
        del manifest
        found["manifest_mb"] = (Path(directory) / MANIFEST_FILE).stat().st_size / 1e6
        step("manifest_write")
        read_manifest(Path(directory))
        step("manifest_read")
    found["dvc_dir_mb"] = dvc_folder_bytes(corpus.units) / 1e6
    step("dvc_dir")


def manifest_of(shards: Sequence[Shard], units: Sequence[Unit], keys: Sequence[str]) -> Manifest:
    """A manifest of these units, as large as a real one."""
    numbers = {"n_documents": 10_000, "n_tokens": 10_000_000, "text_bytes": 50_000_000}
    outputs = []
    for unit, key in zip(units, keys, strict=True):
        digest = invented(unit.output)
        rows = [
            InputRows(
                name=piece.shard.name,
                first_row=piece.first_row,
                first_line=piece.first_line,
                n_documents=10_000,
                n_bad=0,
            )
            for piece in unit.pieces
        ]
        file = {"name": unit.output, "unit": key, "n_bytes": unit.n_bytes, "sha256": digest, "tokens_sha256": digest}
        outputs.append(OutputShard(**file, **numbers, rows=rows))
    return Manifest(
        engine="0.2.0",
        tokenizer_digest=invented("tokenizer"),
        params_digest=invented("params"),
        id_type="uint16",
        id_max=32767,
        end_of_document_id=0,
        special_tokens_in_text="as_text",
        **{key: len(units) * n for key, n in numbers.items()},
        n_bad=0,
        quarantine_sha256=invented("quarantine"),
        source=ReadingEntry(text_column="text", id_column="id", text_separator=None),
        inputs=[InputShard(name=one.name, n_bytes=one.n_bytes, sha256=invented(one.name)) for one in shards],
        shards=outputs,
    )


def dvc_folder_bytes(units: Sequence[Unit]) -> int:
    """The bytes of DVC's object for the folder of the dataset."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    tree = Tree()
    for unit in units:
        tree.add(tuple(unit.output.split("/")), None, HashInfo("md5", invented(unit.output)[:32]))
    return len(tree.as_bytes())


def makespan_s(seconds: Iterable[float], workers: int) -> float:
    """When the last task ends, if each worker takes the next task of the list as soon as it is free."""
    free = [0.0] * workers
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def speeds() -> dict[str, float]:
    """MB of text a second of processor time, of counting and encoding with one thread."""
    texts = documents(TEXT_BYTES)
    n_mb = bytes_of(texts) / 1e6

    def count() -> Any:
        counter = Counter("gpt2", 1024, threads=1)
        counter.update(texts)
        return counter.finish()

    counting = timed(count)
    tokenizer = train_vocab(counting.result, 32768, "gpt2", ["<|endoftext|>"], pair_count_min=2)
    encoding = timed(lambda: tokenizer.encode_batch(texts, threads=1))
    return {"count": n_mb / counting.cpu_s, "encode": n_mb / encoding.cpu_s}


def invented(text: str) -> str:
    """A digest that stands for one of a file."""
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()
