"""The documents of small files come in batches that span files, and are those that each file has by itself."""

from pathlib import Path

import pytest

from tests.builders.units import documents_of, unit_of
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.errors import CorpusError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList

FILES = {
    "a.txt": b"one",
    "b.jsonl": b'{"id": "x", "text": "two"}\n{"id": "y", "text": "three"}\n',
    "c.txt": "vi\u00e9r".encode(),
    "d.txt": b"",
    "e.txt": b"\xff not UTF-8",
    "f.txt": b"six",
}
TEXTS = ["one", "two", "three", "vi\u00e9r", "six"]


def rows_of(batches: list[Batch]) -> list[tuple[int, int, str, str]]:
    """Piece, row, id and text of each document."""
    return [
        (one.piece(i), row, one.ids[i].as_py(), text.as_py())
        for one in batches
        for i, (row, text) in enumerate(zip(one.rows().to_pylist(), one.texts, strict=True))
        if one.ids is not None
    ]


def test_a_batch_spans_files_and_knows_the_file_of_each_document(tmp_path: Path) -> None:
    documents = documents_of(unit_of(tmp_path, FILES), {})
    (batch,) = documents
    assert rows_of([batch]) == [
        (0, 0, "0", "one"),
        (1, 0, "x", "two"),
        (1, 1, "y", "three"),
        (2, 0, "0", "vi\u00e9r"),
        (5, 0, "0", "six"),
    ]
    assert batch.file_bytes == sum(map(len, FILES.values()))
    assert [(bad.piece, bad.row) for bad in documents.left] == [(4, 0)]
    assert batch.n_by_piece(6).tolist() == [1, 2, 1, 0, 0, 1]
    assert [(piece, one.texts.to_pylist()) for piece, one in batch.slice(1, 3).by_piece()] == [
        (1, ["two", "three"]),
        (2, ["vi\u00e9r"]),
    ]


def test_with_a_list_to_leave_out_the_other_documents_are_the_same(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, FILES)
    lines = [DropLine("line 2", "y", None, "asked"), DropLine("line 3", "z", None, "asked")]
    documents = documents_of(unit, {"drop": DropList(lines)})
    found = rows_of(list(documents))
    assert found == [one for one in rows_of(list(documents_of(unit, {}))) if one[2] != "y"]
    assert documents.dropped.n_by_piece == [0, 1, 0, 0, 0, 0] and documents.dropped.reasons == {"asked": 1}


def test_batches_have_about_a_megabyte_however_small_the_files_are(tmp_path: Path) -> None:
    files = {f"{i:03}.txt": b"%03d" % i * 10_000 for i in range(100)}
    batches = list(documents_of(unit_of(tmp_path, files), {}, Limits(None, None)))
    assert [text for one in batches for text in one.texts.to_pylist()] == [
        content.decode() for content in files.values()
    ]
    assert all(900_000 < one.text_bytes < 1_200_000 for one in batches[:-1])


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff", "f.txt, row 0: the text: expected UTF-8; found 0xff"),
        (b"x" * 20_000, "f.txt, row 0: the document is longer than 10,000 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "f.txt: is a pointer of Git LFS"),
    ],
)
def test_what_is_wrong_with_a_small_file_is_said_as_of_any_other(tmp_path: Path, content: bytes, what: str) -> None:
    unit = unit_of(tmp_path, {"a.txt": b"one", "f.txt": content})
    with pytest.raises(CorpusError, match=r"^f\.txt") as raised:
        list(documents_of(unit, {}, on_bad="fail"))
    assert what in str(raised.value)
