"""What each shape of tokenizer is and gives is as reviewed. `make snapshots` writes the files again, and git shows what changed."""

import hashlib
import json
import tempfile
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.snapshots.shapes import SHAPES, write
from tokenmill import Tokenizer
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.features.convert.inspect import check_tokenizer, lines_of

FOLDER = Path(__file__).parent
PUBLISHED = SHARED / "tokenizers"
TEXTS = {**PANEL, **HARD}
SHOWN = (
    "latin/german",
    "hangul",
    "code/c",
    "spaces/before-word",
    "newlines",
    "contractions",
    "digits",
    "marks/decomposed",
    "special-looking",
)


def snapshot(name: str, path: Path) -> str:
    """What `tokenmill check` says of a tokenizer, the ids of some texts, and a digest of those of all golden texts."""
    tokenizer = Tokenizer.load(path)
    lines = lines_of(check_tokenizer(path), name)
    lines += [f"  ids {text:18}  {' '.join(map(str, tokenizer.encode(TEXTS[text])))}" for text in SHOWN]
    every = json.dumps([tokenizer.encode(text) for text in TEXTS.values()])
    lines.append(f"  ids of all {len(TEXTS)}      sha256 {hashlib.sha256(every.encode()).hexdigest()}")
    return "\n".join(lines) + "\n"


def file_of(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '-').replace(',', '')}.txt"


def published() -> list[str]:
    return sorted(path.name for path in PUBLISHED.iterdir()) if PUBLISHED.is_dir() else []


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_as_reviewed(name: str, tmp_path: Path) -> None:
    assert snapshot(name, write(tmp_path, SHAPES[name])) == file_of(name).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", published())
def test_a_published_tokenizer_is_as_reviewed(name: str) -> None:
    assert snapshot(name, PUBLISHED / name) == file_of(f"published {name}").read_text(encoding="utf-8")


def test_every_snapshot_has_its_tokenizer() -> None:
    files = {path for path in FOLDER.glob("*.txt") if not path.name.startswith("published-")}
    assert files == {file_of(name) for name in SHAPES}


def rewrite() -> None:
    """Writes all snapshots."""
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            file_of(name).write_text(snapshot(name, write(Path(folder), shape)), encoding="utf-8")
    for name in published():
        file_of(f"published {name}").write_text(snapshot(name, PUBLISHED / name), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
