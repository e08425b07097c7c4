"""The ids of imported SentencePiece models are those of the library, for every combination of its settings."""

from pathlib import Path

import pytest

from tests.builders.sentencepiece_models import DIGESTS, SYMBOLS, TEXTS, Cell, cells, digest_of, is_followed, model_of
from tokenmill import Tokenizer
from tokenmill.features.convert.convert import convert, read_form
from tokenmill.features.convert.formats.pieces import Kind

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


def is_written(cell: Cell) -> bool:
    """Whether the tokenizer of a cell can become a model again: no step of it but those of characters is left."""
    has_symbols = any(kind is Kind.USER_DEFINED for _, kind in SYMBOLS[cell.symbols])
    return is_followed(cell) and cell.type == "bpe" and not cell.joins_spaces and not has_symbols


@pytest.mark.parametrize("cell", filter(is_written, cells()), ids=str)
def test_a_written_model_gives_the_ids_of_the_tokenizer(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    path.write_bytes(model_of(cell))
    convert(path, tmp_path / "own")
    (written,) = convert(tmp_path / "own", tmp_path / "there", "sentencepiece")
    tokenizer = Tokenizer.load(tmp_path / "own")
    judge = sentencepiece.SentencePieceProcessor(model_file=str(written))
    for text, expected in zip(TEXTS, judge.encode(TEXTS), strict=True):
        assert tokenizer.encode(text) == expected, text


def test_the_quick_tests_have_the_ids_of_the_library() -> None:
    """To write the file again: `python -m interop.test_sentencepiece`."""
    assert DIGESTS.read_text(encoding="utf-8") == _table()


def _table() -> str:
    return "".join(f"{digest_of(ids_of(cell))} {cell}\n" for cell in filter(is_followed, cells()))


if __name__ == "__main__":
    DIGESTS.write_text(_table(), encoding="utf-8")
