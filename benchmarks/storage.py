"""make bench-storage: documents read from object storage beside the same files on this machine.

The server is s3s-fs, written in Rust, on 127.0.0.1 (`make test-storage` installs it). The files are 256 MB of JSON lines
and of Parquet, made of ../shared/corpus/english, and in the page cache. Three ways to read them take turns: files, tokenmill's own
reader on obstore, and fsspec with s3fs. Each gives the same bytes or rows, which is checked. Then the stages count and encode are
timed on files and on objects, each in a process of its own.

What this does not show: the time that a request takes on a network (obstore asks for three blocks of 2 MB ahead, s3fs
for one of 5 MB), and a server that does not share the machine's two cores with the reader.
"""

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json
from ruamel.yaml import YAML

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.harness import Cell, in_turns, options, recording
from benchmarks.process import Run, timed
from benchmarks.project import change_params, corpus_project, run_tokenmill
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shard_files import open_arrow
from tokenmill.corpus.shards import find_shards
from tokenmill.dataset.manifest import read_manifest
from tokenmill.storage.objects import put_file

_SERVER = record.ROOT / ".s3-server/bin/s3s-fs"
_KEY, _SECRET = "bench", "bench-secret"
_BLOCK_BYTES = 1 << 19  # as tokenmill.corpus.formats reads
_STAGES = ("count", "encode")


def main() -> None:
    parser = options("storage", __doc__, runs=5)
    parser.add_argument("--mb", type=int, default=256, help="of text in each file")
    parser.add_argument("--stage-runs", type=int, default=3)
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    asked = parser.parse_args()
    packages = ("obstore", "s3fs", "fsspec", "pyarrow")
    with recording("storage", packages, asked) as measured, s3_server(measured.folder / "server"):
        files = measured.folder / "corpus"
        _make_files(files, asked.shared, asked.mb * 1_000_000)
        for path in files.iterdir():
            put_file(path, f"s3://bucket/{path.name}")
        for name, read in (("stream.jsonl", _stream), ("rows.parquet", _rows)):
            measured.cells.extend(_reading(files, name, read, asked.runs))
        measured.cells.extend(_stages(measured.folder, files, asked.shared, asked.stage_runs))


@contextmanager
def s3_server(folder: Path) -> Iterator[None]:
    if not _SERVER.exists():
        sys.exit("benchmarks.storage: the server is missing. Run `make test-storage` first.")
    (folder / "bucket").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
    }
    keys = ["--access-key", _KEY, "--secret-key", _SECRET]
    server = subprocess.Popen(
        [str(_SERVER), "--host", "127.0.0.1", "--port", str(port), *keys, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


def _make_files(folder: Path, shared: Path, text_bytes: int) -> None:
    """A .jsonl and a .parquet of that much text each."""
    folder.mkdir()
    lines = folder / "stream.jsonl"
    n_bytes, n_rows = 0, 0
    with lines.open("wb") as file:
        while n_bytes < text_bytes:
            for shard in find_shards(folder, str(shared / "english/*.jsonl.zst")):
                for batch in read_batches(shard, Reading("text", None, None)):
                    ids = pa.array([f"{n_rows + i}" for i in range(len(batch.texts))])
                    table = pa.table({"id": ids, "text": batch.texts})
                    file.write(msgspec.json.Encoder().encode_lines(table.to_pylist()))
                    n_rows, n_bytes = n_rows + len(ids), n_bytes + batch.text_bytes
                    if n_bytes >= text_bytes:
                        break
    pq.write_table(read_json(lines), folder / "rows.parquet", row_group_size=4000, compression="zstd")


def _read_once(read: "Read", source: Callable[[], Any]) -> Run:
    return timed(lambda: read(source()))


Read = Callable[[Any], str]


def _reading(files: Path, name: str, read: Read, n_runs: int) -> list[Cell]:
    import s3fs

    [local] = find_shards(files, name)
    [stored] = find_shards(files, f"s3://bucket/{name}")
    other = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], key=_KEY, secret=_SECRET)
    ways: dict[str, Callable[[], Any]] = {
        "files": lambda: open_arrow(local),
        "obstore": lambda: open_arrow(stored),
        "s3fs": lambda: pa.PythonFile(other.open(f"bucket/{name}", "rb"), mode="r"),
    }
    runs = in_turns({way: partial(_read_once, read, source) for way, source in ways.items()}, n_runs)
    assert len({run.result for way in runs.values() for run in way}) == 1, f"{name}: the ways of reading do not agree"
    seconds = {way: [run.seconds for run in measured] for way, measured in runs.items()}
    for way, runs_s in seconds.items():
        share = median(seconds["files"]) / median(runs_s)
        print(f"{name} {way}: {local.n_bytes / median(runs_s) / 1e6:,.0f} MB/s, {share:.2f} of files", flush=True)
    return [
        {"what": name, "tool": way, "file_bytes": local.n_bytes, "answer": "same", "runs_s": record.seconds(runs_s)}
        for way, runs_s in seconds.items()
    ]


def _stream(file: pa.NativeFile) -> str:
    """The number of lines and bytes; a digest would take longer than reading."""
    n_lines = n_bytes = 0
    while block := file.read(_BLOCK_BYTES):
        n_lines, n_bytes = n_lines + block.count(b"\n"), n_bytes + len(block)
    return f"{n_lines} {n_bytes}"


def _rows(source: Any) -> str:
    """The number of rows and of their texts' bytes, read as tokenmill does."""
    n_rows = n_bytes = 0
    with pq.ParquetFile(source, pre_buffer=False, buffer_size=_BLOCK_BYTES) as file:
        for batch in file.iter_batches(1024, columns=["text"], use_threads=False):
            n_rows, n_bytes = n_rows + len(batch), n_bytes + batch.column(0).nbytes
    return f"{n_rows} {n_bytes}"


def _stages(folder: Path, files: Path, shared: Path, n_runs: int) -> list[Cell]:
    projects = {"files": str(files / "rows.parquet"), "obstore": "s3://bucket/rows.parquet"}
    for way, glob in projects.items():
        project = folder / way
        corpus_project(project, "english", shared)
        _read_from(project, glob, str(files) if way == "files" else "data/objects.json")
        run_tokenmill(project, "build", "-q")
    digests = {way: hashlib.sha256(_shards(folder / way)).hexdigest() for way in projects}
    assert len(set(digests.values())) == 1, "the builds do not agree"
    builds = {
        (stage, way): partial(run_tokenmill, folder / way, "build", "-q", "--only", stage, "--force")
        for stage, way in product(_STAGES, projects)
    }
    seconds = {build: [run.seconds for run in runs] for build, runs in in_turns(builds, n_runs).items()}
    for (stage, way), runs in seconds.items():
        share = median(seconds[stage, "files"]) / median(runs)
        print(f"stage {stage} {way}: {median(runs):.1f} s, {share:.2f} of files", flush=True)
    return [
        {"what": f"stage {stage}", "tool": way, "answer": "same", "runs_s": record.seconds(runs)}
        for (stage, way), runs in seconds.items()
    ]


def _shards(project: Path) -> bytes:
    return " ".join(one.sha256 for one in read_manifest(project / "data/tokens").shards).encode()


def _read_from(project: Path, glob: str, dependency: str) -> None:
    change_params(project, {}, "source", {"glob": glob, "id_column": "id", "text_column": "text"})
    yaml, path = YAML(typ="safe", pure=True), project / "dvc.yaml"
    content: Any = yaml.load(path.read_text(encoding="utf-8"))
    for stage in (*_STAGES, "validate"):
        deps = content["stages"][stage]["deps"]
        content["stages"][stage]["deps"] = [dependency, *(dep for dep in deps if dep != "data/raw")]
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


if __name__ == "__main__":
    main()
