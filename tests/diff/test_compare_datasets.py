"""`tokenmill diff` shows what differs in two datasets, by their document indexes."""

import hashlib
import itertools
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.in_process import tokenmill
from tests.builders.s3_server import client, environment, moto
from tests.builders.teams import build, cli, commit, make_team
from tests.conftest import DOCUMENTS, Project, make_project
from tokenmill.dataset.document_index import index_schema
from tokenmill.dataset.manifest import Manifest
from tokenmill.features.share.upload import upload
from tokenmill.report import document_changes as comparing
from tokenmill.report.document_changes import IndexedDocuments, document_changes
from tokenmill.storage import objects
from tokenmill.versioning.published_report import published_report
from tokenmill_reader.regular_files import sha256_file

Document = tuple[str | int, str, str]
"""A document's id, text and split."""

SOURCES = {"web/a.jsonl": ["one", "two", "three", "four"], "books/b.jsonl": ["five", "six"]}


def indexed(path: Path, documents: list[Document], shard: str = "data/raw/a.jsonl") -> IndexedDocuments:
    """A dataset of these documents that is a manifest and an index alone."""
    schema = index_schema(has_names=isinstance(documents[0][0], str), has_split=True)
    rows = [
        {**dict.fromkeys(schema.names, 0), "id": id, "shard": shard, "row": row, "file": "a", "split": split}
        | {"sha256": hashlib.sha256(text.encode()).digest()}
        for row, (id, text, split) in enumerate(documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=3)
    numbers = dict.fromkeys(("n_tokens", "text_bytes", "n_bad", "id_max"), 0) | {"n_documents": len(rows)}
    piece = {"name": shard, "first_row": 0, "first_line": 1, "n_documents": len(rows), "n_bad": 1}
    file = {"name": "documents/a", "unit": path.name, "n_bytes": 0, "sha256": "", "rows": [piece]}
    of_files = ("split_group", "shuffle", "pack", "pad_id")
    table = {"name": "documents.parquet", "n_bytes": path.stat().st_size, "sha256": sha256_file(path)}
    source = {"text_column": "text", "id_column": "id" if isinstance(documents[0][0], str) else None}
    content = {
        **dict.fromkeys(("engine", "tokenizer_digest", "params_digest", "quarantine_sha256"), ""),
        "end_of_document_id": None,
        **numbers,
        "id_type": "uint16",
        "special_tokens_in_text": "as_text",
        "source": source | {"text_separator": None},
        "inputs": [{"name": shard, "n_bytes": 0, "sha256": ""}],
        "shards": [file | {key: numbers[key] for key in ("n_documents", "n_tokens", "text_bytes")}],
        "tables": [table],
        "files": {"file_bytes": 1, "splits": {"x": 0.5, "y": 0.5}} | dict.fromkeys(of_files),
    }
    return IndexedDocuments(Manifest.model_validate(content), path)


def naive(one: list[Document], other: list[Document], has_ids: bool) -> dict[str, int]:
    """The numbers of `document_changes`, by matching documents one by one."""
    found: Counter[str] = Counter()
    for kind, n_parts in (("unchanged", 3), ("moved", 2), *[("changed", 1)] * has_ids):
        for document in list(one):
            keys = [*([document[0]] if has_ids else [0]), *document[1:]][:n_parts]
            same = [mine for mine in other if [*([mine[0]] if has_ids else [0]), *mine[1:]][:n_parts] == keys]
            if same:
                one.remove(document)
                other.remove(same[0])
                found[kind] += 1
    kinds = ("unchanged", "moved", *["changed"] * has_ids)
    return {kind: found[kind] for kind in kinds} | {"removed": len(one), "added": len(other)}


@pytest.mark.parametrize("has_ids", [True, False])
def test_documents_are_matched_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ids: bool) -> None:
    monkeypatch.setattr(comparing, "_ROWS_MAX", 4)  # several parts
    draw = random.Random(1)
    for i in range(12):
        ids = "abcd" if has_ids else range(9)
        all_of = [*itertools.product(ids, "st", "xy")]
        sides = [draw.choices(all_of, k=draw.randint(1, 9)) for _ in range(2)]
        one, other = (indexed(tmp_path / f"{i}-{k}", side) for k, side in enumerate(sides))
        found = document_changes(one, other)
        assert found.numbers == naive(*map(list, sides), has_ids), sides
        for kind, examples in found.examples.items():
            assert bool(examples) == bool(found.numbers[kind])
            assert all((one["one"] is None) == (kind == "added") for one in examples)


def test_plain_text_has_no_ids_of_its_own(tmp_path: Path) -> None:
    one = indexed(tmp_path / "one", [("0", "s", "x"), ("1", "t", "x")], "data/raw/a.txt")
    other = indexed(tmp_path / "other", [("0", "new", "x"), ("1", "s", "x")], "data/raw/a.txt")
    assert list(document_changes(one, other).numbers.values()) == [1, 0, 0, 1, 1]  # none is changed


def changed(project: Project) -> None:
    """One document gets another text, one goes, one comes."""
    path = project.root / "data/raw/web/a.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0]["text"] = "another text"
    path.unlink()
    rows = [*rows[:2], *rows[3:], {"id": "new", "text": "a document that is new"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_datasets_of_folders_are_compared(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", DOCUMENTS | SOURCES)
    project.set(source__id_column="id", encode__splits={"train": 0.999, "held": 0.001})
    project.build()
    old = tmp_path / "old"
    shutil.copytree(project.root / "data", old)
    done = cli(project, "diff", str(old), "data/tokens")
    assert (done.returncode, done.stdout[:17], done.stdout.count("\n")) == (0, "the same dataset:", 1)
    changed(project)
    project.set(encode__splits={"train": 0.001, "held": 0.999})
    project.build()
    done = cli(project, "diff", str(old), ".", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["result"]
    numbers, examples = found["documents"], found["documents"].pop("examples")
    assert numbers == {"unchanged": 0, "moved": 10, "changed": 1, "removed": 1, "added": 1}
    assert [one["other"]["id"] for one in examples["added"]] == ["new"]
    assert [one["one"]["id"] for one in examples["removed"]] == ["web/a.jsonl-2"]
    assert [one["other"]["id"] for one in examples["changed"]] == ["web/a.jsonl-0"]
    assert all({one["one"]["split"], one["other"]["split"]} == {"train", "held"} for one in examples["moved"])
    sources = {name: [one["n_documents"] for one in pair] for name, pair in found["sources"].items()}
    assert sources == {"(root)": [6, 6], "books": [2, 2], "web": [4, 4]}
    assert found["measures"]["documents"] == [12, 12] and found["parameters"]["encode.splits.held"] == [0.001, 0.999]
    project.set(source__id_column=None)
    project.build()
    said = cli(project, "diff", str(old), ".").stdout
    assert "documents, by text: " in said and "  changed" not in said and 'source.id_column: "id" → null' in said
    assert ["web:", "documents", "4", "4", "0"] in [line.split() for line in said.splitlines()]


def test_what_cannot_be_compared_is_one_clear_error(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {"a.jsonl": ["the cat sat on the mat"]})
    project.build()
    bare = tmp_path / "bare"
    shutil.copytree(project.root / "data/tokens", bare / "tokens")
    manifest = bare / "tokens/manifest.json"
    content = manifest.read_text(encoding="utf-8")
    manifest.write_text(content.replace('"digest": "', '"digest": "0'), encoding="utf-8")
    for arguments, said in {
        (
            "data/tokens",
            "data/tokenizer",
        ): "data/tokenizer: expected a dataset, as data/tokens is one; found a tokenizer.",
        ("data/raw", "data/tokens"): "data/raw: expected a dataset, as data/tokens is one; found a folder without",
        ("data/raw", "data/raw"): "Nor is data/raw a dataset: it has no manifest.json.",
        (
            str(bare),
            ".",
        ): f"{bare}/tables/documents.parquet: expected the dataset's document index; nothing is there. Copy",
        (".", ".", "--corpus", "data/raw/*"): "--corpus: found with two datasets; it is for tokenizers.",
    }.items():
        done = cli(project, "diff", *arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    (bare / "tables").mkdir()
    (bare / "tables/documents.parquet").write_bytes(b"PAR1")
    done = cli(project, "diff", str(bare), ".")
    assert done.returncode == 2 and "not the file that the manifest names: found 4 bytes" in done.stderr


@pytest.mark.slow
def test_published_versions_are_compared_and_the_page_says_what_changed(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", SOURCES)
    project.set(source__id_column="id", run__report_page=True)
    team = make_team(project)
    for name in ("dataset@v1.0.0", "tokenizer@v1.0.0"):
        assert cli(project, "publish", name).returncode == 0
    changed(project)
    build(project)
    page = (project.root / "data/report/report.html").read_text(encoding="utf-8")
    rows = page.partition("<th>since dataset@v1.0.0</th>")[2].partition("</table>")[0]
    assert '<td>unchanged</td><td class="n">4</td>' in rows and '<td>removed</td><td class="n">1</td>' in rows
    project.dvc("add", "data/raw")
    commit(project)
    assert cli(project, "publish", "dataset@v1.1.0").returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = tokenmill(elsewhere, "diff", "dataset@v1.0.0", "dataset@v1.1.0", "--from", str(team.bare), "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["result"]
    del found["documents"]["examples"]
    assert found["documents"] == {"unchanged": 4, "moved": None, "changed": 1, "removed": 1, "added": 1}
    assert found["measures"]["bytes_per_token.overall"][0] != found["measures"]["bytes_per_token.overall"][1]
    done = cli(project, "diff", "dataset@v1.0.0", "tokenizer@v1.0.0")
    assert "tokenizer@v1.0.0: expected a dataset, as dataset@v1.0.0 is one" in done.stderr
    with moto() as server, environment(server, tmp_path / "aws"):
        client().create_bucket(Bucket="bucket")
        url = upload(project.root, "s3://bucket/sets").url
        found = json.loads(cli(project, "diff", "dataset@v1.0.0", url, "--json").stdout)["result"]
        assert found["documents"]["changed"] == 1 and not found["measures"]  # no report is uploaded
        objects.delete([f"{url}/tables/documents.parquet"])
        done = cli(project, "diff", "dataset@v1.0.0", url)
        assert f"{url}/tables/documents.parquet: expected the dataset's document index" in done.stderr
    assert published_report(project.root).dataset is not None
    shutil.rmtree(project.root / ".dvc/cache")
    assert published_report(project.root).dataset is None


def test_parameters_are_those_of_named_sources_and_filters_and_no_others(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", DOCUMENTS | SOURCES)
    globs = {"web": ["data/raw/web/*"], "rest": ["data/raw/*.jsonl", "data/raw/books/*"]}
    project.set(sources={name: {"glob": glob} for name, glob in globs.items()}, source__min_chars=2)
    project.build()
    old = tmp_path / "old"
    shutil.copytree(project.root / "data", old)
    project.set(source__min_chars=3)
    project.build()
    parameters = json.loads(cli(project, "diff", str(old), ".", "--json").stdout)["result"]["parameters"]
    assert parameters == {"source.min_chars": [2, 3]}
