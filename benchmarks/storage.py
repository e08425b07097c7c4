"""make bench-storage: documents read from object storage beside the same files on this machine.

The server is s3s-fs, written in Rust, on 127.0.0.1 (`make test-storage` installs it). The files are 256 MB of JSON lines
and of Parquet, made of ../shared/corpus/english, and in the page cache. Three ways to read them take turns: files, tokenmill's own
reader on obstore, and fsspec with s3fs. Each gives the same bytes or rows, which is checked. Then the stages count and encode are
timed on files and on objects, each in a process of its own.

What this does not show: the time that a request takes on a network (obstore asks for three blocks of 2 MB ahead, s3fs
for one of 5 MB), and a server that does not share the machine's two cores with the reader.
"""

import argparse
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json
from ruamel.yaml import YAML

from benchmarks import record
from benchmarks.corpus import ROOT_CORPUS
from benchmarks.plan import make_project
from benchmarks.verify import run
from tokenmill.config.sources import Reading
from tokenmill.corpus.shard_files import open_arrow
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.dataset.manifest import read_manifest
from tokenmill.storage.objects import put_file

_SERVER = record.ROOT / ".s3-server/bin/s3s-fs"
_KEY, _SECRET = "bench", "bench-secret"
_BLOCK_BYTES = 1 << 19  # as tokenmill.corpus.formats reads
_STAGES = ("count", "encode")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--mb", type=int, default=256, help="of text in each file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stage-runs", type=int, default=3)
    parser.add_argument("--shared", type=Path, default=ROOT_CORPUS, help="the folder of the corpora")
    record.add_option(parser)
    asked = parser.parse_args()
    section = record.begin("storage", ("obstore", "s3fs", "fsspec", "pyarrow"), asked)
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as folder, s3_server(Path(folder) / "server"):
        files = Path(folder) / "corpus"
        _make_files(files, asked.shared, asked.mb * 1_000_000)
        for path in files.iterdir():
            put_file(path, f"s3://bucket/{path.name}")
        for name, read in (("stream.jsonl", _stream), ("rows.parquet", _rows)):
            section["cells"] += _reading(files, name, read, asked.runs)
        section["cells"] += _stages(Path(folder), files, asked.shared, asked.stage_runs)
    record.keep(section, asked.record)


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
    from tokenmill.corpus.reader import read_batches

    folder.mkdir()
    lines = folder / "stream.jsonl"
    n_bytes, n_rows = 0, 0
    with lines.open("wb") as file:
        while n_bytes < text_bytes:
            for shard in find_shards(folder, str(shared / "english/*.jsonl.zst")):
                for batch in read_batches(shard, Reading("text", None, None)):
                    ids = pa.array([f"{n_rows + i}" for i in range(len(batch.texts))])
                    table = pa.table({"id": ids, "text": batch.texts})
                    file.write("".join(_as_lines(table)).encode())
                    n_rows, n_bytes = n_rows + len(ids), n_bytes + batch.text_bytes
                    if n_bytes >= text_bytes:
                        break
    pq.write_table(read_json(lines), folder / "rows.parquet", row_group_size=4000, compression="zstd")


def _as_lines(table: pa.Table) -> Iterator[str]:
    import msgspec

    for row in table.to_pylist():
        yield msgspec.json.encode(row).decode() + "\n"


Read = Callable[[Any], str]


def _reading(files: Path, name: str, read: Read, n_runs: int) -> list[dict[str, Any]]:
    import s3fs

    [local] = find_shards(files, name)
    [stored] = find_shards(files, f"s3://bucket/{name}")
    other = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], key=_KEY, secret=_SECRET)
    ways: dict[str, Callable[[], Any]] = {
        "files": lambda: _opened(local, name),
        "obstore": lambda: _opened(stored, name),
        "s3fs": lambda: pa.PythonFile(other.open(f"bucket/{name}", "rb"), mode="r"),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    answers = set()
    for _ in range(n_runs):
        for way, source in ways.items():
            start_s = time.perf_counter()
            answers.add(read(source()))
            seconds[way].append(time.perf_counter() - start_s)
    assert len(answers) == 1, f"{name}: the ways of reading do not agree"
    n_bytes = local.n_bytes
    for way, runs in seconds.items():
        share = median(seconds["files"]) / median(runs)
        print(f"{name} {way}: {n_bytes / median(runs) / 1e6:,.0f} MB/s, {share:.2f} of files", flush=True)
    return [
        {"what": name, "tool": way, "file_bytes": n_bytes, "answer": "same", "runs_s": record.seconds(runs)}
        for way, runs in seconds.items()
    ]


def _opened(shard: Shard, name: str) -> Any:
    return open_arrow(shard)


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


def _stages(folder: Path, files: Path, shared: Path, n_runs: int) -> list[dict[str, Any]]:
    projects = {"files": str(files / "rows.parquet"), "obstore": "s3://bucket/rows.parquet"}
    seconds: dict[tuple[str, str], list[float]] = {(stage, way): [] for stage in _STAGES for way in projects}
    for way, glob in projects.items():
        project = folder / way
        make_project(project, "english", shared, "inline")
        _read_from(project, glob, str(files) if way == "files" else "data/objects.json")
        run(project, "build", "-q")
    digests = {way: hashlib.sha256(_shards(folder / way)).hexdigest() for way in projects}
    assert len(set(digests.values())) == 1, "the builds do not agree"
    for _ in range(n_runs):
        for way in projects:
            for stage in _STAGES:
                seconds[stage, way].append(run(folder / way, "build", "-q", "--only", stage, "--force"))
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
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    for name in ("params.yaml", "dvc.yaml"):
        content: Any = yaml.load((project / name).read_text(encoding="utf-8"))
        if name == "params.yaml":
            content["source"] |= {"glob": glob, "id_column": "id", "text_column": "text"}
        for stage in (*_STAGES, "validate") if name == "dvc.yaml" else ():
            deps = content["stages"][stage]["deps"]
            content["stages"][stage]["deps"] = [dependency, *(one for one in deps if one != "data/raw")]
        with (project / name).open("w", encoding="utf-8") as file:
            yaml.dump(content, file)


if __name__ == "__main__":
    main()
