"""DVC says what it cannot list, open or write, instead of passing over it or waiting for ever."""

import errno
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


@pytest.mark.parametrize("failures", [1, 2])
def test_a_clone_that_failed_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    from dvc_objects.fs import localfs, system

    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"bytes")
    unlink, asked = os.unlink, list[Path]()

    def fail(path: Path) -> None:
        asked.append(path)
        if len(asked) <= failures:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        unlink(path)

    def no_clones(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(system.fcntl, "ioctl", no_clones)
    with monkeypatch.context() as patch, pytest.raises(OSError) as raised:
        patch.setattr(os, "unlink", fail)
        localfs.reflink(str(source), str(target))
    assert (raised.value.errno, target.exists()) == ((errno.ENOTSUP, False) if failures == 1 else (errno.EIO, True))
    assert failures == 1 or Path(raised.value.filename) == target


def test_a_database_that_cannot_be_written_to_is_not_tried_for_ever(tmp_path: Path) -> None:
    with diskcache.Cache(str(tmp_path), timeout=0) as cache:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(diskcache.Timeout):
            cache.set("a", 1, retry=True)
        other.close()
