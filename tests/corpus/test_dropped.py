"""Documents that filters left out: as columns, of a unit and of a dataset."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.units import documents_of, unit_of
from tokenmill.corpus import good_documents
from tokenmill.corpus.dropped import (
    DROPPED_FILE,
    SCHEMA,
    RecordedRows,
    UnitDropped,
    read_dropped,
    starts_of,
    unit_dropped,
    write_dropped,
)
from tokenmill.corpus.filter import Filters
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ValidationError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList
from tokenmill.features.min_chars.filter import MinChars

FILES = {
    "a.txt": b"long enough",
    "b.txt": b"no",
    "c.jsonl": b'{"id": "x", "text": "a"}\n{"id": "y", "text": "long enough"}\n{"id": "z", "text": "b"}\n',
    "d.txt": "\ufeffn\u00e9".encode(),
    "e.txt": b"long enough, too",
    "f.jsonl": b'{"id": "w", "text": "c"}\n',
}
FILTERS: Filters = {
    "drop": DropList([DropLine("line 2", "z", None, "asked"), DropLine("line 3", "a.txt", None, "asked")]),
    "min_chars": MinChars(4),
}


def _dataset(folder: Path) -> Path:
    unit = unit_of(folder, FILES)
    list(documents_of(unit, FILTERS, folder=folder))
    write_dropped(folder / DROPPED_FILE, [(starts_of(unit), folder)])
    return folder / DROPPED_FILE


def _known(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in unit_dropped(folder) for row in batch.to_pylist()]


def test_small_files_of_text_are_left_out_in_the_order_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick way of small files, and the way of all files."""
    found = []
    for i in range(2):
        folder = tmp_path / str(i)
        folder.mkdir()
        unit = unit_of(folder, FILES)
        texts = [text for batch in documents_of(unit, FILTERS, folder=folder) for text in batch.texts.to_pylist()]
        found.append((texts, _known(folder)))
        monkeypatch.setattr(good_documents, "small_text", lambda *_: None)
    assert found[0] == found[1] and found[0][0] == ["long enough", "long enough", "long enough, too"]
    assert [(row[0], row[1], row[4], row[5]) for row in found[0][1]] == [
        (1, 0, "min_chars", "min_chars"),
        (2, 0, "min_chars", "min_chars"),
        (2, 2, "asked", "id"),
        (3, 0, "min_chars", "min_chars"),
        (5, 0, "min_chars", "min_chars"),
    ]


def test_a_unit_without_any_has_no_file(tmp_path: Path) -> None:
    documents = documents_of(unit_of(tmp_path, FILES), {"min_chars": MinChars(1)}, folder=tmp_path)
    assert list(documents) and not _known(tmp_path) and {*tmp_path.iterdir()} == {tmp_path / name for name in FILES}


def test_rows_of_a_dataset_are_found_by_shard_and_become_those_of_a_unit_again(tmp_path: Path) -> None:
    dropped = read_dropped(_dataset(tmp_path))
    assert dropped.shards == ["b.txt", "c.jsonl", "d.txt", "f.jsonl"]
    assert dropped.rows_of("c.jsonl").tolist() == [0, 2] and not len(dropped.rows_of("a.txt"))
    assert dropped.of("c.jsonl", 1)["id"].to_pylist() == ["z"] and dropped.of("c.jsonl", 0, 2).num_rows == 1
    assert dropped.by(["id"]).shards == ["c.jsonl"] and dropped.but_by(["min_chars"]).rows_of("c.jsonl").tolist() == [2]
    again = tmp_path / "again"
    again.mkdir()
    with closing(UnitDropped(len(FILES), again)) as of_unit:
        for i, name in enumerate(FILES):
            of_unit.add_known(i, 0, dropped.of(name))
    assert _known(again) == _known(tmp_path) and of_unit.n_by_piece == [0, 1, 2, 1, 0, 1]
    assert of_unit.reasons == {"min_chars": 4, "asked": 1}


def _batch(texts: Sequence[str | None], ids: Sequence[str] | None = None) -> Batch:
    return Batch(0, pa.array(texts, pa.large_string()), None if ids is None else pa.array(ids, pa.large_string()))


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (_batch(["a", "", "c"], ["x", "y", "z"]), "row 2: says that the document 'z' with the sha256 .* another one"),
        (_batch([None, "", "b"], ["x", "y", "z"]), "row 0: says that the document 'x'"),
        (_batch(["a", "", "b"], ["w", "y", "z"]), "row 0: says that the document 'x'"),
        (_batch(["a", "", "b"]), "row 0: says that the document 'x'"),
    ],
)
def test_a_recorded_row_that_holds_another_document_is_an_error(batch: Batch, words: str, tmp_path: Path) -> None:
    rows = RecordedRows(read_dropped(_dataset(tmp_path)))
    assert [*rows.left_out("c.jsonl", _batch(["a", "", "b"], ["x", "y", "z"]))] == [0, 2]
    assert rows.left_out("a.txt", batch) == {}
    with pytest.raises(ValidationError, match=words):
        rows.left_out("c.jsonl", batch)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_a_table_without_a_column_is_an_error(column: str, tmp_path: Path) -> None:
    path = _dataset(tmp_path)
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    with pytest.raises(ValidationError, match="expected the columns shard, row, id, sha256, reason, by; found"):
        read_dropped(path)
