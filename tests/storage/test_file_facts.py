"""A file's digest is remembered while the file is the same, and no longer."""

import os
import time
from pathlib import Path

import pytest

from tokenmill.errors import CorpusError
from tokenmill.storage.file_facts import Digests
from tokenmill_reader.regular_files import sha256_file


class Reader:
    """Reads a file for its sha256, and counts how often."""

    def __init__(self, path: Path, age_s: float = 60) -> None:
        self.path = path
        self.n_reads = 0
        if age_s:
            then = time.time() - age_s
            os.utime(path, (then, then))

    def __call__(self) -> str:
        self.n_reads += 1
        return sha256_file(self.path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute later: the files of the test are no longer new."""
    now = time.time_ns
    monkeypatch.setattr("tokenmill.storage.file_facts.time.time_ns", lambda: now() + 60 * 10**9)


def digest(root: Path, read: Reader, trust: bool = True) -> str:
    digests = Digests(root, trust)
    found = digests.fact(read.path, "sha256", str, read)
    digests.save()
    return found


@pytest.mark.usefixtures("clock")
def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    read = Reader(tmp_path / "a")
    assert digest(tmp_path, read) == digest(tmp_path, read)
    assert read.n_reads == 1
    digest(tmp_path, read, trust=False)
    assert read.n_reads == 2


@pytest.mark.usefixtures("clock")
def test_a_file_of_other_bytes_is_read_again_whatever_its_times_say(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    read = Reader(path)
    before, status = digest(tmp_path, read), path.stat()
    path.write_bytes(b"y")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(tmp_path, read) != before
    (tmp_path / "b").write_bytes(b"z")
    os.utime(tmp_path / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "b").replace(path)
    assert digest(tmp_path, read) == sha256_file(path)


def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    read = Reader(tmp_path / "a", age_s=0)
    digest(tmp_path, read)
    digest(tmp_path, read)
    assert read.n_reads == 2


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with pytest.raises(CorpusError, match="changed while it was read"):
        Digests(tmp_path).fact(path, "n", int, lambda: path.write_bytes(b"more"))


def test_a_damaged_memory_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / ".tokenmill").mkdir()
    (tmp_path / ".tokenmill/digests.json").write_bytes(b'{"a": [')
    (tmp_path / "a").write_bytes(b"x")
    assert digest(tmp_path, Reader(tmp_path / "a")) == sha256_file(tmp_path / "a")
