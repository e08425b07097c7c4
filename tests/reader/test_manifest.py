"""Values of a manifest that JSON allows and no dataset has are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenmill_reader.description import info, lines_of
from tokenmill_reader.errors import ValidationError
from tokenmill_reader.manifest import manifest_of, own_digest

DATASET = Path(__file__).parents[1] / "dataset/made_by_format_7/data/tokens"
CONTENT: dict[str, Any] = json.loads((DATASET / "manifest.json").read_bytes())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokenizer_digest": "\ud800"}, r"tokenizer_digest: expected text; found a lone surrogate in '\\ud800'"),
        ({"engine": "a\udfff"}, "engine: expected text"),
        ({"n_dropped": {"\ud800": 1}}, "n_dropped: expected text"),
        ({"id_type": ".."}, r"id_type: expected uint16 or uint32; found '\.\.'"),
        ({"id_type": ["uint16"]}, "id_type: expected uint16 or uint32"),
        ({"id_type": "float64"}, "id_type: expected uint16 or uint32"),
        ({"tokenizer_origin": ["a"]}, "tokenizer_origin: expected an object; found a list"),
    ],
)
def test_a_value_that_no_manifest_has_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=f"manifest.json: {words}"):
        manifest_of(CONTENT | changed, "manifest.json")


@pytest.mark.parametrize("origin", [{"a": "b"}, {"name": None}, {"source": "there", "version": None}, {}])
def test_a_tokenizer_of_incomplete_origin_is_described(tmp_path: Path, origin: dict[str, Any]) -> None:
    content = CONTENT | {"tokenizer_origin": origin}
    (tmp_path / "manifest.json").write_text(json.dumps(content | {"digest": own_digest(content)}), encoding="utf-8")
    [line] = [line for line in lines_of(info(tmp_path)) if line.split()[0] == "tokenizer"]
    assert line.endswith("… (there)" if "source" in origin else "…")
