"""The ids of imported SentencePiece models are those of the library, for every combination of its settings."""

from pathlib import Path

import pytest

from tests.builders.sentencepiece_models import DIGESTS, TEXTS, Cell, cells, digest_of, is_followed, model_of
from tokenmill.tokenizer.conversions.convert import read_form

sentencepiece = pytest.importorskip("sentencepiece", reason="runs in the environment of make test-conform")


def ids_of(cell: Cell) -> list[list[int]]:
    """What the library gives."""
    found: list[list[int]] = sentencepiece.SentencePieceProcessor(model_proto=model_of(cell)).encode(TEXTS)
    return found


@pytest.mark.parametrize("cell", filter(is_followed, cells()), ids=str)
def test_an_imported_model_gives_the_ids_of_the_library(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    path.write_bytes(model_of(cell))
    tokenizer = read_form(path).tokenizer
    for text, expected in zip(TEXTS, ids_of(cell), strict=True):
        assert tokenizer.encode(text) == expected, text


def test_the_quick_tests_have_the_ids_of_the_library() -> None:
    """To write the file again: `python -m interop.test_sentencepiece`."""
    assert DIGESTS.read_text(encoding="utf-8") == _table()


def _table() -> str:
    return "".join(f"{digest_of(ids_of(cell))} {cell}\n" for cell in filter(is_followed, cells()))


if __name__ == "__main__":
    DIGESTS.write_text(_table(), encoding="utf-8")
