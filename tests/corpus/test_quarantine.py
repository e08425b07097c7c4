"""Bad documents stop a build, or go to the quarantine and are counted."""

import errno
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.damage import edit_manifest
from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill.corpus.bad_documents import listed

BAD_LINES = [b'{"id": "x", "text": 7}\n', b'{"id": "y", "te\n', b'{"id": "z", "text": "\xff"}\n']


def quarantine(project: Project) -> list[dict[str, object]]:
    return pq.read_table(project.root / "data/quarantine/quarantine.parquet").to_pylist()


def report(project: Project) -> dict[str, object]:
    found: dict[str, object] = json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))
    return found


def spoil(project: Project) -> Path:
    """a.jsonl with a bad line before, between and after its three documents, and blank lines."""
    path = project.root / "data/raw/a.jsonl"
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(BAD_LINES[0] + good[0] + b"\n" + BAD_LINES[1] + good[1] + good[2] + BAD_LINES[2])
    return path


def ids(project: Project, name: str) -> list[object]:
    return pq.read_table(project.root / "data/tokens/documents" / name)["id"].to_pylist()


@pytest.mark.parametrize("id_column", ["id", None])
def test_bad_lines_are_left_out_and_kept_with_shard_row_line_and_bytes(project: Project, id_column: str | None) -> None:
    spoil(project)
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=3, source__id_column=id_column)
    done = build(project)
    assert "left out 3 bad documents and 0 damaged shards" in done.stderr
    found = quarantine(project)
    assert [(row["shard"], row["row"], row["line"], row["raw"]) for row in found] == [
        ("data/raw/a.jsonl", 0, 1, BAD_LINES[0].rstrip(b"\n")),
        ("data/raw/a.jsonl", 2, 4, BAD_LINES[1].rstrip(b"\n")),
        ("data/raw/a.jsonl", 5, 7, BAD_LINES[2].rstrip(b"\n")),
    ]
    assert all(
        part in str(row["reason"]) for row, part in zip(found, ["found an int", "invalid JSON", "0xff"], strict=True)
    )
    assert ids(project, "a.jsonl.parquet") == (["a.jsonl-0", "a.jsonl-1", "a.jsonl-2"] if id_column else [1, 3, 4])
    assert report(project)["documents_bad"] == 3
    assert report(project)["documents"] == 6


@pytest.mark.slow
def test_an_encoding_that_fails_at_its_end_leaves_dataset_and_quarantine(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=3)
    build(project)
    before = project.outputs()
    spoil(project)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.stages.encode_dataset.write_manifest", fail)
        assert cli(project, "build").returncode == 2
    after = project.outputs()
    kept = [name for name in before if name.startswith(("data/tokens", "data/quarantine"))]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    build(project)
    assert len(quarantine(project)) == 3


@pytest.mark.slow
def test_the_policy_is_fail_unless_said_otherwise_and_the_limit_holds(project: Project) -> None:
    spoil(project)
    done = project.cli("build")
    assert done.returncode == 2
    assert "data/raw/a.jsonl, line 1: " in done.stderr
    for limit, words in ((2, "2"), (0.3, "30 %"), (0.001, "0.1 %")):
        project.set(source__on_bad_document="quarantine", source__bad_documents_max=limit)
        done = project.cli("build")
        assert done.returncode == 2
        assert f"3 of 9 documents are bad; source.bad_documents_max allows {words}. The first:" in done.stderr
        assert "data/raw/a.jsonl, line 4: invalid JSON" in done.stderr
    project.set(source__bad_documents_max=0.34)
    build(project)
    project.set(source__on_bad_document="fail")
    assert project.cli("build").returncode == 2


@pytest.mark.slow
def test_the_quarantine_of_a_cut_shard_is_that_of_the_whole_one(new_project: Callable[[str], Project]) -> None:
    lines = [
        BAD_LINES[i % 3] if i % 7 == 3 else json.dumps({"id": i, "text": f"document {i}"}).encode() + b"\n"
        for i in range(200)
    ]
    whole, cut = new_project("whole"), new_project("cut")
    cut.set(source__unit_bytes_max=700)
    for project in (whole, cut):
        (project.root / "data/raw/long.jsonl").write_bytes(b"".join(lines))
        project.set(source__on_bad_document="quarantine", source__bad_documents_max=0.5)
        build(project)
    assert len(quarantine(whole)) == sum(line in BAD_LINES for line in lines)
    assert quarantine(whole) == quarantine(cut)


def test_values_of_a_table_that_are_no_documents_are_left_out(project: Project) -> None:
    texts = pa.array([b"good", None, b"\xff\xfe", b"fine", b"last"], pa.binary())
    table = pa.table({"id": ["a", "b", "c", None, "e"], "text": texts})
    pq.write_table(table, project.root / "data/raw/t.parquet")
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=3)
    build(project)
    assert [(row["row"], row["line"], row["raw"]) for row in quarantine(project)] == [
        (1, None, None),
        (2, None, b"\xff\xfe"),
        (3, None, b"fine"),
    ]
    assert ids(project, "t.parquet") == ["a", "e"]


def test_a_renamed_shard_has_its_new_name_in_the_quarantine(project: Project) -> None:
    path = spoil(project)
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=3)
    build(project)
    path.rename(path.with_name("z.jsonl"))
    done = build(project)
    assert "count: 0 of 2 units to do" in done.stderr
    assert {row["shard"] for row in quarantine(project)} == {"data/raw/z.jsonl"}


def test_a_truncated_shard_fails_or_is_left_out_whole(project: Project) -> None:
    packed = gzip.compress(
        b"".join(json.dumps({"id": i, "text": f"document {i * i}"}).encode() + b"\n" for i in range(5000))
    )
    (project.root / "data/raw/c.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    project.set(source__unit_bytes_min=100_000, source__unit_bytes_max=200_000)  # one unit with a.jsonl and b.jsonl
    done = project.cli("build")
    assert done.returncode == 2
    assert "data/raw/c.jsonl.gz: the file is damaged or truncated" in done.stderr
    project.set(source__on_bad_shard="quarantine")
    done = build(project)
    assert "left out 0 bad documents and 1 damaged shard:" in done.stderr
    [row] = quarantine(project)
    assert (row["shard"], row["row"], row["raw"]) == ("data/raw/c.jsonl.gz", None, None)
    assert "damaged or truncated" in str(row["reason"])
    assert report(project)["shards_damaged"] == 1
    assert pl.read_parquet(project.root / "data/tokens/documents").height == 6
    for name in ("a", "b"):
        (project.root / f"data/raw/{name}.jsonl").unlink()
    done = project.cli("build")
    assert done.returncode == 2
    assert (
        "no documents are left, because shards are damaged:\n  data/raw/c.jsonl.gz: the file is damaged" in done.stderr
    )


def test_a_shard_that_only_the_manifest_calls_damaged_is_found(project: Project) -> None:
    build(project)
    edit_manifest(project, lambda manifest: manifest["shards"][0]["rows"][0].update(n_bad=None))
    done = project.cli("build", "--only", "validate")
    assert done.returncode == 2
    assert "says that data/raw/a.jsonl is damaged; it can be read" in done.stderr


def test_one_build_names_every_bad_line_and_every_bad_file_of_a_unit(project: Project) -> None:
    spoil(project)
    (project.root / "data/raw/c.parquet").write_bytes(b"PAR1 cut")
    texts = pa.array([b"good", None, b"\xff\xfe"], pa.binary())
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": texts}), project.root / "data/raw/d.parquet")
    project.set(source__unit_bytes_min=100_000)  # one unit
    done = project.cli("build")
    assert done.returncode == 2
    head, *shown, of_columns, last = done.stderr.split("tokenmill: error[TM210]: ")[1].splitlines()
    assert head == "6 documents or files are bad:"
    assert [line.strip().split(": ")[0] for line in shown] == [
        *(f"data/raw/a.jsonl, line {line}" for line in (1, 4, 7)),
        "data/raw/c.parquet",
        *(f"data/raw/d.parquet, row {row}" for row in (1, 2)),
    ]
    assert "source.text_column" in of_columns
    assert "source.on_bad_document" in last
    project.set(source__on_bad_document="quarantine")
    done = project.cli("build")
    assert "tokenmill: error[TM202]: data/raw/c.parquet: expected a whole .parquet file" in done.stderr
    project.set(source__on_bad_document="fail", source__on_bad_shard="quarantine")
    done = project.cli("build")
    assert "5 documents or files are bad:" in done.stderr
    assert "c.parquet" not in done.stderr


def test_of_many_bad_lines_the_first_twenty_are_named_and_the_others_counted(project: Project) -> None:
    for name, n in (("c", 15), ("d", 8), ("e", 2000)):
        (project.root / f"data/raw/{name}.jsonl").write_bytes(b"no JSON\n" * n)
    done = project.cli("build")
    assert done.returncode == 2
    assert "at least 1,023 documents or files are bad:" in done.stderr
    named = [line.strip().split(": ")[0] for line in done.stderr.splitlines() if ", line " in line]
    assert named == [
        f"data/raw/{name}.jsonl, line {i + 1}" for name, n in (("c", 7), ("d", 7), ("e", 6)) for i in range(n)
    ]
    assert "  and at least 1,003 more\n" in done.stderr  # the third file was not read to its end


def test_a_wrong_text_column_is_a_line_a_file_with_one_code_and_one_remedy(project: Project) -> None:
    (project.root / "data/raw/n.jsonl").write_text('{"id": 1, "body": 3}\n{"id": 2, "body": 4.5}\n', encoding="utf-8")
    pq.write_table(pa.table({"id": ["a"], "text": ["one"]}), project.root / "data/raw/t.parquet")
    pq.write_table(pa.table({"id": ["a"], "body": [1]}), project.root / "data/raw/u.parquet")
    project.set(source__text_column="body")
    done = project.cli("build")
    assert done.returncode == 2
    head, *lines, last = done.stderr.split("tokenmill: error[TM209]: ")[1].splitlines()
    assert head == "source.text_column: the column or key that it names is missing or of the wrong kind:"
    assert lines == [
        "  data/raw/a.jsonl, line 1: the key 'body' is missing; found the keys id, text (3 such documents).",
        "  data/raw/b.jsonl, line 1: the key 'body' is missing; found the keys id, text (3 such documents).",
        "  data/raw/n.jsonl, line 1: key 'body': expected a string; found an int (3) (2 such documents).",
        "  data/raw/t.parquet: the column 'body' is missing; found the columns id, text.",
        "  data/raw/u.parquet: column 'body': expected strings; found int64.",
    ]
    assert last.endswith("can be a source of their own: see `sources`.")
    assert last.startswith("Set source.text_column in params.yaml, which holds for all files, to a column")


def test_a_wrong_text_column_of_a_cut_file_is_one_line(project: Project) -> None:
    project.write("long.jsonl", [f"document {i}" for i in range(300)])
    project.set(source__text_column="body", source__unit_bytes_max=700)
    done = project.cli("build")
    assert "tokenmill: error[TM209]: " in done.stderr
    assert done.stderr.count("\n  data/raw/long.jsonl") == 1
    assert "found the keys id, text (300 such documents)." in done.stderr


def test_every_bad_file_is_named_before_the_second_document_of_any() -> None:
    found = {f"{i:02}": [f"{i:02} first", f"{i:02} second"] for i in range(18)}
    names = [one for some in listed(found).values() for one in some]
    assert len(names) == 20
    assert [one for one in names if "first" in one] == [f"{i:02} first" for i in range(18)]
    assert [one for one in names if "second" in one] == ["00 second", "01 second"]


def test_units_that_fail_do_not_stop_the_others_and_are_listed_at_the_end(project: Project) -> None:
    for name in "cd":
        project.write_bad_end(f"{name}.jsonl")
    done = project.cli("build")
    assert done.returncode == 2
    assert "count: 2 of 4 units failed; the results of the other 2 are kept" in done.stderr
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()[-3:-1]] == [
        [f"  data/raw/{name}.jsonl, line 21", "the key 'text' is missing; found the keys id."] for name in "cd"
    ]
    assert project.outputs() == {}
    project.write("c.jsonl", ["one is mended"])
    project.write("d.jsonl", ["and the other"])
    assert "count: 2 of 4 units to do" in build(project).stderr
