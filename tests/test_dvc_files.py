"""DVC says what it cannot list, open or write, instead of passing over it or waiting for ever."""

import os
import sqlite3
from pathlib import Path

import diskcache
import pytest

from tokenmill.dvc_files import make_strict


@pytest.fixture(autouse=True)
def strict() -> None:
    make_strict()


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    from dvc_objects.fs import localfs

    with pytest.raises(FileNotFoundError):
        list(localfs.walk(str(tmp_path / "gone")))


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    from dvc_objects.fs import localfs

    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="it is a FIFO"):
        localfs.open(str(tmp_path / "fifo"), "rb")


def test_a_database_that_cannot_be_written_to_is_not_tried_for_ever(tmp_path: Path) -> None:
    with diskcache.Cache(str(tmp_path), timeout=0) as cache:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(diskcache.Timeout):
            cache.set("a", 1, retry=True)
        other.close()
