"""Columns are read beside the documents, in one reading: in every format, for every use, with one error for a wrong value."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.shards import shard
from tests.builders.units import documents_of, unit_of
from tests.conftest import Project, make_project
from tokenmill.config.source_params import Source
from tokenmill.config.sources import Column, Conversations, Reading
from tokenmill.corpus import reader
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch, read_batches
from tokenmill.errors import CorpusError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList
from tokenmill.stages.first_rows import Requirements, first_rows

GROUP = Column("repo", "encode.split_group")
KEPT = Column("repo", "keep_columns")
PART = Column("repo", "count.by")
COLUMNS = {"group": GROUP, "kept": KEPT, "part": PART}

Rows = list[dict[str, Any]]


def write_table(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_arrow(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_records(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "a.jsonl": write_lines,
    "a.json": lambda path, rows: path.write_text(json.dumps(rows)) and None,
    "a.parquet": write_table,
    "a.arrow": write_arrow,
    "a.csv": write_records,
    "a.tsv": write_records,
}
OF_TEMPLATE = Conversations(None, None, (("user", ("{text}",)), ("assistant", ("{repo}",))))


def batch_of(path: Path, reading: Reading, **options: Any) -> Batch:
    [batch] = read_batches(shard(path), reading, **options)
    return batch


@pytest.mark.parametrize("name", WRITERS)
def test_columns_of_each_kind_are_beside_the_documents_of_every_format(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [{"id": "x", "text": "one", "repo": 'é"'}, {"id": "y", "text": "two", "repo": ""}])
    strings, json_texts = ['é"', ""], ['"é\\""', '""']
    for conversations in (None, OF_TEMPLATE):
        batch = batch_of(tmp_path / name, Reading("text", "id", None, conversations, (GROUP, PART, KEPT)))
        assert batch.ids is not None and batch.ids.to_pylist() == ["x", "y"]
        values = {column: array.to_pylist() for column, array in batch.columns.items()}
        assert values == {GROUP: strings, PART: strings, KEPT: json_texts}


@pytest.mark.parametrize("name", WRITERS)
def test_a_column_may_be_the_id_or_the_text_too(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [{"id": "x", "text": "one"}])
    columns = [column._replace(name=name) for name in ("id", "text") for column in (GROUP, KEPT)]
    batch = batch_of(
        tmp_path / name,
        Reading("text", "id", columns=tuple(sorted(columns, key=lambda each: each.param == "keep_columns"))),
    )
    assert [batch.columns[column].to_pylist() for column in columns] == [["x"], ['"x"'], ["one"], ['"one"']]


WRONG = {"a null": None, "a number with a fraction": 0.5, "a list": ["r"], "no value": ...}
EXPECTED = {
    ("kept", "a list"): "expected a string, a number, true, false or null; found an array",
    ("kept", "no value"): "the key 'repo' is missing",
    ("group", "a null"): "expected a string or an integer; found null",
    ("group", "a number with a fraction"): "expected a string or an integer; found a float",
    ("group", "a list"): "expected a string or an integer; found an array",
    ("group", "no value"): "the key 'repo' is missing",
}


@pytest.mark.parametrize("conversations", [None, OF_TEMPLATE], ids=["texts", "of a template"])
@pytest.mark.parametrize(("kind", "wrong"), EXPECTED)
def test_a_wrong_value_is_one_error_unless_its_document_is_left_out(
    tmp_path: Path, kind: str, wrong: str, conversations: Conversations | None
) -> None:
    rows: Rows = [{"id": "x", "text": "one", "repo": "r"}, {"id": "y", "text": "two", "repo": WRONG[wrong]}]
    if conversations is not None:  # of another column, since a wrong one makes no conversation
        conversations = Conversations(None, None, (("user", ("{id}",)), ("assistant", ("{text}",))))
    write_lines(
        tmp_path / "a.jsonl", [{name: value for name, value in row.items() if value is not ...} for row in rows]
    )
    reading = Reading("text", "id", None, conversations, (COLUMNS[kind],))
    bad: list[BadDocument] = []
    with pytest.raises(CorpusError, match=r"a\.jsonl, row 1: column 'repo': .*" + EXPECTED[kind, wrong]) as raised:
        batch_of(tmp_path / "a.jsonl", reading, on_bad=bad.append)
    assert str(raised.value).endswith(
        "to a column that every document has, or to null."
        if kind == "group"
        else "to columns that every document has, or to []."
    )
    batch = batch_of(tmp_path / "a.jsonl", reading, on_bad=bad.append, leave_out=lambda batch: [1])
    assert batch.columns[COLUMNS[kind]].to_pylist() == ["r" if kind == "group" else '"r"'] and not bad
    write_lines(tmp_path / "a.jsonl", [rows[0], {"id": "y", "text": 7}])
    batch = batch_of(tmp_path / "a.jsonl", reading, on_bad=bad.append)
    assert len(batch.texts) == len(bad) == 1


def test_errors_name_no_wrong_value_of_a_document_that_is_left_out(tmp_path: Path) -> None:
    rows: Rows = [{"id": "x", "text": "one"}, {"id": "y"}, {"id": "z", "text": "three", "repo": "r"}]
    unit = unit_of(tmp_path, {"a.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()})
    drops, source = {"drop": DropList([DropLine("line 2", "x", None, "asked")])}, unit.source.reading_for_index(GROUP)
    with pytest.raises(CorpusError) as raised:
        list(documents_of(unit, drops, on_bad="fail", reading=source))
    assert str(raised.value).startswith("a.jsonl, line 2: the key 'text' is missing")
    looked = first_rows(
        [unit.pieces[0].shard], Source(), Requirements(None, None, "repo", None, drops, Limits(1 << 20, 1 << 20))
    )
    assert [str(error) for error in looked.wrong] == [str(raised.value)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_null_in_a_table_is_no_group_and_a_kept_null(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [{"text": "one", "repo": "r"}, {"text": "two", "repo": None}])
    with pytest.raises(CorpusError, match=rf"{name}, row 1: column 'repo': expected a value; found null\. Set encode"):
        batch_of(tmp_path / name, Reading("text", columns=(GROUP,)))
    assert batch_of(tmp_path / name, Reading("text", columns=(KEPT,))).columns[KEPT].to_pylist() == ['"r"', "null"]
    bad: list[BadDocument] = []
    assert len(batch_of(tmp_path / name, Reading("text", columns=(PART,)), on_bad=bad.append).texts) == len(bad) == 1


def test_plain_text_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(
        CorpusError, match=r"a\.txt: a file of plain text has no column 'repo'\. Set encode\.split_group"
    ):
        batch_of(tmp_path / "a.txt", Reading("text", columns=(GROUP,)))


def n_readings(project: Project, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each shard is read by a build."""
    readings: Counter[str] = Counter()
    held = reader.held

    def counted(opened: Any) -> Any:
        readings[opened.name] += 1
        return held(opened)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "held", counted)
        project.build()
    return readings


def test_a_stage_reads_each_shard_once_whatever_is_beside_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    for name in ("without", "with"):
        project = make_project(tmp_path / name, {})
        (project.root / "data/raw").mkdir(parents=True)
        for file, write in WRITERS.items():
            rows = [{"id": f"{file}{i}", "text": f"the text {i}", "repo": f"r{i % 2}", "lang": "en"} for i in range(9)]
            write(project.root / "data/raw" / file.replace("a.", f"{file[2:]}."), rows)
        if name == "with":
            project.set(
                count__by="lang",
                train_vocab__parity={"variant": "base"},
                source__keep_columns=["lang", "repo"],
                encode__splits={"train": 0.5, "test": 0.5},
                encode__split_group="repo",
            )
        counted.append(n_readings(project, monkeypatch))
    assert counted[0] == counted[1] and len(counted[0]) == len(WRITERS)
