"""Documents that source.drop names are left out of every output, and a new line makes only the units anew that have them."""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import DOCUMENTS, Project
from tokenmill.corpus.filter import Left, left_out
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests, text_keys
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import CorpusError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_drop(project: Project, *lines: Sequence[str], columns: Sequence[str] = ("id", "digest", "reason")) -> None:
    with (project.root / "drop.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *lines])


def dropped(project: Project) -> list[tuple[Any, ...]]:
    rows = pq.read_table(project.root / "data/tables/dropped.parquet").to_pylist()
    return [(row["shard"], row["row"], row["id"], row["reason"], row["by"]) for row in rows]


def ids(project: Project) -> list[str]:
    found: list[str] = pq.read_table(project.root / "data/tables/documents.parquet")["id"].to_pylist()
    return found


@pytest.fixture
def dropping(project: Project) -> Project:
    """A project with an empty list."""
    project.set_drop("drop.csv")
    write_drop(project)
    project.build()
    return project


@pytest.mark.slow
def test_a_line_makes_only_the_units_anew_that_have_the_document(dropping: Project) -> None:
    assert dropped(dropping) == []
    dropping.dvc("freeze", "train-vocab")  # another tokenizer would redo every unit
    write_drop(dropping, ("a.jsonl-1", "", "takedown"))
    said = dropping.build().stderr
    for stage in ("count", "encode", "validate"):
        assert f"{stage}: 1 of 2 units to do" in said, said
    assert "documents: 0 of 2 units to do" in said
    assert "encode: left out 1 document by source.drop: takedown 1" in said
    assert dropped(dropping) == [("data/raw/a.jsonl", 1, "a.jsonl-1", "takedown", "id")]
    assert "a.jsonl-1" not in ids(dropping) and len(ids(dropping)) == 5
    write_drop(dropping, ("a.jsonl-1", "", "takedown"), ("nobody", "", "takedown"), ("", digest("nothing"), "leak"))
    said = dropping.build().stderr
    for stage in ("count", "encode", "validate"):  # lines that match nothing redo nothing
        assert f"{stage}: 0 of 2 units to do" in said, said
    assert "encode: 2 of the 3 lines of source.drop name no document; the first: drop.csv, line 3" in said
    write_drop(dropping, ("a.jsonl-1", "", "takedown"), ("a.jsonl-0", digest(DOCUMENTS["a.jsonl"][1]), "of two"))
    said = dropping.build().stderr
    assert "encode: 1 of the 2 lines of source.drop name no document; the first: drop.csv, line 3" in said
    write_drop(dropping, ("a.jsonl-1", "", "takedown"), ("", digest(DOCUMENTS["b.jsonl"][1]), "leak"))
    said = dropping.build().stderr
    for stage in ("count", "encode", "validate"):
        assert f"{stage}: 1 of 2 units to do" in said, said
    manifest = read_manifest(dropping.root / "data/tokens")
    assert manifest.n_dropped == {"leak": 1, "takedown": 1}
    assert [[rows.n_dropped for rows in shard.rows] for shard in manifest.shards] == [[1], [1]]
    report = json.loads((dropping.root / "data/report/report.json").read_text())
    assert (report["documents"], report["documents_dropped"]) == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("unit_bytes_min", [0, 1_000_000])
def test_outputs_are_those_of_a_corpus_without_the_documents(
    new_project: Callable[[str], Project], unit_bytes_min: int
) -> None:
    one, other = new_project("one"), new_project("other")
    texts = [f"document {i} {'é' * (i % 7)}" for i in range(40)]
    gone = {0, 7, 8, 39}
    for project in (one, other):
        project.set(source__unit_bytes_min=unit_bytes_min)
    one.write("c.jsonl", texts)
    path = other.write("c.jsonl", texts)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for i, line in enumerate(lines) if i not in gone))
    one.set_drop("drop.csv")
    write_drop(one, *((f"c.jsonl-{i}", "", "duplicate") for i in sorted(gone)))
    for project in (one, other):
        project.build()
    names = [name for name in one.outputs() if name.endswith(".parquet") and "tables/d" not in name]
    assert len(names) > 4
    for name in ("data/counts/report.json", "data/tokenizer/tokenizer.json", "data/tables/token_bytes.npy", *names):
        assert one.outputs()[name] == other.outputs()[name], name
    index = pq.read_table(one.root / "data/tables/documents.parquet")
    assert [row["row"] for row in index.to_pylist() if row["shard"].endswith("c.jsonl")] == [
        i for i in range(40) if i not in gone
    ]
    samples = json.loads((one.root / "data/counts/provenance.json").read_text())["samples"]
    assert not {f"corpus/data/raw/c.jsonl/{i}" for i in gone} & samples.keys()


def test_all_documents_of_a_file_may_be_left_out_and_bad_ones_beside_them(project: Project) -> None:
    project.write("c.jsonl", ["one", "two"])
    with (project.root / "data/raw/a.jsonl").open("a") as file:
        file.write('{"id": "bad"}\n{"id": "last", "text": ""}\n')
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=5)
    project.set_drop("drop.csv")
    write_drop(project, ("c.jsonl-0", "", "x"), ("", digest("two"), "y"), ("", digest(""), "empty"))
    project.build()
    assert dropped(project) == [
        ("data/raw/a.jsonl", 2, "a.jsonl-2", "empty", "digest"),
        ("data/raw/a.jsonl", 4, "last", "empty", "digest"),
        ("data/raw/c.jsonl", 0, "c.jsonl-0", "x", "id"),
        ("data/raw/c.jsonl", 1, "c.jsonl-1", "y", "digest"),
    ]
    assert read_manifest(project.root / "data/tokens").n_bad == 1
    assert pq.read_table(project.root / "data/tokens/documents/c.jsonl.parquet").num_rows == 0
    assert project.cli("verify").returncode == 0


def test_a_line_with_id_and_digest_names_documents_that_have_both(project: Project) -> None:
    project.set_drop("drop.csv")
    [text, *_] = DOCUMENTS["a.jsonl"]
    write_drop(project, ("a.jsonl-0", digest(text), "right"), ("a.jsonl-1", digest(text), "wrong"))
    project.build()
    assert dropped(project) == [("data/raw/a.jsonl", 0, "a.jsonl-0", "right", "id and digest")]


def test_a_parquet_file_and_integer_ids(project: Project) -> None:
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    table = pa.table({"id": pa.array([10, 11, 12], pa.int32()), "text": ["aa bb", "cc dd", "ee"]})
    pq.write_table(table, project.root / "data/raw/n.parquet")
    project.set_drop("drop.parquet")
    lines = pa.table({"id": pa.array([11, None]), "digest": [None, digest("ee")], "reason": ["takedown", "leak"]})
    pq.write_table(lines, project.root / "drop.parquet")
    project.set(train_vocab__vocab_size=260)
    project.build()
    assert dropped(project) == [
        ("data/raw/n.parquet", 1, "11", "takedown", "id"),
        ("data/raw/n.parquet", 2, "12", "leak", "digest"),
    ]
    assert ids(project) == ["10"]


def test_documents_without_ids_are_named_by_digest_alone(project: Project) -> None:
    project.set(source__id_column=None)
    project.set_drop("drop.csv")
    write_drop(project, ("", digest(DOCUMENTS["a.jsonl"][0]), "leak"))
    project.build()
    assert dropped(project) == [("data/raw/a.jsonl", 0, None, "leak", "digest")]
    assert pq.read_table(project.root / "data/tokens/documents/a.jsonl.parquet")["id"].to_pylist() == [1, 2]
    assert project.cli("verify").returncode == 0
    write_drop(project, ("5", "", "leak"))
    done = project.cli("build")
    assert done.returncode == 2 and "drop.csv, line 2: column id: found '5'" in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "name,reason\nx,y\n",
            "drop.csv: expected the columns id, digest (or one of them) and reason; found name, reason",
        ),
        ("", "found none"),
        ("reason\nx\n", "found reason"),
        ("id,reason\nx,y\n\n,z\n", "drop.csv, line 4: columns id and digest"),
        ("id,reason\nx,\n", "drop.csv, line 2: column reason"),
        ("digest,reason\nabc,x\n", "drop.csv, line 2: column digest: expected a sha256"),
        ('id,reason\n"x\ny",a\nz,b,c\n', "drop.csv, line 4: expected 2 values; found 3"),
        ('id,reason\n"x"y,a\n', "drop.csv, line 2: expected CSV"),
    ],
)
def test_a_bad_file_is_one_error_with_the_line(project: Project, content: str, words: str) -> None:
    (project.root / "drop.csv").write_text(content)
    with pytest.raises(CorpusError) as raised:
        DropList.read(project.root, "drop.csv", has_ids=True)
    assert words in str(raised.value) and raised.value.code == "TM211"


def test_other_bad_files_are_errors_too(project: Project) -> None:
    def error(name: str) -> str:
        with pytest.raises(CorpusError) as raised:
            DropList.read(project.root, name, has_ids=True)
        return str(raised.value)

    assert "found none" in error("missing.csv")
    (project.root / "drop.csv").write_bytes(b"id,reason\n" + b"some id,some reason\n" * 1000 + b"\xff,x\n")
    assert "drop.csv, line 1002: expected UTF-8; found 0xff" in error("drop.csv")
    (project.root / "drop.txt").write_text("x")
    assert ".csv or .parquet" in error("drop.txt")
    (project.root / "drop.parquet").write_bytes(b"PAR1")
    assert "drop.parquet" in error("drop.parquet")
    path = project.root / "drop.parquet"
    pq.write_table(pa.table({"id": ["a", "b"], "reason": ["x", None]}), path)
    assert "drop.parquet, row 1: column reason" in error("drop.parquet")


def test_a_file_that_dvc_would_not_see_change_is_an_error(project: Project) -> None:
    project.set(source__drop="drop.csv")
    done = project.cli("build")
    assert done.returncode == 2 and "TM211" in done.stderr
    write_drop(project)
    for command in ("plan", "build"):
        done = project.cli(command)
        assert done.returncode == 2
        assert "TM107" in done.stderr and "Put drop.csv into the deps of count, encode, validate" in done.stderr


@pytest.mark.slow
def test_a_list_may_be_added_to_a_project_that_was_built(project: Project) -> None:
    project.build()
    project.set_drop("drop.csv")
    write_drop(project, ("a.jsonl-1", "", "takedown"))
    plan = json.loads(project.cli("plan", "--json").stdout)["result"]
    assert plan["stages"][0]["n_units_todo"] == 2, "documents that were not read for the list may all be in it"
    project.build()
    assert "a.jsonl-1" not in ids(project)
    assert project.run("dvc", "status").stdout.strip() == "Data and pipelines are up to date."


@pytest.mark.slow
def test_dvc_agrees(dropping: Project) -> None:
    write_drop(dropping, ("a.jsonl-1", "", "takedown"))
    assert dropping.cli("status").returncode == 1
    done = dropping.run("dvc", "repro")
    assert done.returncode == 0, done.stderr
    outputs = dropping.outputs()
    assert "a.jsonl-1" not in ids(dropping)
    assert dropping.run("dvc", "status").stdout.strip() == "Data and pipelines are up to date."
    done = dropping.cli("status")
    assert done.returncode == 0, done.stdout
    dropping.build("--force")
    assert dropping.outputs() == outputs


@pytest.mark.slow
def test_units_are_taken_over_from_a_dataset_with_its_dropped_documents(dropping: Project) -> None:
    write_drop(dropping, ("a.jsonl-1", "", "takedown"), ("", digest(DOCUMENTS["b.jsonl"][2]), "leak"))
    dropping.build()
    before = dropping.outputs()
    shutil.rmtree(dropping.root / ".tokenmill/units")
    dropping.write("c.jsonl", ["new"])
    done = dropping.build()
    assert "encode: 2 units taken over" in done.stderr
    (dropping.root / "data/raw/c.jsonl").unlink()
    shutil.rmtree(dropping.root / ".dvc/cache/runs")
    done = dropping.build()
    assert dropping.outputs() == before


def test_verify_finds_a_document_that_the_list_names(dropping: Project) -> None:
    """The list got a line that no build has seen, and one is gone."""
    write_drop(dropping, ("a.jsonl-1", "", "takedown"))
    dropping.build()
    assert dropping.cli("verify").returncode == 0
    write_drop(dropping, ("b.jsonl-2", "", "takedown"))
    done = dropping.cli("verify")
    assert done.returncode == 1
    assert (
        "documents/b.jsonl.parquet: data/raw/b.jsonl: row 2: the document 'b.jsonl-2' is in the dataset" in done.stdout
    )
    assert "drop.csv, line 2" in done.stdout
    assert "data/raw/a.jsonl: row 1: no line of drop.csv names this document" in done.stdout


def test_a_place_that_verify_cannot_look_into_is_not_called_clean(dropping: Project) -> None:
    write_drop(dropping, ("b.jsonl-2", "", "takedown"))
    left, clean = left_of(dropping)
    assert left["the input files"].startswith("some have documents that the list names")
    assert "the input files" not in clean and "git's history" in clean
    (dropping.root / ".git/config").write_text("[broken", encoding="utf-8")
    (dropping.root / "data/tables/dropped.parquet").write_bytes(b"broken")
    (dropping.root / "data/uploads.json").write_text("broken", encoding="utf-8")
    write_drop(dropping, ("a.jsonl-9", "", "takedown"))
    found = json.loads(dropping.cli("verify", "--json").stdout)["result"]["takedown"]
    unseen = "; ".join(found["unseen"])
    for place in ("the input files (", "git's history (", "published versions (", "uploaded datasets ("):
        assert place in unseen, unseen
    assert not {"the input files", "git's history", "published versions", "uploaded datasets"} & {*found["clean"]}


def left_of(project: Project) -> tuple[dict[str, str], list[str]]:
    """What verify says is left of dropped documents, by place, and the clean places."""
    found = json.loads(project.cli("verify", "--json").stdout)["result"]["takedown"]
    return {one["place"]: one["what"] for one in found["left"]}, found["clean"]


@pytest.mark.slow
def test_verify_names_what_is_left_of_a_document_until_all_of_it_is_removed(project: Project) -> None:
    project.build()
    assert "takedown" not in json.loads(project.cli("verify", "--json").stdout)["result"]
    golden = json.loads((project.root / "data/tokenizer/golden.json").read_bytes())
    name = next(one["name"] for one in golden["vectors"] if one["name"].startswith("corpus/data/raw/b.jsonl"))
    row = int(name.rpartition("/")[2])
    project.dvc("freeze", "train-vocab")
    project.dvc("remote", "add", "storage", "../remote")
    for command in (
        ["git", "add", "-f", "data/raw"],
        ["git", "commit", "-qm", "documents"],
        ["git", "tag", "dataset@v1.0.0"],
    ):
        assert project.run("git", "-c", "user.name=a", "-c", "user.email=a@b", *command[1:]).returncode == 0
    project.set_drop("drop.csv")
    write_drop(project, (f"b.jsonl-{row}", "", "takedown"))
    project.build()
    left, clean = left_of(project)
    assert left["data/raw/b.jsonl"] == f"the input file has 1 of the documents, the first in row {row}"
    assert left["data/tokenizer/golden.json"] == "1 of its samples are beginnings of the documents"
    assert left[".tokenmill/units"].startswith(
        "the documents are in 2 units of earlier builds, and 1 earlier file of counts may"
    )
    assert "at least 1 of which has the documents" in left["DVC's cache (.dvc/cache)"]
    assert left["git's history"] == "commits have data/raw/a.jsonl, data/raw/b.jsonl"
    assert left["published versions"] == "dataset@v1.0.0"
    assert "not looked into: the DVC remote storage (`dvc gc" in project.cli("verify").stdout
    assert "data/counts/provenance.json" in clean
    path = project.root / "data/raw/b.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:row] + lines[row + 1 :]), encoding="utf-8")
    project.dvc("unfreeze", "train-vocab")
    project.build()
    shutil.rmtree(project.root / ".tokenmill/units")
    project.dvc("gc", "--workspace", "--force")
    left, clean = left_of(project)
    assert left.keys() == {"git's history", "published versions"}
    for place in ("data/tokenizer/golden.json", ".tokenmill/units", "DVC's cache (.dvc/cache)", "the input files"):
        assert place in clean
    assert project.cli("verify").returncode == 0


def test_a_rejected_document_with_an_id_of_the_list_is_left_in_the_quarantine(dropping: Project) -> None:
    with (dropping.root / "data/raw/a.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "secret-1", "text": 17}\n')
    dropping.set(source__on_bad_document="quarantine", source__bad_documents_max=100)
    write_drop(dropping, ("secret-1", "", "takedown"))
    dropping.build()
    left, _ = left_of(dropping)
    assert left["data/quarantine/quarantine.parquet"] == "the list has an id in 1 rejected document"


def test_verify_says_where_dropped_documents_could_not_be_checked(dropping: Project, tmp_path: Path) -> None:
    write_drop(dropping, ("a.jsonl-1", "", "takedown"))
    dropping.build()
    for name in ("tokens", "tokenizer", "quarantine"):
        shutil.copytree(dropping.root / "data" / name, tmp_path / "copy" / name)
    done = dropping.cli("verify", str(tmp_path / "copy/tokens"), "--source", ".")
    assert done.returncode == 2, done.stdout
    assert "not checked: the dropped documents" in done.stdout


def test_a_shared_prefix_redoes_a_unit_and_drops_nothing() -> None:
    texts = pa.array(["a", "b", "c"], pa.large_string())
    names = pa.array(["x", "y", "z"], pa.large_string())
    near = hashlib.sha256(b"b").digest()[:8] + bytes(24)
    lines = [
        DropLine("line 2", None, near, "near"),
        DropLine("line 3", "y", None, "right"),
        DropLine("line 4", "z", near, "other text"),
        DropLine("line 5", "w", None, "not there"),
    ]
    whole = DropList(lines)
    found = whole.of_unit(text_keys(text_digests(names)), text_keys(text_digests(texts)))
    assert [line.place for line in found.lines] == ["line 2", "line 3", "line 4"]
    for some in (whole, found):
        assert left_out({"drop": some}, "s", Batch(5, texts, names)) == {1: Left("right", "id")}
    assert whole.left_out("s", Batch(5, texts, None)) == {}
