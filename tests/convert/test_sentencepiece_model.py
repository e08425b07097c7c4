"""SentencePiece models become tokenizers with the ids of the sentencepiece library, or are refused with the setting's name."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders.sentencepiece_models import (
    DIGESTS,
    TEXTS,
    TYPES,
    Cell,
    cells,
    digest_of,
    is_followed,
    model_of,
    piece,
)
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.convert import read_form
from tokenmill.features.convert.formats.pieces import Kind
from tokenmill.features.convert.formats.protobuf import field
from tokenmill.tokenizer.tokenizer import Tokenizer

EXPECTED = {
    cell: digest for digest, _, cell in (line.partition(" ") for line in DIGESTS.read_text("utf-8").splitlines())
}
"""By sentencepiece 0.2.3."""


def imported(cell: Cell, tmp_path: Path) -> Tokenizer:
    """The tokenizer of a cell's model."""
    path = tmp_path / "a.model"
    path.write_bytes(model_of(cell))
    return read_form(path).tokenizer


@pytest.mark.parametrize("cell", filter(is_followed, cells()), ids=str)
def test_a_model_gives_the_ids_of_sentencepiece(cell: Cell, tmp_path: Path) -> None:
    tokenizer = imported(cell, tmp_path)
    assert digest_of([tokenizer.encode(text) for text in TEXTS]) == EXPECTED[str(cell)]


@pytest.mark.parametrize("model_type", TYPES)
def test_every_other_combination_is_refused_with_the_name_of_a_setting(model_type: str, tmp_path: Path) -> None:
    for cell in cells():
        if cell.type == model_type and not is_followed(cell):
            with pytest.raises(TokenizerError, match=r"model_type|rule_name|escape_whitespaces|ends as one begins"):
                imported(cell, tmp_path)


def model_of_pieces(tmp_path: Path, *pieces: tuple[str, float, Kind], model_type: int = 2, joins: bool = False) -> Path:
    """A .model file of an unknown piece and these."""
    listed = [piece(*one) for one in (("<unk>", 0.0, Kind.UNKNOWN), *pieces)]
    settings = [field(2, field(3, model_type)), field(3, field(4, int(joins)))]
    path = tmp_path / "a.model"
    path.write_bytes(b"".join([*listed, *settings]))
    return path


A, B = ("a", -1.0, Kind.NORMAL), ("b", -2.0, Kind.NORMAL)


@pytest.mark.parametrize(
    ("pieces", "options", "message"),
    [
        ((A, ("#", 0.0, Kind.CONTROL)), {}, "'#' is a control piece of one character"),
        ((A, B, ("ab", 0.0, Kind.UNUSED)), {}, "'ab' is unused; sentencepiece makes it"),
        ((A, B, ("ab", -3.0, Kind.NORMAL), ("ba", -3.0, Kind.NORMAL)), {}, "'ab' and 'ba' have the same score"),
        ((A, ("a  b", 0.0, Kind.USER_DEFINED)), {"joins": True}, "has several spaces in a row"),
        (
            (A, B, ("ab", -3.0, Kind.NORMAL), ("ba", -4.0, Kind.NORMAL), ("aba", 0.0, Kind.UNUSED)),
            {"model_type": 1},
            "'aba' in it would become that",
        ),
    ],
)
def test_a_piece_that_tokenizer_json_cannot_treat_as_sentencepiece_does_is_named(
    tmp_path: Path, pieces: tuple[tuple[str, float, Kind], ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_form(model_of_pieces(tmp_path, *pieces, **options))
