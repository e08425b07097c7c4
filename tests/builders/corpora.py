"""Corpora for whole builds, and projects that read them."""

import gzip
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.builders.shards import records
from tests.conftest import Project

TEXTS = [
    f"the {word} sat on the {place} number {i}"
    for i in range(60)
    for word in ("cat", "dog")
    for place in ("mat", "log")
]
KINDS = (
    "web/a.jsonl",
    "web/b.jsonl.gz",
    "web/c.jsonl.zst",
    "books/d.parquet",
    "books/e.arrow",
    "books/f.txt",
    "books/g.json",
    "books/i.csv",
    "web/h.ndjson.xz",
)


def write_corpus(folder: Path) -> None:
    """A file of each kind; the .jsonl, the .csv and the .parquet are cut into several units."""
    for name in KINDS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = TEXTS * 40 if name.endswith((".jsonl", ".csv", ".parquet")) else TEXTS
        rows = [{"id": f"{name}-{i}", "text": f"{text} of {name}"} for i, text in enumerate(texts)]
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(lines, mtime=0))
        elif name.endswith(".json"):
            path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        elif name.endswith(".xz"):
            path.write_bytes(lzma.compress(lines))
        elif name.endswith(".zst"):
            path.write_bytes(zstandard.compress(lines))
        elif name.endswith(".jsonl"):
            path.write_bytes(lines)
        elif name.endswith(".csv"):
            path.write_bytes(records([(row["id"], row["text"]) for row in rows]))
        elif name.endswith(".txt"):
            path.write_text("\n--\n".join(row["text"] for row in rows), encoding="utf-8")
        else:
            table = pa.Table.from_pylist([row | {"more": "x" * 50} for row in rows])
            if name.endswith(".parquet"):
                pq.write_table(table, path, row_group_size=2000)
            else:
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table, max_chunksize=50)


def read_corpus(project: Project, glob: str | list[str], deps: Sequence[str]) -> None:
    """Has a project read such a corpus, in units of 300 kB, and depend on these files and folders."""
    project.set(source__glob=glob, source__text_separator="\n--\n", source__unit_bytes_max=300_000)
    with project.edited("dvc.yaml") as pipeline:
        for stage in ("count", "encode", "validate"):
            kept = [one for one in pipeline["stages"][stage]["deps"] if one not in ("data/raw", "data/objects.json")]
            pipeline["stages"][stage]["deps"] = [*deps, *kept]


def weigh(project: Project, **weights: dict[str, Any]) -> None:
    """Gives each folder of data/raw a source of its name."""
    project.set(sources={name: {"glob": f"data/raw/{name}/*", **weight} for name, weight in weights.items()})
