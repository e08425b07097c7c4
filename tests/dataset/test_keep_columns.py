"""source.keep_columns: chosen columns of the documents' files are in the document index, with their types and nulls."""

import datetime
import gzip
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.teams import build, cli, make_team
from tests.conftest import Project, make_project
from tokenmill.config.load_params import load_params
from tokenmill.config.source_params import _OF_THE_INDEX
from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.limits import VALUE_BYTES_MAX
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.corpus.units import Piece, Unit
from tokenmill.dataset.document_index import index_schema
from tokenmill.dataset.kept_columns import KeptColumns, kept_again, kept_types, kept_values, names_of, write_kinds
from tokenmill.errors import CorpusError, ParamsError

NAMES = ("lang", "stars", "score", "is_fork")
ROWS = [
    {"id": "a", "text": "one", "lang": "C", "stars": 3, "score": 0.1, "is_fork": True},
    {"id": "b", "text": "two", "lang": None, "stars": None, "score": None, "is_fork": None},
    {"id": "c", "text": "three", "lang": "", "stars": -(2**63), "score": -0.0, "is_fork": False},
]
TYPES = {"lang": pa.string(), "stars": pa.int64(), "score": pa.float64(), "is_fork": pa.bool_()}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of the kind that its name says."""
    match path.suffix:
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
        case ".arrow":
            table = pa.Table.from_pylist(rows)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, 2)
        case ".json":
            path.write_text(json.dumps(rows))
        case ".gz":
            path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        case _:
            path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def unit_of(tmp_path: Path, names: tuple[str, ...]) -> Unit:
    """A unit of all files in a folder."""
    source = DocumentSource(None, ("*",), Reading("text", "id"), "as_text", 1.0, None, keep_columns=names)
    shards: list[Shard] = find_shards(tmp_path, "*", source=source)
    return Unit("unit", "unit", tuple(Piece(shard, None, "") for shard in shards))


def kept(unit: Unit, folder: Path) -> dict[str, list[Any]]:
    """The typed columns of all documents of a unit."""
    columns = KeptColumns(unit)
    found = []
    for i, piece in enumerate(unit.pieces):
        for batch in read_batches(piece.shard, unit.source.reading_for_index(None)):
            pieces = pa.repeat(pa.scalar(i, pa.int32()), len(batch.texts))
            found.append(columns.of(replace(batch, pieces=pieces)))
    write_kinds(columns.kinds, folder)
    types = kept_types([folder])
    values = kept_values(pa.concat_arrays(found), names_of(folder), types, sum(map(len, found)))
    return {name: one.to_pylist() for name, one in values.items()}


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.jsonl", "x.json", "x.jsonl.gz"])
def test_values_and_nulls_of_every_kind_of_file_are_kept(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name, ROWS)
    found = kept(unit_of(tmp_path / "in", NAMES), tmp_path)
    assert found == {name: [row[name] for row in ROWS] for name in NAMES}
    assert kept_types([tmp_path]) == TYPES
    assert math.copysign(1, found["score"][2]) == -1


def test_tables_keep_infinity_and_what_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/x.parquet", [{"id": "a", "text": "t", "n": math.inf}, {"id": "b", "text": "u", "n": math.nan}])
    first, second = kept(unit_of(tmp_path / "in", ("n",)), tmp_path)["n"]
    assert first == math.inf and math.isnan(second)


def test_integers_and_fractions_of_several_files_are_numbers_and_nulls_alone_are_strings(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/a.jsonl", [{"id": "a", "text": "t", "n": 1, "m": None}])
    write(tmp_path / "in/b.jsonl", [{"id": "b", "text": "u", "n": 0.5, "m": None}])
    assert kept(unit_of(tmp_path / "in", ("n", "m")), tmp_path) == {"n": [1.0, 0.5], "m": [None, None]}
    assert kept_types([tmp_path]) == {"n": pa.float64(), "m": pa.string()}


def test_values_are_restored_from_the_index_of_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/x.jsonl", ROWS)
    unit = unit_of(tmp_path / "in", NAMES)
    columns = KeptColumns(unit)
    (batch,) = read_batches(unit.pieces[0].shard, unit.source.reading_for_index(None))
    values = columns.of(batch)
    table = pa.table(
        {"shard": ["x.jsonl"] * 3, **kept(unit, tmp_path)}, pa.schema([("shard", pa.string()), *TYPES.items()])
    )
    assert kept_again(table, NAMES) == (values, columns.kinds)


def test_whole_numbers_of_a_column_of_fractions_are_not_restored_since_they_may_be_integers() -> None:
    table = pa.table({"shard": ["x.jsonl"] * 3, "n": [1.0, None, 3.0], "m": [0.5, 3.0, None]})
    assert kept_again(table, ["n"]) is None
    assert kept_again(table, ["n", "m"]) is None
    found = kept_again(table, ["m"])
    assert found is not None and found.kinds == {"m": {"number": "x.jsonl"}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"id": "a", "text": "t", "n": 1}, {"id": "b", "text": "u"}],
            r"b?.*row 1: column 'n'.* the key 'n' is missing",
        ),
        ([{"id": "a", "text": "t", "n": [1]}], r"row 0: column 'n'.*expected a string, a number.*found an array"),
        ([{"id": "a", "text": "t", "n": 2**63}], "row 0: column 'n'.*expected an integer of 64 bits"),
        (
            [{"id": "a", "text": "t", "n": "x" * (VALUE_BYTES_MAX + 1)}],
            "row 0.*expected at most 65,536 bytes; found 65,537",
        ),
        (
            [{"id": "a", "text": "t", "n": 1}, {"id": "b", "text": "u", "n": "x"}],
            "found integers, as in x.jsonl, and strings",
        ),
        ([{"id": "a", "text": "t", "n": 2**53 + 1}, {"id": "b", "text": "u", "n": 0.5}], "found 9007199254740993"),
    ],
    ids=["missing", "list", "large", "long", "mixed", "inexact"],
)
def test_a_value_that_cannot_be_kept_is_named_with_its_place(
    rows: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/x.jsonl", rows)
    with pytest.raises(CorpusError, match=message):
        kept(unit_of(tmp_path / "in", ("n",)), tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("x.parquet", "nothing", "the column 'nothing' is missing; found the columns id, text, when"),
        ("x.parquet", "when", "column 'when': expected strings, numbers or bools; found timestamp"),
        ("x.arrow", "when", "column 'when': expected strings, numbers or bools; found timestamp"),
    ],
)
def test_a_missing_column_and_a_wrong_type_of_a_table_are_errors(
    name: str, column: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name, [{"id": "a", "text": "t", "when": datetime.datetime(2020, 1, 1)}])
    with pytest.raises(CorpusError, match=message):
        kept(unit_of(tmp_path / "in", (column,)), tmp_path)


def test_plain_text_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x.txt").write_text("text")
    with pytest.raises(CorpusError, match="a file of plain text has no column 'n'"):
        kept(unit_of(tmp_path / "in", ("n",)), tmp_path)


def test_columns_of_the_index_and_columns_twice_are_refused(tmp_path: Path) -> None:
    for value, message in (
        ("[sha256]", "the document index has a column of this name"),
        ("[a, a]", "each of them once"),
    ):
        path = tmp_path / "params.yaml"
        path.write_text(f"source: {{keep_columns: {value}}}\n", encoding="utf-8")
        with pytest.raises(ParamsError, match=message):
            load_params(path)
    assert set(index_schema(True, True, True, True).names) <= set(_OF_THE_INDEX)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = make_project(tmp_path / "project", {})
    (project.root / "data/raw").mkdir(parents=True)
    for n in range(3):
        rows = [
            {"id": f"{n}-{i}", "text": f"text {i % 7} of {n}", "lang": "de" if i % 3 else None, "stars": n * 10 + i}
            for i in range(20)
        ]
        write(project.root / f"data/raw/{n}.{['jsonl', 'parquet', 'arrow'][n]}", rows)
    return project


def index_of(project: Project) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(project.root / "data/tables/documents.parquet").to_pylist()
    return rows


@pytest.mark.slow
def test_a_build_keeps_columns_through_dropping_and_splits_and_verify_derives_them(project: Project) -> None:
    (project.root / "drop.csv").write_text("id,reason\n1-3,asked\n0-0,asked\n")
    project.set_drop("drop.csv")
    project.set(encode__splits={"train": 0.5, "test": 0.5}, encode__shuffle={"seed": 1}, source__unit_bytes_min=1000)
    build(project)
    before = project.outputs()
    assert "keep_columns" not in (project.root / "data/tokens/manifest.json").read_text()
    project.set(source__keep_columns=["stars", "lang"])
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    rows = index_of(project)
    assert len(rows) == 58 and list(rows[0])[-3:] == ["split", "stars", "lang"]
    for row in rows:
        n, i = map(int, row["id"].split("-"))
        assert (row["stars"], row["lang"]) == (n * 10 + i, "de" if i % 3 else None)
    for arguments in ([], ["--no-source"]):
        done = cli(project, "verify", *arguments)
        assert done.returncode == 0, done.stdout
    done = cli(project, "locate", "--id", "0-4")
    assert done.returncode == 0, done.stderr
    path = project.root / "data/tables/documents.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("stars")
    pq.write_table(table.set_column(at, "stars", pa.array([7, *table["stars"].to_pylist()[1:]])), path)
    done = cli(project, "verify")
    assert done.returncode == 1 and "stars: found 7" in done.stdout, done.stdout
    project.set(source__keep_columns=[])
    build(project)
    assert project.outputs() == before


@pytest.mark.slow
def test_a_clone_with_the_dataset_takes_over_units_with_kept_columns(project: Project) -> None:
    project.set(source__keep_columns=["stars", "lang"], source__unit_bytes_min=0)
    build(project)
    shutil.copytree(project.root / "data/tokenizer", project.root / "kept")
    project.set(tokenizer={"from": "kept"})
    team = make_team(project)
    project.dvc("push")
    clone = team.clone("clone")
    clone.dvc("pull")
    for one in (project, clone):
        row = {"id": "new", "text": "text", "lang": None, "stars": None}
        write(one.root / "data/raw/new.jsonl", [row])
    done = build(clone)
    assert "encode: 3 units taken over from the dataset" in done.stderr
    build(project)
    for folder in ("tokens", "tables"):
        ours, others = (sorted((one.root / "data" / folder).rglob("*.*")) for one in (project, clone))
        assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in others]
    assert index_of(clone)[0]["stars"] == 0


@pytest.mark.slow
def test_a_changed_list_of_columns_counts_no_unit_again(project: Project) -> None:
    build(project)
    counted = {path.name: path.stat().st_ino for path in (project.root / ".tokenmill/units").glob("*/*")}
    project.set(source__keep_columns=["lang"])
    build(project)
    done = json.loads((project.root / ".tokenmill/last-build.json").read_text())
    after = {path.name: path.stat().st_ino for path in (project.root / ".tokenmill/units").glob("*/*")}
    assert {name: after[name] for name in counted if name in after} == counted
    assert "train-vocab" not in {one["stage"] for one in done if one["action"] == "run"}


@pytest.mark.slow
def test_named_sources_keep_columns_of_their_own_and_conversations_have_them(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {})
    for name in ("web", "code"):
        (project.root / f"data/raw/{name}").mkdir(parents=True)
        rows = [
            {
                "id": f"{name}{i}",
                "messages": [{"role": "user", "content": f"{name} {i}?"}, {"role": "assistant", "content": f"yes {i}"}],
                f"of_{name}": i,
            }
            for i in range(10)
        ]
        write(project.root / f"data/raw/{name}/x.jsonl", rows)
    project.set(source__messages_column="messages", encode__end_of_document=None)
    project.set(train_vocab__special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    project.set(encode__chat={"template": "chatml", "turns": "each"})
    project.set(
        sources={name: {"glob": f"data/raw/{name}/*", "keep_columns": [f"of_{name}"]} for name in ("web", "code")}
    )
    build(project)
    rows = index_of(project)
    assert {row["id"]: (row["of_web"], row["of_code"]) for row in rows} == {
        **{f"web{i}": (i, None) for i in range(10)},
        **{f"code{i}": (None, i) for i in range(10)},
    }
    done = cli(project, "verify")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_missing_column_stops_a_build_before_it_counts(project: Project) -> None:
    project.set(source__keep_columns=["nothing"])
    done = cli(project, "build")
    assert done.returncode == 2 and "source.keep_columns" in done.stderr and "nothing" in done.stderr, done.stderr
    assert not (project.root / "data/counts").exists()
