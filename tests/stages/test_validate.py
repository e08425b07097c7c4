"""validate finds what is wrong with a dataset, and names shard and row, even when the manifest was made to fit."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.damage import edit_manifest
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import parse_manifest
from tokenmill.errors import ValidationError
from tokenmill.pipeline.run_task import advance_nothing
from tokenmill.pipeline.start import start
from tokenmill.stages import validate as stage
from tokenmill_reader.regular_files import sha256_file

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that was built, and a copy of its dataset beside it."""
    project = make_project(tmp_path_factory.mktemp("validate") / "project")
    project.build()
    shutil.copytree(project.root / "data/tokens", project.root.parent / "tokens")
    return project


@pytest.fixture
def built(built_once: Project) -> Iterator[Project]:
    """That project, whose dataset is made as it was when the test has ended."""
    yield built_once
    tokens = built_once.root / "data/tokens"
    shutil.rmtree(tokens)
    shutil.copytree(built_once.root.parent / "tokens", tokens)


def forge(project: Project, change: Callable[[Rows], object]) -> None:
    """Changes the rows of a.jsonl's file and gives the manifest the new length and digest."""
    path = project.root / "data/tokens/documents/a.jsonl.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    path.unlink()  # it is a hard link into DVC's cache
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    edit_manifest(
        project, lambda manifest: manifest["shards"][0].update(sha256=sha256_file(path), n_bytes=path.stat().st_size)
    )


def complaint(project: Project) -> str:
    done = project.cli("build", "--only", "validate")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.root / "data/report/report.json").exists()
    return done.stderr


FORGERIES: dict[str, tuple[Callable[[Rows], object], list[str]]] = {
    "another id": (lambda rows: rows[1]["input_ids"].__setitem__(0, 66), ["a.jsonl: row 1: decoded bytes"]),
    "an id out of range": (
        lambda rows: rows[1]["input_ids"].__setitem__(0, 60000),
        ["row 1: id 60000 is out of range"],
    ),
    "a special id inside": (lambda rows: rows[1]["input_ids"].insert(0, 0), ["row 1: special token id 0 inside"]),
    "no end": (lambda rows: rows[0]["input_ids"].pop(), ["row 0: last id"]),
    "no ids at all": (
        lambda rows: rows[2]["input_ids"].clear(),
        ["row 2: expected the end-of-document id 0; found no ids"],
    ),
    "a row too few": (lambda rows: rows.pop(), ["row 2: the document is not in the dataset"]),
    "a row too many": (lambda rows: rows.append(rows[0]), ["row 3: the dataset holds 1 row more"]),
    "two rows swapped": (lambda rows: rows.insert(0, rows.pop(1)), ["row 0: id"]),
    "another length": (lambda rows: rows[1].update(n_bytes=5), ["row 1: n_bytes"]),
    "another split of the same bytes": (
        lambda rows: rows[0].update(input_ids=[*[1 + b"".join(ORDER).index(c) for c in b"the cat sat on the mat"], 0]),
        ["row 0: ids differ from those of tokenizers from token 0 on"],
    ),
}
ORDER = [bytes([b]) for b in (*range(33, 127), *range(161, 173), *range(174, 256), *range(33), *range(127, 161), 173)]


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_row_is_named(built: Project, case: str) -> None:
    change, expected = FORGERIES[case]
    forge(built, change)
    said = complaint(built)
    assert all(part in said for part in expected), said


def test_a_position_that_is_wrong_is_named(project: Project) -> None:
    project.set(source__id_column=None)
    project.build()
    forge(project, lambda rows: rows[1].update(id=7))
    assert "row 1: id: found 7, expected 1" in complaint(project)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda manifest: manifest.update(n_tokens=1), "n_tokens is 1"),
        (lambda manifest: manifest["shards"][0].update(n_tokens=1) or manifest.update(n_tokens=1), "n_tokens is 1"),
        (lambda manifest: manifest.update(tokenizer_digest="0" * 64), "was made with the tokenizer 0000"),
        (lambda manifest: manifest.update(id_type="uint32"), "id_type"),
        (
            lambda manifest: manifest.update(end_of_document_id=5),
            "expected the id of a special token of the tokenizer; found 5",
        ),
        (
            lambda manifest: manifest["shards"].pop(),
            "data/tokens/documents/b.jsonl.parquet: not named by manifest.json",
        ),
        (lambda manifest: manifest["shards"][0].update(sha256="0" * 64), "not the file that the manifest names"),
        (lambda manifest: manifest.pop("engine"), "engine"),
        (
            lambda manifest: manifest.update(begin_of_document_id=5),
            "begin_of_document_id: expected the id of a special token of the tokenizer; found 5",
        ),
        (lambda manifest: manifest["inputs"].pop(), "in a file but not among the inputs"),
        (lambda manifest: manifest["tables"].pop(), "data/tables/tokens_per_id_by_source.parquet: not named"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    built: Project, change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    edit_manifest(built, change)
    assert expected in complaint(built)


def test_a_manifest_that_was_changed_and_still_agrees_with_itself_is_refused(built: Project) -> None:
    path = built.root / "data/tokens/manifest.json"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text.replace("tokenmill 0", "tokenmill 9"), encoding="utf-8")
    assert "manifest.json: digest: found" in complaint(built)


def test_a_table_that_the_tokens_do_not_give_is_named(built: Project) -> None:
    path = built.root / "data/tables/tokens_per_id.parquet"
    before = path.read_bytes()
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(
        table.set_column(2, table.schema.field(2), pa.array([7, *table["count"].to_pylist()[1:]], pa.uint64())), path
    )
    entry = {"sha256": sha256_file(path), "n_bytes": path.stat().st_size}
    edit_manifest(built, lambda manifest: manifest["tables"][3].update(entry))
    assert "data/tables/tokens_per_id.parquet: row 0: count: found 7, expected 6" in complaint(built)
    path.write_bytes(before)


def test_another_quarantine_than_that_of_the_manifest_is_refused(built: Project) -> None:
    edit_manifest(built, lambda manifest: manifest.update(quarantine_sha256="0" * 64))
    assert "data/quarantine/quarantine.parquet: not the file that the manifest names" in complaint(built)


def test_a_file_that_the_manifest_does_not_name_is_found(built: Project) -> None:
    directory = built.root / "data/tokens"
    (directory / "more.parquet").write_bytes((directory / "documents/a.jsonl.parquet").read_bytes())
    assert "data/tokens/more.parquet: not named by manifest.json" in complaint(built)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b'{"format_version": 1, "documents": 2}',
            "format_version: found 1, expected 3 to 10: an older tokenmill",
        ),
        (b'{"format_version": 11}', "format_version: found 11, expected 3 to 10: a newer tokenmill"),
        (b'{"n_documents": 2}', "format_version: Field required"),
        (b"PAR1", "Invalid JSON"),
    ],
)
def test_a_manifest_of_another_format_is_one_clear_error(content: bytes, expected: str) -> None:
    with pytest.raises(ValidationError, match=f"^data/tokens/manifest.json: {expected}"):
        parse_manifest(content, "data/tokens/manifest.json")


def test_a_piece_that_turns_out_damaged_is_left_out_when_its_file_is_checked_again(
    project: Project, tmp_path: Path
) -> None:
    project.build()
    found = start(project.root / "params.yaml", None, False, False).project
    filters = {unit.name: found.read_filters() for unit in found.units}
    task = stage._tasks(stage._subject(found), found, filters, {})[0]
    assert task.unit is not None
    again = msgspec.structs.replace(task, unit=task.unit.without({0: "cut short"}))
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
    assert task.run(tmp_path / "first", advance_nothing).n_documents
    with pytest.raises(ValidationError, match=r"rows? more than there are documents"):
        again.run(tmp_path / "again", advance_nothing)
