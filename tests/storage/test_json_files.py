"""Small files of JSON are read within bounds, whoever wrote them."""

import os
from pathlib import Path

import pytest

from tokenmill.errors import of_the_machine
from tokenmill.storage.json_files import read_json
from tokenmill_reader.regular_files import READ_BYTES_MAX, read


def sparse(path: Path, n_bytes: int = 6 * 2**30) -> Path:
    """A file of this length that takes no room."""
    path.touch()
    os.truncate(path, n_bytes)
    return path


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it has 6,442,450,944 bytes, and 536,870,912 are expected at most") as found:
        read(sparse(tmp_path / "manifest.json"))
    assert str(of_the_machine(found.value)).startswith(f"{tmp_path / 'manifest.json'}: it has 6,442,450,944 bytes")
    assert len(read(sparse(tmp_path / "one", READ_BYTES_MAX // 2**10))) == READ_BYTES_MAX // 2**10


def test_deep_json_is_wrong_json(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000, encoding="ascii")
    with pytest.raises(ValueError, match="it is nested too deep"):
        read_json(tmp_path / "deep.json")
